#include "services/worker/rpc/lora_conversion.h"

namespace lathe::worker {

LoraSpec ToLoraSpec(const lathe::v1::LoraConfig& lora) {
  return {.rank = lora.rank(),
          .alpha = lora.alpha(),
          .seed = lora.seed(),
          .target_modules = {lora.target_modules().begin(), lora.target_modules().end()}};
}

lathe::v1::LoraConfig ToProto(const LoraSpec& spec) {
  lathe::v1::LoraConfig lora;
  lora.set_rank(spec.rank);
  lora.set_seed(spec.seed);
  lora.set_alpha(spec.alpha);
  for (const std::string& module : spec.target_modules) lora.add_target_modules(module);
  return lora;
}

}  // namespace lathe::worker

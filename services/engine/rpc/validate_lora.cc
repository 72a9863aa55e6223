#include "services/engine/rpc/validate_lora.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "services/engine/rpc/invalid.h"

namespace lathe::engine {

absl::StatusOr<LoraConfig> ValidateLora(const v1::LoraConfig& proto, const ModelLimits& limits) {
  if (proto.rank() < 1 || proto.rank() > limits.max_lora_rank) {
    return Invalid("bad_lora", "lora_config.rank",
                   absl::StrFormat("lora_config.rank is %d, expected 1 to %d", proto.rank(),
                                   limits.max_lora_rank));
  }
  if (!proto.train_attn() && !proto.train_mlp() && !proto.train_unembed()) {
    return Invalid("bad_lora", "lora_config",
                   "lora_config trains nothing: one of train_attn, train_mlp and train_unembed "
                   "must be true");
  }
  LoraConfig lora;
  if (proto.has_alpha()) lora.alpha = proto.alpha();
  if (!std::isfinite(lora.alpha) || lora.alpha <= 0) {
    return Invalid(
        "bad_lora", "lora_config.alpha",
        absl::StrFormat("lora_config.alpha is %g, expected a finite number above 0", lora.alpha));
  }
  lora.rank = proto.rank();
  lora.seed = proto.seed();
  lora.train_attn = proto.train_attn();
  lora.train_mlp = proto.train_mlp();
  lora.train_unembed = proto.train_unembed();
  return lora;
}

}  // namespace lathe::engine

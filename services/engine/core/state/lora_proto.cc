#include "services/engine/core/state/lora_proto.h"

#include "protos/lathe/v1/types.pb.h"

namespace lathe::engine {

void FillLora(const LoraConfig& lora, v1::LoraConfig& proto) {
  proto.set_rank(lora.rank);
  proto.set_alpha(lora.alpha);
  proto.set_seed(lora.seed);
  proto.set_train_attn(lora.train_attn);
  proto.set_train_mlp(lora.train_mlp);
  proto.set_train_unembed(lora.train_unembed);
  proto.mutable_target_modules()->Assign(lora.target_modules.begin(), lora.target_modules.end());
}

LoraConfig ToLora(const v1::LoraConfig& proto) {
  return {.rank = proto.rank(),
          .alpha = proto.alpha(),
          .seed = proto.seed(),
          .train_attn = proto.train_attn(),
          .train_mlp = proto.train_mlp(),
          .train_unembed = proto.train_unembed(),
          .target_modules = {proto.target_modules().begin(), proto.target_modules().end()}};
}

}  // namespace lathe::engine

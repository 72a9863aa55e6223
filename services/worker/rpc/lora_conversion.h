// Conversion of adapter shapes between native and wire form.
#pragma once

#include "protos/lathe/v1/types.pb.h"
#include "services/worker/ops/training.h"

namespace lathe::worker {

LoraSpec ToLoraSpec(const lathe::v1::LoraConfig& lora);
lathe::v1::LoraConfig ToProto(const LoraSpec& spec);

}  // namespace lathe::worker

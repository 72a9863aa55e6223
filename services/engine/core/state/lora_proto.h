// Conversion of a LoRA shape to and from its message.
#pragma once

#include "services/engine/store/rows.h"

namespace lathe::v1 {
class LoraConfig;
}

namespace lathe::engine {

void FillLora(const LoraConfig& lora, v1::LoraConfig& proto);
LoraConfig ToLora(const v1::LoraConfig& proto);

}  // namespace lathe::engine

#include "libs/common/losses/loss.h"

namespace lathe {

LossSpec DefaultsOf(const LossProgram& program) {
  LossSpec spec{.program = &program};
  const RatioBounds bounds = program.clip.value_or(RatioBounds{});
  spec.clip_low = bounds.low;
  spec.clip_high = bounds.high;
  for (size_t i = 0; i < program.options.size(); ++i) {
    spec.numbers.at(i) = program.options[i].default_value;
  }
  return spec;
}

double* FindNumber(LossSpec& spec, std::string_view key) {
  const LossProgram& program = *spec.program;
  if (key == kKlCoef) return &spec.kl_coef;
  if (program.clip.has_value() && key == kClipLowThreshold) return &spec.clip_low;
  if (program.clip.has_value() && key == kClipHighThreshold) return &spec.clip_high;
  for (size_t i = 0; i < program.options.size(); ++i) {
    if (program.options[i].key == key) return &spec.numbers.at(i);
  }
  return nullptr;
}

}  // namespace lathe

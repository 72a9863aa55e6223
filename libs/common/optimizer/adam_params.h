// The numbers of one AdamW step, declared once: JSON bodies and their schema, the engine's checks,
// the worker's commands and the manifests of checkpoints all follow this table.
#pragma once

#include <array>
#include <cmath>
#include <string_view>

namespace lathe {

// A default applies to a member that JSON lacks, and to a number that a manifest lacks.
struct AdamParams {
  double learning_rate = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-12;
  double weight_decay = 0.0;
  double grad_clip_norm = 0.0;  // 0 = off
};

// Values that a number may have. No range holds NaN or an infinity.
struct NumberRange {
  bool (*holds)(double value);
  std::string_view words;
  std::string_view json_schema;  // members of a JSON schema
};

inline constexpr NumberRange kAtLeast0{
    .holds = [](double value) { return std::isfinite(value) && value >= 0; },
    .words = "a finite number of at least 0",
    .json_schema = R"("minimum": 0)"};
inline constexpr NumberRange kAbove0{
    .holds = [](double value) { return std::isfinite(value) && value > 0; },
    .words = "a finite number above 0",
    .json_schema = R"("exclusiveMinimum": 0)"};
inline constexpr NumberRange kFrom0Below1{
    .holds = [](double value) { return value >= 0 && value < 1; },
    .words = "a number in [0, 1)",
    .json_schema = R"("minimum": 0, "exclusiveMaximum": 1)"};

struct AdamField {
  // Name of the field in lathe.v1.AdamParams, and of the member in JSON and in manifests.
  std::string_view name;
  double AdamParams::*number;
  const NumberRange& range;
  bool is_required = false;     // in JSON
  std::string_view about = "";  // in the OpenAPI document
};

// All fields of lathe.v1.AdamParams, in the order of their numbers.
inline constexpr std::array kAdamFields = {
    AdamField{"learning_rate", &AdamParams::learning_rate, kAtLeast0, /*is_required=*/true},
    AdamField{"beta1", &AdamParams::beta1, kFrom0Below1},
    AdamField{"beta2", &AdamParams::beta2, kFrom0Below1},
    AdamField{"eps", &AdamParams::eps, kAbove0},
    AdamField{"weight_decay", &AdamParams::weight_decay, kAtLeast0},
    AdamField{"grad_clip_norm", &AdamParams::grad_clip_norm, kAtLeast0, /*is_required=*/false,
              "0: no clipping."},
};

}  // namespace lathe

// Text of plain structs for traces: one line, fields in braces, without field names.
#pragma once

#include <algorithm>
#include <boost/pfr/core.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "services/engine/simulation/container_traits.h"
#include "services/engine/simulation/type_name.h"

namespace lathe::engine::simulation {

template <typename T>
void DescribeTo(const T& value, std::string& out) {
  if constexpr (std::is_enum_v<T>) {
    out += std::to_string(static_cast<int64_t>(value));
  } else if constexpr (std::is_arithmetic_v<T>) {
    out += std::to_string(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    // The bytes of a plan are not readable.
    const auto is_control = [](unsigned char c) { return c < ' '; };
    out += std::ranges::any_of(value, is_control) ? "…" : value;
  } else if constexpr (IsVector<T>::value) {
    out += '[';
    for (const auto& one : value) {
      DescribeTo(one, out);
      out += ' ';
    }
    out += ']';
  } else if constexpr (IsOptional<T>::value) {
    if (value) DescribeTo(*value, out);
  } else if constexpr (IsPair<T>::value) {
    DescribeTo(value.first, out);
    out += '=';
    DescribeTo(value.second, out);
  } else if constexpr (IsVariant<T>::value) {
    std::visit([&](const auto& one) { DescribeTo(one, out); }, value);
  } else {
    out += TypeName<T>() + '{';
    boost::pfr::for_each_field(value, [&](const auto& field) {
      DescribeTo(field, out);
      out += ',';
    });
    out += '}';
  }
}

template <typename T>
std::string Describe(const T& value) {
  std::string out;
  DescribeTo(value, out);
  return out;
}

}  // namespace lathe::engine::simulation

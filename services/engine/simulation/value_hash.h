// A hash of plain structs that does not depend on how their fields are ordered or nested, so that
// it stays the same when a struct is reshaped and its values do not change.
#pragma once

#include <bit>
#include <boost/pfr/core.hpp>
#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>

#include "services/engine/core/state/plan.h"
#include "services/engine/simulation/container_traits.h"
#include "services/engine/simulation/type_name.h"
#include "services/engine/store/rows.h"
#include "services/engine/testing/mix.h"

namespace lathe::engine::simulation {

// The sum over all fields, those of nested structs too. A field that is zero, false, empty or unset
// adds nothing. Elements of a list count in their order, alternatives of a variant by their name.
// Fields have no names here: two of them that exchange their values leave the hash as it is.
template <typename T>
uint64_t ValueHash(const T& value) {
  if constexpr (std::is_same_v<T, RequestRow>) {
    // A plan is encoded: its fields count, not its bytes.
    RequestRow row = value;
    const auto plan = DecodePlan(row.plan);
    if (plan) row.plan.clear();
    uint64_t sum = plan ? ValueHash(*plan) : 0;
    boost::pfr::for_each_field(row, [&sum](const auto& field) { sum += ValueHash(field); });
    return sum;
  } else if constexpr (std::is_floating_point_v<T>) {
    return value == 0 ? 0 : Mix(1, std::bit_cast<uint64_t>(static_cast<double>(value)));
  } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
    const auto word = static_cast<uint64_t>(value);
    return word == 0 ? 0 : Mix(2, word);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value.empty() ? 0 : MixBytes(3, value);
  } else if constexpr (IsVector<T>::value) {
    uint64_t hash = value.empty() ? 0 : Mix(4, value.size());
    for (const auto& one : value) hash = Mix(hash, ValueHash(one));
    return hash;
  } else if constexpr (IsOptional<T>::value) {
    return value ? Mix(5, ValueHash(*value)) : 0;
  } else if constexpr (IsPair<T>::value) {
    return Mix(Mix(6, ValueHash(value.first)), ValueHash(value.second));
  } else if constexpr (IsVariant<T>::value) {
    return std::visit(
        [](const auto& one) {
          static const uint64_t kind = MixBytes(7, TypeName<std::decay_t<decltype(one)>>());
          return kind + ValueHash(one);
        },
        value);
  } else {
    uint64_t sum = 0;
    boost::pfr::for_each_field(value, [&sum](const auto& field) { sum += ValueHash(field); });
    return sum;
  }
}

}  // namespace lathe::engine::simulation

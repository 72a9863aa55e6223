// Converts torch's exceptions into a Status, once per item that the executor runs.
#pragma once

#include <cstring>
#include <exception>
#include <new>
#include <type_traits>
#include <utility>

#include <c10/util/Exception.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lathe::worker {

// Also recognizes the plain c10::Error that torch's allocator of host memory throws.
inline bool IsOutOfMemory(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         std::strstr(error.what(), "DefaultCPUAllocator: can't allocate memory") != nullptr;
}

// `what` names the item in the message.
inline absl::Status StatusOfException(const char* what, const std::exception& error) {
  if (IsOutOfMemory(error)) {
    return absl::ResourceExhaustedError(absl::StrCat("out of memory in ", what));
  }
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return absl::InternalError(absl::StrCat(
      what,
      " failed: ", torch_error != nullptr ? torch_error->what_without_backtrace() : error.what()));
}

// Returns the result of `body`, a function that returns a Status or StatusOr. Running out of memory
// is ResourceExhausted; all other exceptions are Internal.
template <typename Body>
std::invoke_result_t<Body> Guarded(const char* what, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::exception& error) {
    return StatusOfException(what, error);
  }
}

}  // namespace lathe::worker

// Where exceptions of torch become a Status: once per item the executor runs.
#pragma once

#include <exception>
#include <new>
#include <type_traits>
#include <utility>

#include <c10/util/Exception.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lathe::worker {

// `what` names the item in the message.
inline absl::Status StatusOfException(const char* what, const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("out of memory in ", what));
  }
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return absl::InternalError(absl::StrCat(
      what,
      " failed: ", torch_error != nullptr ? torch_error->what_without_backtrace() : error.what()));
}

// The result of `body`, which returns a Status or StatusOr; running out of memory is
// ResourceExhausted, everything else that is thrown Internal.
template <typename Body>
std::invoke_result_t<Body> Guarded(const char* what, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::exception& error) {
    return StatusOfException(what, error);
  }
}

}  // namespace lathe::worker

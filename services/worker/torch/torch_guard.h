// Converts torch's exceptions into a Status, once per item that the executor runs.
#pragma once

#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include <c10/util/Exception.h>

#include "absl/status/status.h"

namespace lathe::worker {

// Also recognizes errors without a type of their own: those of torch's allocator of host memory,
// and of libraries that allocate on a GPU by themselves.
bool IsOutOfMemory(const std::exception& error);

// Returns the message without a backtrace.
std::string MessageOf(const std::exception& error);

// Throws what torch throws for CUDA's error `code`. For fail points.
[[noreturn]] void ThrowDeviceError(int code);

// Returns ResourceExhausted if `error` is a lack of memory, else Internal. `what` names the item in
// the message. Does not return in a process that ends because its GPU is lost (device_loss.h).
absl::Status StatusOfException(const char* what, const std::exception& error);

// Returns the result of `body`, a function that returns a Status or StatusOr, or StatusOfException.
template <typename Body>
std::invoke_result_t<Body> Guarded(const char* what, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::exception& error) {
    return StatusOfException(what, error);
  }
}

}  // namespace lathe::worker

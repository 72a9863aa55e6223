// RETURN_IF_ERROR and ASSIGN_OR_RETURN, the only macros except those for tests and logging.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define LATHE_CONCAT_INNER(a, b) a##b
#define LATHE_CONCAT(a, b) LATHE_CONCAT_INNER(a, b)

// Returns the status of `expression` from the function when it is not OK.
#define RETURN_IF_ERROR(expression)                                                   \
  do {                                                                                \
    if (absl::Status status_macro_status = (expression); !status_macro_status.ok()) { \
      return status_macro_status;                                                     \
    }                                                                                 \
  } while (false)

// ASSIGN_OR_RETURN(const Foo foo, MakeFoo()): declares foo or returns the error.
#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_INNER(LATHE_CONCAT(status_or_, __LINE__), declaration, expression)

#define ASSIGN_OR_RETURN_INNER(holder, declaration, expression) \
  auto holder = (expression);                                   \
  if (!holder.ok()) return std::move(holder).status();          \
  declaration = *std::move(holder)

// The options tracing.*, which say where spans are sent.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "libs/common/config/option_set.h"
#include "libs/common/tracing/tracer.h"

namespace lathe {

struct TracingOptions {
  std::string endpoint;  // base URL of a collector; empty: no traces
  std::string headers;   // NAME=VALUE,NAME=VALUE
  double sample_ratio = 1;
  bool insecure_i_know = false;
};

// `options` must outlive `set`.
void AddTracingOptions(OptionSet& set, TracingOptions& options);

// InvalidArgument naming option, value and bound. Does not show a header's value.
absl::Status CheckTracingOptions(const TracingOptions& options);

// Returns null if the options, which must be valid, name no collector. `service` is the program's
// name.
std::unique_ptr<Tracer> MakeTracer(const TracingOptions& options, const std::string& service);

}  // namespace lathe

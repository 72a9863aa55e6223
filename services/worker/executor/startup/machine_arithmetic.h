// The arithmetic of this machine: which CPU instructions decide its bits, and whether results
// depend on batching or threads.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "services/worker/models/model.h"

namespace lathe::worker {

// Describes the choice of code that torch, its libraries and our kernels make at run time: the
// processor's maker, its instruction sets, and settings in the environment. Machines with equal
// texts compute the same bits. Example: "AVX512 of intel with avx2 fma avx512f, MKL_CBWR=AVX2"
std::string CpuArithmetic();

// Runs a layer forward and backward, the unembedding, and a prefill and a decode pass of `model` on
// sequences of many lengths. Runs them alone on one thread, and packed in two orders on all
// threads. OK: every sequence got the same bits each time. FailedPrecondition names the result that
// differs.
absl::Status ProbeExactNumerics(const Model& model);

}  // namespace lathe::worker

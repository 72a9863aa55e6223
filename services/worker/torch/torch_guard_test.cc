#include "services/worker/torch/torch_guard.h"

#include <catch2/catch.hpp>

#include <stdexcept>
#include <string>
#include <vector>

#include "services/worker/torch/device_loss.h"

namespace lathe::worker {
namespace {

c10::AcceleratorError DeviceError(int code, const std::string& message) {
  return {{__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, code, message};
}

// The losses that a process would have ended for.
class Losses {
 public:
  explicit Losses(absl::Status probed)
      : before_(SetDeviceLossHandling(
            {.probe = [this, probed] { return ++num_probes, probed; },
             .on_lost = [this](const std::string& error) { errors.push_back(error); }})) {}
  ~Losses() { SetDeviceLossHandling(before_); }

  std::vector<std::string> errors;
  int num_probes = 0;

 private:
  const DeviceLossHandling before_;
};

const absl::Status kLost = absl::InternalError("an illegal memory access was encountered");

TEST_CASE("StatusOfException: a lack of memory has many forms, and loses no GPU", "[guard]") {
  Losses losses(kLost);
  const std::string words =
      GENERATE("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
               "CUDA driver error: out of memory", "AttendPages: out of memory",
               "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory");
  for (const absl::Status& status : {StatusOfException("pass", std::runtime_error(words)),
                                     StatusOfException("pass", c10::Error({}, words))}) {
    CHECK(status == absl::ResourceExhaustedError("out of memory in pass"));
  }
  // cudaGraphInstantiate returns cudaErrorMemoryAllocation.
  const auto graph = DeviceError(2, "CUDA error: no words");
  CHECK(absl::IsResourceExhausted(StatusOfException("pass", graph)));
  CHECK(absl::IsResourceExhausted(StatusOfException("pass", std::bad_alloc())));
  CHECK(losses.errors.empty());
}

TEST_CASE("StatusOfException: an error after which the GPU is unusable ends the process",
          "[guard]") {
  Losses losses(absl::OkStatus());
  const int code = GENERATE(214, 700, 710, 719);
  CHECK(absl::IsInternal(StatusOfException("pass", DeviceError(code, "CUDA error: lost"))));
  CHECK(losses.errors == std::vector<std::string>{"CUDA error: lost"});
}

TEST_CASE("StatusOfException: other errors of a GPU that works fail one item only", "[guard]") {
  Losses losses(absl::OkStatus());
  const auto invalid = DeviceError(1, "CUDA error: invalid argument");
  CHECK(StatusOfException("pass", invalid) ==
        absl::InternalError("pass failed: CUDA error: invalid argument"));
  CHECK(StatusOfException("pass", std::runtime_error("no such slot")) ==
        absl::InternalError("pass failed: no such slot"));
  CHECK(losses.errors.empty());
  CHECK(losses.num_probes == 2);
}

TEST_CASE("StatusOfException: an error of any type may be the first sign of a lost GPU",
          "[guard]") {
  Losses losses(kLost);
  CHECK(absl::IsInternal(StatusOfException("pass", std::runtime_error("LoraRows: unspecified"))));
  CHECK(losses.errors == std::vector<std::string>{std::string(kLost.message())});
}

TEST_CASE("Guarded: a result passes, an exception becomes a status", "[guard]") {
  CHECK(Guarded("pass", [] { return absl::StatusOr<int>(3); }).value() == 3);
  const absl::Status status =
      Guarded("pass", []() -> absl::Status { throw std::runtime_error("broken"); });
  CHECK(status == absl::InternalError("pass failed: broken"));
}

TEST_CASE("ProbeGpu: a process without a GPU has lost none", "[guard]") { CHECK(ProbeGpu().ok()); }

}  // namespace
}  // namespace lathe::worker

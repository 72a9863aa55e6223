#include "services/worker/executor/startup/machine_arithmetic.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <string>

#include "services/worker/testing/test_trainer.h"

namespace lathe::worker {
namespace {

TEST_CASE("the settings of MKL and oneDNN are part of a CPU's arithmetic", "[executor]") {
  const std::string before = CpuArithmetic();
  CHECK_THAT(before, Catch::Contains(" of ") && Catch::Contains(" with "));
  for (const char* name : {"MKL_CBWR", "ONEDNN_MAX_CPU_ISA"}) {
    setenv(name, "AVX2", 1);
    CHECK(CpuArithmetic() == before + ", " + name + "=AVX2");
    unsetenv(name);
  }
  CHECK(CpuArithmetic() == before);
}

// A model whose layers' outputs depend on how many rows share a pass.
class ModelThatMinglesRows : public ModelWithLittleMemory {
 public:
  ModelThatMinglesRows() : ModelWithLittleMemory(TestModel(), int64_t{1} << 40) {}

  at::Tensor LayerForwardSaving(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                                std::unique_ptr<LayerSaved>* saved) const override {
    const at::Tensor y = ModelWithLittleMemory::LayerForwardSaving(layer, x, rows, saved);
    return y.mul(1 + 1e-6 * static_cast<double>(x.size(0)));
  }
};

}  // namespace

TEST_CASE("ProbeExactNumerics: this machine keeps the promise", "[executor]") {
  const absl::Status status = ProbeExactNumerics(TestModel());
  INFO(status.message());
  CHECK(status.ok());
}

TEST_CASE("ProbeExactNumerics: this machine keeps the promise in bf16", "[executor]") {
  if (!CpuHasBf16()) return;
  const absl::Status status = ProbeExactNumerics(SmallBf16Model(MatmulArithmetic::kBf16));
  INFO(status.message());
  CHECK(status.ok());
}

TEST_CASE("ProbeExactNumerics: rows that depend on their neighbours are found", "[executor]") {
  const absl::Status status = ProbeExactNumerics(ModelThatMinglesRows());
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(
      std::string(status.message()),
      Catch::Contains("the output of a layer of a sequence") && Catch::Contains("among others"));
}

}  // namespace lathe::worker

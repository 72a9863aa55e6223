#include "services/worker/executor/startup/cpu_arithmetic.h"

#include <catch2/catch.hpp>

#include <cstdlib>

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

}  // namespace
}  // namespace lathe::worker

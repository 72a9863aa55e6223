#include "services/worker/testing/emulated_gpu/emulated_gpu.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/layers/norms.h"

namespace lathe::worker {
namespace {

at::Tensor OnGpu(const at::Tensor& x) { return x.to(EmulatedGpu()); }

// Returns the signal that ends a child process which calls `run`, or 0.
template <typename F>
int SignalOf(const F& run) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);  // Catch's handler would report a failure
    run();
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST_CASE("Host code cannot access memory of the emulated GPU", "[emulated_gpu]") {
  const at::Tensor x = OnGpu(at::ones({4}));
  auto* const data = x.mutable_data_ptr<float>();
  CHECK(SignalOf([&] { std::_Exit(*data > 0 ? 1 : 2); }) == SIGSEGV);
  CHECK(SignalOf([&] { *data = 1; }) == SIGSEGV);
  CHECK(SignalOf([&] { *HostOf(data) = 1; }) == 0);
}

TEST_CASE("The emulated GPU refuses tensors of the host beside its own", "[emulated_gpu]") {
  const at::Tensor x = OnGpu(at::ones({4, 3}));
  const at::Tensor index = at::zeros({2}, at::kLong);
  CHECK_THROWS_WITH(x.index_select(0, index), Catch::Contains("of the host and of the device"));
  CHECK_THROWS_WITH(x.add(at::ones({4, 3})), Catch::Contains("to be on the same device"));
  CHECK_NOTHROW(x.add(2.5));
  // Our kernels too.
  CHECK_THROWS_WITH(RmsNorm(x, at::ones({3}), 1e-6), Catch::Contains("an address of the host"));
}

TEST_CASE("New memory of the emulated GPU holds NaN, and a view shares its base's",
          "[emulated_gpu]") {
  const auto options = at::TensorOptions().device(EmulatedGpu());
  CHECK(at::empty({5}, options).isnan().all().item<bool>());
  CHECK(at::empty({5}, options.dtype(at::kBFloat16)).isnan().all().item<bool>());
  const at::Tensor x = OnGpu(at::arange(12, at::kFloat).view({3, 4}));
  x.narrow(1, 1, 2).t().add_(100);
  const at::Tensor expected =
      at::tensor({0.f, 101.f, 102.f, 3.f, 4.f, 105.f, 106.f, 7.f, 8.f, 109.f, 110.f, 11.f});
  CHECK(at::equal(x.to(at::kCPU).flatten(), expected));
}

TEST_CASE("The ledger has launches and transfers, but no views", "[emulated_gpu]") {
  const at::Tensor x = OnGpu(at::ones({4, 4}));
  TakeLedger();
  x.narrow(0, 1, 2).t().unsqueeze(0).squeeze(0).view(at::kInt);
  CHECK(TakeLedger().num_launches() == 0);
  at::mm(x, x).add_(1).mul_(x);
  CHECK(TakeLedger().num_launches() == 3);
  x.select(0, 0).copy_(x.select(0, 1));
  CHECK(TakeLedger().launches == std::map<std::string, int64_t>{{"copy_", 1}});
  OnGpu(at::ones({1}));
  DeviceLedger ledger = TakeLedger();
  CHECK(ledger.num_uploads() == 1);
  CHECK(ledger.num_launches() == 0);
  CHECK(x.sum().item<float>() == 16);
  CHECK(at::equal(x, x));
  CHECK(x.nonzero().size(0) == 16);
  CHECK(x.to(at::kCPU).numel() == 16);
  ledger = TakeLedger();
  CHECK(ledger.readbacks ==
        std::map<std::string, int64_t>{
            {"item", 1}, {"aten::equal", 1}, {"aten::nonzero", 1}, {"copy to the host", 1}});
}

}  // namespace lathe::worker

#include "services/worker/testing/emulated_gpu/emulated_gpu.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/view_native.h>
#include <absl/strings/str_format.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "services/worker/testing/emulated_gpu/device_memory.h"
#include "services/worker/testing/emulated_gpu/gpu_operations.h"
#include "services/worker/testing/test_gpu.h"

namespace lathe::worker {
namespace {

const at::Device kGpu(at::kPrivateUse1, 0);

class GpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t num_bytes) override {
    void* const data = DeviceMemory::Get().Allocate(num_bytes);
    return {data, data, &Free, kGpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t num_bytes) const override {
    std::memcpy(HostOf(static_cast<char*>(to)), HostAddress(from), num_bytes);
  }

 private:
  static void Free(void* data) { DeviceMemory::Get().Free(data); }
};

struct GpuGuard final : c10::impl::NoOpDeviceGuardImpl<at::kPrivateUse1> {
  at::Device exchangeDevice(at::Device) const override { return kGpu; }
  at::Device getDevice() const override { return kGpu; }
};

struct Ledger {
  std::mutex mutex;
  DeviceLedger entries;
};

Ledger& GlobalLedger() {
  static auto* const ledger = new Ledger;
  return *ledger;
}

void Record(std::map<std::string, int64_t> DeviceLedger::*column, const std::string& name,
            int64_t num_bytes = 0) {
  Ledger& ledger = GlobalLedger();
  const std::lock_guard lock(ledger.mutex);
  ++(ledger.entries.*column)[name];
  if (num_bytes > 0) ledger.entries.bytes[name] += num_bytes;
  if (column == &DeviceLedger::launches) ++WorkOfThread().num_launches;
  if (column == &DeviceLedger::readbacks) ++WorkOfThread().num_readbacks;
}

bool IsOnGpu(const at::Tensor& x) { return x.defined() && x.device() == kGpu; }

// Returns the tensor's memory as a tensor of the host.
at::Tensor HostView(const at::Tensor& x) {
  const auto options = x.options().device(at::kCPU);
  if (x.numel() == 0) return at::empty_strided(x.sizes(), x.strides(), options);
  return at::from_blob(HostOf(static_cast<char*>(x.data_ptr())), x.sizes(), x.strides(), options);
}

at::Tensor EmptyStrided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                        std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                        std::optional<at::Device>, std::optional<bool>) {
  static auto* const allocator = c10::GetAllocator(at::kPrivateUse1);
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), allocator,
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype.value_or(at::kFloat));
}

at::Tensor Empty(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  static auto* const allocator = c10::GetAllocator(at::kPrivateUse1);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes), allocator,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   dtype.value_or(at::kFloat), format);
}

at::Tensor AsStrided(const at::Tensor& x, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                     std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      x, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
      offset.has_value() ? std::optional(offset->expect_int()) : std::nullopt);
}

at::Tensor View(const at::Tensor& x, c10::SymIntArrayRef sizes) {
  return at::native::view(x, C10_AS_INTARRAYREF_SLOW(sizes));
}

at::Tensor ReshapeAlias(const at::Tensor& x, c10::SymIntArrayRef sizes,
                        c10::SymIntArrayRef strides) {
  return at::native::_reshape_alias(x, C10_AS_INTARRAYREF_SLOW(sizes),
                                    C10_AS_INTARRAYREF_SLOW(strides));
}

at::Tensor& CopyOnto(at::Tensor& to, const at::Tensor& from, bool) {
  const bool is_from_gpu = IsOnGpu(from);
  if (!IsOnGpu(to)) {
    Record(&DeviceLedger::readbacks, "copy to the host");
  } else if (is_from_gpu) {
    RecordLaunch("copy_", TensorBytes(from) + TensorBytes(to));
  } else {
    Record(&DeviceLedger::uploads, c10::toString(to.scalar_type()));
  }
  at::Tensor host_to = IsOnGpu(to) ? HostView(to) : to;
  host_to.copy_(is_from_gpu ? HostView(from) : from);
  return to;
}

at::Scalar LocalScalar(const at::Tensor& x) {
  Record(&DeviceLedger::readbacks, "item");
  return at::native::_local_scalar_dense_cpu(HostView(x));
}

int64_t ChooseSdp(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                  const std::optional<at::Tensor>&, double, bool, std::optional<double>, bool) {
  return 0;  // by single operations
}

// Returns a tensor of the device with the contents of `host`.
at::Tensor ToGpu(const at::Tensor& host) {
  if (!host.defined()) return host;
  at::Tensor x = at::empty_strided(host.sizes(), host.strides(), host.options().device(kGpu));
  HostView(x).copy_(host);
  return x;
}

// Arguments and results of one operation, moved to the host and back.
class HostCall {
 public:
  HostCall(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op), stack_(stack), num_arguments_(op.schema().arguments().size()) {}

  void Run() {
    const size_t begin = stack_.size() - num_arguments_;
    arguments_.assign(stack_.begin() + static_cast<int64_t>(begin), stack_.end());
    for (size_t i = 0; i < num_arguments_; ++i) stack_[begin + i] = ToHost(arguments_[i]);
    if (!RunGpuOperation(op_, stack_)) op_.callBoxed(stack_);
    const auto& returns = op_.schema().returns();
    const size_t first = stack_.size() - returns.size();
    bool is_view = !returns.empty();
    for (size_t i = 0; i < returns.size(); ++i) {
      const auto* const alias = returns[i].alias_info();
      is_view = is_view && alias != nullptr && !alias->isWrite();
      stack_[first + i] = FromHost(returns[i], stack_[first + i]);
    }
    if (!is_view) Account();
  }

 private:
  c10::IValue ToHost(const c10::IValue& value) {
    if (value.isTensor()) return ToHost(value.toTensor());
    if (value.isDevice()) return at::Device(at::kCPU);
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& x : value.toTensorVector()) list.push_back(ToHost(x));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& x : value.toOptionalTensorVector()) {
        list.push_back(x.has_value() ? std::optional(ToHost(*x)) : std::nullopt);
      }
      return list;
    }
    return value;
  }

  at::Tensor ToHost(const at::Tensor& x) {
    if (!x.defined()) return x;
    if (IsOnGpu(x)) return HostView(x);
    TORCH_CHECK(x.dim() == 0, op_.schema().name(),
                " got tensors of the host and of the device, which a GPU refuses");
    return x;
  }

  c10::IValue FromHost(const c10::Argument& result, const c10::IValue& value) {
    const auto* const alias = result.alias_info();
    if (alias != nullptr) return FromAlias(*alias, value);
    if (value.isTensor()) return ToGpu(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& x : value.toTensorVector()) list.push_back(ToGpu(x));
      return list;
    }
    has_host_result_ = true;
    return value;
  }

  // Returns the argument that the operation wrote, or a view of it.
  c10::IValue FromAlias(const c10::AliasInfo& alias, const c10::IValue& value) {
    const auto& arguments = op_.schema().arguments();
    for (size_t i = 0; i < num_arguments_; ++i) {
      const auto* const own = arguments[i].alias_info();
      if (own == nullptr || own->beforeSets() != alias.beforeSets()) continue;
      if (!value.isTensor()) return arguments_[i];
      const at::Tensor& base = arguments_[i].toTensor();
      const at::Tensor& host = value.toTensor();
      if (!alias.isWrite()) {
        return at::native::as_strided_tensorimpl(base, host.sizes(), host.strides(),
                                                 base.storage_offset() + host.storage_offset());
      }
      if (base.sizes() != host.sizes()) ReplaceEmpty(base, host);
      return base;
    }
    TORCH_CHECK(false, op_.schema().name(), ": no argument that the result aliases");
  }

  // The operation was given an empty tensor, which it resized.
  void ReplaceEmpty(const at::Tensor& x, const at::Tensor& host) const {
    TORCH_CHECK(x.numel() == 0, op_.schema().name(), " resized an output that is not empty");
    const at::Tensor own = ToGpu(host);
    x.unsafeGetTensorImpl()->set_storage_keep_dtype(own.storage());
    x.unsafeGetTensorImpl()->set_sizes_and_strides(own.sizes(), own.strides());
  }

  // Calls `add` with each tensor that is or is in `value`.
  template <typename F>
  static void ForTensors(const c10::IValue& value, const F& add) {
    if (value.isTensor()) return add(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& x : value.toTensorVector()) add(x);
    } else if (value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& x : value.toOptionalTensorVector()) {
        if (x.has_value()) add(*x);
      }
    }
  }

  // Bytes that the operation reads and writes. The arguments are those of before the call, and the
  // stack has the results.
  int64_t NumBytes() const {
    // They read as many numbers of their first argument as they return.
    static constexpr std::string_view kGathers[] = {"aten::embedding", "aten::index_select",
                                                    "aten::index", "aten::gather"};
    static constexpr std::string_view kFills[] = {"aten::fill_", "aten::zero_"};
    const std::string& name = op_.schema().name();
    const auto is_in = [&](const auto& names) {
      return std::ranges::find(names, name) != std::end(names);
    };
    int64_t written = 0;
    for (size_t i = stack_.size() - op_.schema().returns().size(); i < stack_.size(); ++i) {
      ForTensors(stack_[i], [&](const at::Tensor& x) { written += TensorBytes(x); });
    }
    int64_t read = is_in(kGathers) ? written : 0;
    for (size_t i = is_in(kGathers) || is_in(kFills) ? 1 : 0; i < num_arguments_; ++i) {
      if (op_.schema().arguments()[i].is_out()) continue;
      ForTensors(arguments_[i], [&](const at::Tensor& x) { read += TensorBytes(x); });
    }
    return read + written;
  }

  void Account() const {
    static constexpr std::string_view kDynamicShapes[] = {
        "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::repeat_interleave"};
    const std::string& name = op_.schema().name();
    RecordLaunch(name.c_str() + std::string_view("aten::").size(), NumBytes());
    if (has_host_result_ || std::ranges::find(kDynamicShapes, name) != std::end(kDynamicShapes)) {
      Record(&DeviceLedger::readbacks, name);
    }
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  const size_t num_arguments_;
  std::vector<c10::IValue> arguments_;
  bool has_host_result_ = false;
};

void RunOnHost(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  HostCall(op, *stack).Run();
}

bool Register() {
  UseEmulatedKernels();
  // Tests' tensors are small, and threads would wait for each other at every operation.
  at::set_num_threads(1);
  static GpuAllocator allocator;
  c10::SetAllocator(at::kPrivateUse1, &allocator);
  static const GpuGuard guard;
  static const c10::impl::DeviceGuardImplRegistrar registrar(at::kPrivateUse1, &guard);
  constexpr auto kKey = c10::DispatchKey::PrivateUse1;
  static torch::Library aten(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  aten.impl("empty.memory_format", &Empty);
  aten.impl("empty_strided", &EmptyStrided);
  aten.impl("as_strided", &AsStrided);
  aten.impl("view", &View);
  aten.impl("_reshape_alias", &ReshapeAlias);
  aten.impl("copy_", &CopyOnto);
  aten.impl("_local_scalar_dense", &LocalScalar);
  aten.impl("_fused_sdp_choice", &ChooseSdp);
  static torch::Library all(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  all.fallback(torch::CppFunction::makeFromBoxedFunction<&RunOnHost>());
  return true;
}

int64_t SumOf(const std::map<std::string, int64_t>& column) {
  int64_t sum = 0;
  for (const auto& [name, count] : column) sum += count;
  return sum;
}

}  // namespace

at::Device EmulatedGpu() {
  static const bool is_registered = Register();
  TORCH_CHECK(is_registered, "no emulated GPU");
  return kGpu;
}

int64_t DeviceLedger::num_launches() const { return SumOf(launches); }
int64_t DeviceLedger::num_bytes() const { return SumOf(bytes); }
int64_t DeviceLedger::num_uploads() const { return SumOf(uploads); }
int64_t DeviceLedger::num_readbacks() const { return SumOf(readbacks); }

at::Device TestGpu() { return EmulatedGpu(); }

bool HasGpu() { return true; }

DeviceLedger TakeLedger() {
  Ledger& ledger = GlobalLedger();
  const std::lock_guard lock(ledger.mutex);
  return std::exchange(ledger.entries, {});
}

ThreadWork& WorkOfThread() {
  thread_local ThreadWork work;
  return work;
}

std::string Describe(const DeviceLedger& ledger) {
  std::string text;
  const auto add = [&](const char* what, const std::map<std::string, int64_t>& column) {
    std::vector<std::pair<std::string, int64_t>> lines(column.begin(), column.end());
    std::ranges::stable_sort(lines, [](auto& a, auto& b) { return a.second > b.second; });
    for (const auto& [name, count] : lines) {
      absl::StrAppendFormat(&text, "%8d %s %s\n", count, what, name);
    }
  };
  add("launches of", ledger.launches);
  add("uploads of", ledger.uploads);
  add("waits for", ledger.readbacks);
  add("bytes of", ledger.bytes);
  return text;
}

const void* HostAddress(const void* pointer) {
  return pointer == nullptr ? nullptr : DeviceMemory::Get().HostAddress(pointer);
}

int64_t TensorBytes(const at::Tensor& x) {
  if (!x.defined() || x.numel() == 0) return 0;
  int64_t count = 1;
  for (int64_t i = 0; i < x.dim(); ++i) {
    if (x.stride(i) != 0) count *= x.size(i);
  }
  return count * static_cast<int64_t>(x.element_size());
}

void RecordLaunch(const char* kernel, int64_t num_bytes) {
  Record(&DeviceLedger::launches, kernel, num_bytes);
}

}  // namespace lathe::worker

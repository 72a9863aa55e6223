// Hot path: every sum of a pass on CPU ranks runs here. No allocation per block.
#include "services/worker/collectives/collectives.h"

#include <algorithm>
#include <array>
#include <type_traits>

namespace lathe::worker {
namespace {

struct Sum {
  template <typename T>
  static T Of(T a, T b) {
    return a + b;
  }
};

struct Max {
  // Keeps a NaN, which differs from itself.
  template <typename T>
  static T Of(T a, T b) {
    return a > b || a != a ? a : b;  // NOLINT(misc-redundant-expression)
  }
};

// Works in blocks, so that `out` may be one of the parts and the inner loops stay simple.
template <typename Reduction, typename T>
void Reduce(const std::vector<at::Tensor>& parts, at::Tensor& out) {
  using Wide = std::conditional_t<std::is_same_v<T, at::BFloat16>, float, T>;
  constexpr int64_t kBlock = 1024;
  std::array<Wide, kBlock> block;
  T* target = out.data_ptr<T>();
  for (int64_t begin = 0; begin < out.numel(); begin += kBlock) {
    const int64_t size = std::min(kBlock, out.numel() - begin);
    const T* first = parts[0].const_data_ptr<T>() + begin;
    for (int64_t i = 0; i < size; ++i) block[i] = static_cast<Wide>(first[i]);
    for (size_t part = 1; part < parts.size(); ++part) {
      const T* next = parts[part].const_data_ptr<T>() + begin;
      for (int64_t i = 0; i < size; ++i) {
        block[i] = Reduction::Of(block[i], static_cast<Wide>(next[i]));
      }
    }
    for (int64_t i = 0; i < size; ++i) target[begin + i] = static_cast<T>(block[i]);
  }
}

template <typename Reduction>
void ReduceAny(const std::vector<at::Tensor>& parts, at::Tensor& out) {
  switch (out.scalar_type()) {
    case at::kFloat:
      return Reduce<Reduction, float>(parts, out);
    case at::kBFloat16:
      return Reduce<Reduction, at::BFloat16>(parts, out);
    case at::kDouble:
      return Reduce<Reduction, double>(parts, out);
    case at::kLong:
      return Reduce<Reduction, int64_t>(parts, out);
    default:
      TORCH_CHECK(false, "cannot reduce ", out.scalar_type());
  }
}

}  // namespace

void ReduceInRankOrder(CollectiveKind kind, const std::vector<at::Tensor>& parts, at::Tensor& out) {
  if (kind == CollectiveKind::kAllReduceMax) {
    ReduceAny<Max>(parts, out);
  } else {
    ReduceAny<Sum>(parts, out);
  }
}

}  // namespace lathe::worker

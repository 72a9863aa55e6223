// Attention in bf16 for CPUs without AVX512-BF16; see kPlainBf16.
#include "services/worker/kernels/cpu/attention/attention_arithmetic.h"
#include "services/worker/kernels/cpu/attention/attention_backward.h"
#include "services/worker/kernels/cpu/attention/attention_forward.h"
#include "services/worker/kernels/cpu/attention/attention_variants.h"

namespace lathe::worker::attention {
namespace {

// Bf16 of attention_bf16.h without its instructions.
struct PlainBf16 {
  using Element = int32_t;
  typedef int32_t Elements __attribute__((vector_size(16)));
  typedef float Sums __attribute__((vector_size(16)));
  static constexpr int kWidth = 4;
  static constexpr int kVectors = 1;
  static constexpr int64_t kNumbers = 2;

  template <typename V>
  using WordsOf = std::conditional_t<sizeof(V) == sizeof(Elements), Elements, Words>;

  static LATHE_INLINE void AddProduct(int32_t a, const Elements& b, Sums& sums) {
    constexpr auto kHigh = static_cast<int32_t>(0xffff0000);
    const Elements both = Elements{} + a;
    sums += (Sums)(both << 16) * (Sums)(b << 16) + (Sums)(both & kHigh) * (Sums)(b & kHigh);
  }

  static LATHE_INLINE int32_t Word(float low, float high) {
    const auto rounded = [](float x) LATHE_INLINE_LAMBDA {
      uint32_t bits;
      std::memcpy(&bits, &x, sizeof(bits));
      return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    };
    return static_cast<int32_t>(rounded(high) << 16 | rounded(low));
  }

  template <typename V>
  static LATHE_INLINE WordsOf<V> Along(const V (&numbers)[kNumbers]) {
    constexpr int kSize = sizeof(V) / sizeof(float);
    WordsOf<V> words = {};
    for (int i = 0; i < kSize; ++i) {
      const V& half = numbers[2 * i / kSize];
      words[i] = Word(half[2 * i % kSize], half[2 * i % kSize + 1]);
    }
    return words;
  }

  static LATHE_INLINE Words Across(const Lanes (&numbers)[kNumbers]) {
    Words words = {};
    for (int i = 0; i < kLanes; ++i) words[i] = Word(numbers[0][i], numbers[1][i]);
    return words;
  }

  static LATHE_INLINE Scales ScalesOf(float scale) {
    return {.query = 1.0f, .score = scale * kLog2E, .key = 1.0f, .dq = scale, .dk = scale};
  }
};

}  // namespace

const Variant kPlainBf16 = {"bf16 by plain operations", AttendRows<PlainBf16>,
                            /*attend_members=*/nullptr, BackwardPart<PlainBf16>};

}  // namespace lathe::worker::attention

// Hot: every byte of a sampler version that is loaded passes here.
#include "services/worker/checkpoint/sha256_each.h"

#include "services/worker/checkpoint/sha256.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "absl/strings/escaping.h"
#endif

namespace lathe::worker {
namespace {

std::string Sha256One(const Message& message) {
  Sha256 hash;
  hash.Update(message.data, message.num_bytes);
  return hash.HexDigest();
}

#if defined(__x86_64__)

constexpr size_t kBlockBytes = 64;

// FIPS 180-4, section 4.2.2.
alignas(16) constexpr std::array<uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

bool CpuHasSha() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (ebx & (1U << 29)) != 0 && __builtin_cpu_supports("sse4.1");
}

// One message on its way; what is left of it begins at `next`.
struct Lane {
  size_t index = 0;  // of the message
  const uint8_t* next = nullptr;
  size_t num_blocks = 0;  // whole ones at `next`
  // The end of the message and its padding, one or two blocks.
  std::array<uint8_t, 2 * kBlockBytes> tail = {};
  size_t num_tail_blocks = 0;
  // The words a … h of the state as the instructions want them.
  std::array<uint32_t, 4> abef = {0x9b05688c, 0x510e527f, 0xbb67ae85, 0x6a09e667};
  std::array<uint32_t, 4> cdgh = {0x5be0cd19, 0x1f83d9ab, 0xa54ff53a, 0x3c6ef372};
};

Lane Begin(size_t index, const Message& message) {
  Lane lane;
  lane.index = index;
  lane.next = static_cast<const uint8_t*>(message.data);
  lane.num_blocks = message.num_bytes / kBlockBytes;
  const size_t rest = message.num_bytes % kBlockBytes;
  if (rest > 0) std::memcpy(lane.tail.data(), lane.next + lane.num_blocks * kBlockBytes, rest);
  lane.tail[rest] = 0x80;
  lane.num_tail_blocks = rest + 9 <= kBlockBytes ? 1 : 2;
  const uint64_t num_bits = uint64_t{message.num_bytes} * 8;
  for (size_t i = 0; i < 8; ++i) {
    lane.tail[lane.num_tail_blocks * kBlockBytes - 1 - i] =
        static_cast<uint8_t>(num_bits >> (8 * i));
  }
  return lane;
}

// The same number of blocks of each lane.
template <size_t kLanes>
__attribute__((target("sha,sse4.1"))) void HashBlocks(std::array<Lane*, kLanes> lanes,
                                                      size_t num_blocks) {
  const __m128i to_big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i abef[kLanes], cdgh[kLanes], w[kLanes][4];
  for (size_t l = 0; l < kLanes; ++l) {
    abef[l] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lanes[l]->abef.data()));
    cdgh[l] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lanes[l]->cdgh.data()));
  }
  for (size_t block = 0; block < num_blocks; ++block) {
    __m128i abef_before[kLanes], cdgh_before[kLanes];
#pragma GCC unroll 2
    for (size_t l = 0; l < kLanes; ++l) {
      abef_before[l] = abef[l];
      cdgh_before[l] = cdgh[l];
      const auto* const words =
          reinterpret_cast<const __m128i*>(lanes[l]->next + block * kBlockBytes);
      for (size_t i = 0; i < 4; ++i) {
        w[l][i] = _mm_shuffle_epi8(_mm_loadu_si128(words + i), to_big_endian);
      }
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; ++i) {  // four rounds each
      const __m128i k =
          _mm_load_si128(reinterpret_cast<const __m128i*>(kRoundConstants.data() + 4 * i));
#pragma GCC unroll 2
      for (size_t l = 0; l < kLanes; ++l) {
        __m128i wk = _mm_add_epi32(w[l][i % 4], k);
        cdgh[l] = _mm_sha256rnds2_epu32(cdgh[l], abef[l], wk);
        wk = _mm_shuffle_epi32(wk, 0x0E);
        abef[l] = _mm_sha256rnds2_epu32(abef[l], cdgh[l], wk);
        if (i >= 12) continue;
        const __m128i w7 = _mm_alignr_epi8(w[l][(i + 3) % 4], w[l][(i + 2) % 4], 4);
        const __m128i next =
            _mm_add_epi32(_mm_sha256msg1_epu32(w[l][i % 4], w[l][(i + 1) % 4]), w7);
        w[l][i % 4] = _mm_sha256msg2_epu32(next, w[l][(i + 3) % 4]);
      }
    }
#pragma GCC unroll 2
    for (size_t l = 0; l < kLanes; ++l) {
      abef[l] = _mm_add_epi32(abef[l], abef_before[l]);
      cdgh[l] = _mm_add_epi32(cdgh[l], cdgh_before[l]);
    }
  }
  for (size_t l = 0; l < kLanes; ++l) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes[l]->abef.data()), abef[l]);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes[l]->cdgh.data()), cdgh[l]);
    lanes[l]->next += num_blocks * kBlockBytes;
    lanes[l]->num_blocks -= num_blocks;
  }
}

std::string Finish(Lane& lane) {
  lane.next = lane.tail.data();
  lane.num_blocks = lane.num_tail_blocks;
  HashBlocks<1>({&lane}, lane.num_tail_blocks);
  const std::array<uint32_t, 8> words = {lane.abef[3], lane.abef[2], lane.cdgh[3], lane.cdgh[2],
                                         lane.abef[1], lane.abef[0], lane.cdgh[1], lane.cdgh[0]};
  std::string digest;
  for (const uint32_t word : words) {
    for (int shift = 24; shift >= 0; shift -= 8) digest.push_back(static_cast<char>(word >> shift));
  }
  return absl::BytesToHexString(digest);
}

std::vector<std::string> Sha256SideBySide(const std::vector<Message>& messages) {
  std::vector<std::string> digests(messages.size());
  std::vector<Lane> running;  // at most two
  size_t next = 0;
  while (next < messages.size() || !running.empty()) {
    if (next < messages.size() && running.size() < 2) {
      running.push_back(Begin(next, messages[next]));
      ++next;
      continue;
    }
    if (running.size() == 2) {
      HashBlocks<2>({&running[0], &running[1]},
                    std::min(running[0].num_blocks, running[1].num_blocks));
    } else {
      HashBlocks<1>({&running[0]}, running[0].num_blocks);
    }
    for (size_t l = running.size(); l-- > 0;) {
      if (running[l].num_blocks > 0) continue;
      digests[running[l].index] = Finish(running[l]);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(l));
    }
  }
  return digests;
}

#endif

std::vector<std::string> Sha256OneByOne(const std::vector<Message>& messages) {
  std::vector<std::string> digests;
  for (const Message& message : messages) digests.push_back(Sha256One(message));
  return digests;
}

}  // namespace

std::vector<std::string> Sha256Each(const std::vector<Message>& messages) {
#if defined(__x86_64__)
  static const bool has_sha = CpuHasSha();
  if (has_sha) return Sha256SideBySide(messages);
#endif
  return Sha256OneByOne(messages);
}

}  // namespace lathe::worker

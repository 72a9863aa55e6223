#include "services/api-gateway/http/zstd.h"

#include <zstd.h>

#include <catch2/catch.hpp>

#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

constexpr int64_t kLimit = int64_t{512} << 20;

std::string Compress(const std::string& text, int window_log = 0) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  if (window_log > 0) ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  std::string result(ZSTD_compressBound(text.size()), '\0');
  ZSTD_inBuffer input{text.data(), text.size(), 0};
  ZSTD_outBuffer output{result.data(), result.size(), 0};
  while (ZSTD_compressStream2(context, &output, &input, ZSTD_e_end) != 0) {
  }
  result.resize(output.pos);
  ZSTD_freeCCtx(context);
  return result;
}

std::string Word(const absl::StatusOr<std::string>& result) { return ErrorCode(result.status()); }

TEST_CASE("A zstd frame inflates to the bytes that were compressed", "[http]") {
  const size_t size = GENERATE(0, 1, 1000, (1 << 20) - 1, 1 << 20, 5'000'000);
  std::string text(size, 'x');
  for (size_t i = 0; i < size; i += 7) text[i] = static_cast<char>(i * i);
  const auto inflated = InflateZstd(Compress(text), {.max_bytes = kLimit});
  REQUIRE(inflated.ok());
  CHECK(*inflated == text);
}

TEST_CASE("A body that inflates to the limit passes and one byte more does not", "[http]") {
  std::string text(100'000, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 + i / 255);
  CHECK(InflateZstd(Compress(text), {.max_bytes = 100'000}).ok());
  CHECK(Word(InflateZstd(Compress(text), {.max_bytes = 99'999})) == "decompressed_too_large");
}

TEST_CASE("A bomb is stopped by its ratio before the absolute limit", "[http]") {
  const std::string bomb = Compress(std::string(2 << 20, '\0'));
  REQUIRE(bomb.size() < 5'000);
  CHECK(Word(InflateZstd(bomb, {.max_bytes = kLimit})) == "decompressed_too_large");
  CHECK(InflateZstd(bomb, {.max_bytes = kLimit, .free_bytes = 2 << 20}).ok());
  CHECK(InflateZstd(Compress(std::string(1 << 20, '\0')), {.max_bytes = kLimit}).ok());
}

TEST_CASE("A window over 8 MiB is refused", "[http]") {
  std::string text(20 << 20, 'x');
  for (size_t i = 0; i < text.size(); i += 3) text[i] = static_cast<char>(i * i >> 4);
  const InflateLimits limits{.max_bytes = kLimit, .free_bytes = kLimit};
  CHECK(InflateZstd(Compress(text, 23), limits).ok());
  CHECK(Word(InflateZstd(Compress(text, 24), limits)) == "zstd_window");
}

TEST_CASE("Truncated, damaged and overlong zstd bodies are refused with the place", "[http]") {
  const std::string good = Compress("hello hello hello hello");
  const auto trailing = InflateZstd(good + "xyz", {.max_bytes = kLimit});
  CHECK(Word(trailing) == "bad_compression");
  CHECK(std::string(trailing.status().message()).find("byte " + std::to_string(good.size())) !=
        std::string::npos);
  std::string lying(ZSTD_compressBound(5'000'000), '\0');
  lying.resize(
      ZSTD_compress(lying.data(), lying.size(), std::string(5'000'000, 'x').data(), 5'000'000, 3));
  lying.replace(6, 4, std::string("\1\1\0\0", 4));  // the size in the frame's header
  CHECK(std::string(
            InflateZstd(lying, {.max_bytes = kLimit, .free_bytes = kLimit}).status().message())
            .find("longer than the frame declares") != std::string::npos);
  CHECK(Word(InflateZstd(good.substr(0, good.size() - 1), {.max_bytes = kLimit})) ==
        "bad_compression");
  CHECK(Word(InflateZstd("not zstd at all", {.max_bytes = kLimit})) == "bad_compression");
  CHECK(Word(InflateZstd("", {.max_bytes = kLimit})) == "bad_compression");
}

}  // namespace
}  // namespace lathe::gateway

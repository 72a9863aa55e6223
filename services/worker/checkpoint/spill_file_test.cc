#include "services/worker/checkpoint/spill_file.h"

#include <signal.h>
#include <sys/resource.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

using Extent = std::shared_ptr<const SpillFile::Extent>;

Extent Spill(SpillFile& file, const std::string& text) {
  auto extent = file.Write(text.data(), static_cast<int64_t>(text.size()));
  REQUIRE(extent.ok());
  return *std::move(extent);
}

std::string ReadBack(const Extent& extent) {
  std::string text(extent->num_bytes(), '\0');
  REQUIRE(extent->Read(text.data()).ok());
  return text;
}

TEST_CASE("Spill file: written bytes are read back, and the folder stays empty", "[spill]") {
  const TempDir dir;
  Extent one;
  {
    SpillFile file(dir / "made/when/needed");
    one = Spill(file, "one");
    const Extent none = Spill(file, "");
    CHECK(ReadBack(none).empty());
  }
  CHECK(ReadBack(one) == "one");
  CHECK(std::filesystem::is_empty(dir / "made/when/needed"));
}

TEST_CASE("Spill file: random spills and drops keep their bytes, and space is used again",
          "[spill]") {
  const TempDir dir;
  SpillFile file(dir.path());
  const unsigned seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::pair<Extent, std::string>> live;
  for (int round = 0; round < 2000; ++round) {
    if (live.size() == 8) {
      const size_t index = random() % live.size();
      REQUIRE(ReadBack(live[index].first) == live[index].second);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
    }
    std::string text(1 + random() % 1000, static_cast<char>('a' + round % 26));
    Extent extent = Spill(file, text);
    live.emplace_back(std::move(extent), std::move(text));
  }
  for (const auto& [extent, text] : live) CHECK(ReadBack(extent) == text);
  CHECK(file.size_bytes() < 40'000);
  live.clear();
  const Extent all = Spill(file, std::string(file.size_bytes(), 'x'));
  CHECK(file.size_bytes() == all->num_bytes());
}

TEST_CASE("Spill file: a full disk is reported, and earlier content stays", "[spill]") {
  const TempDir dir;
  SpillFile file(dir.path());
  const Extent kept = Spill(file, "kept");
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string large(5000, 'x');
  const auto refused = file.Write(large.data(), static_cast<int64_t>(large.size()));
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(refused.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(ReadBack(kept) == "kept");
  // The space of the failed write is free again.
  Spill(file, large);
  CHECK(file.size_bytes() == 5004);
}

}  // namespace
}  // namespace lathe::worker

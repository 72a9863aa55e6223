#include "libs/common/object_store/checkpoint_cache.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/object_store/directory_store.h"

namespace lathe {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFileBytes = 1000;

// A store that says when a file of a checkpoint is fetched.
class WatchedStore : public DirectoryStore {
 public:
  using DirectoryStore::DirectoryStore;
  absl::Status GetFile(const std::string& name, int64_t size, const fs::path& file) override {
    if (on_get) on_get(name);
    return DirectoryStore::GetFile(name, size, file);
  }
  std::function<void(const std::string& name)> on_get;
};

struct CacheFixture {
  CacheFixture() {
    std::string name = (fs::temp_directory_path() / "cache.XXXXXX").string();
    root = mkdtemp(name.data());
    store = std::make_shared<WatchedStore>(root / "store");
    objects = std::make_shared<CheckpointObjects>(store);
    REQUIRE(objects->Claim("id").ok());
  }
  ~CacheFixture() { fs::remove_all(root); }

  void Publish(const std::string& dir, const std::string& bytes) {
    const fs::path folder = root / "made" / dir;
    fs::create_directories(folder);
    std::ofstream(folder / "weights") << bytes;
    std::ofstream(folder / "manifest.json")
        << absl::StrFormat(R"({"files":[{"name":"weights","size_bytes":%d,"sha256":"%s"}]})",
                           bytes.size(), Sha256Hex(bytes));
    const absl::Status status = objects->Publish(dir, folder);
    INFO(status);
    REQUIRE(status.ok());
  }
  CheckpointCache Cache(int64_t max_bytes = 1 << 20) {
    return CheckpointCache(objects, root / "cache", max_bytes);
  }
  bool IsCached(const std::string& dir) const { return fs::exists(root / "cache" / dir); }

  fs::path root;
  std::shared_ptr<WatchedStore> store;
  std::shared_ptr<CheckpointObjects> objects;
};

std::string WeightsOf(const CheckpointCache::Pin& pin) {
  std::string text;
  std::ifstream(pin.path() / "weights") >> text;
  return text;
}

TEST_CASE("A copy is fetched once and stays without the store", "[object_store]") {
  CacheFixture f;
  f.Publish("c1", "bytes");
  CheckpointCache cache = f.Cache();
  REQUIRE(cache.Open("c1").ok());
  CHECK(absl::IsNotFound(cache.Open("c2").status()));
  fs::remove_all(f.root / "store");
  const auto pin = cache.Open("c1");
  REQUIRE(pin.ok());
  CHECK(WeightsOf(*pin) == "bytes");
  CHECK(absl::IsUnavailable(cache.Open("c2").status()));  // another place, or none
  CHECK(fs::is_empty(f.root / "cache" / "tmp"));
}

TEST_CASE("What was used least recently goes, unless it is pinned", "[object_store]") {
  CacheFixture f;
  const std::string bytes(kFileBytes, 'x');
  for (const char* dir : {"c1", "c2", "c3", "c4"}) f.Publish(dir, bytes);
  CheckpointCache cache = f.Cache(3 * kFileBytes);  // manifests count too: two copies fit
  const auto pinned = cache.Open("c1");
  REQUIRE(pinned.ok());
  REQUIRE(cache.Open("c2").ok());
  REQUIRE(cache.Open("c3").ok());
  CHECK(f.IsCached("c1"));
  CHECK_FALSE(f.IsCached("c2"));
  CHECK(f.IsCached("c3"));
  REQUIRE(cache.Open("c4").ok());
  CHECK(f.IsCached("c1"));
  CHECK_FALSE(f.IsCached("c3"));
  CHECK(f.IsCached("c4"));
}

TEST_CASE("Room is made before a copy is fetched, not after", "[object_store]") {
  CacheFixture f;
  for (const char* dir : {"c1", "c2"}) f.Publish(dir, std::string(kFileBytes, 'x'));
  CheckpointCache cache = f.Cache(3 * kFileBytes / 2);  // one copy fits
  REQUIRE(cache.Open("c1").ok());
  int num_fetched = 0;
  f.store->on_get = [&](const std::string&) {
    ++num_fetched;
    CHECK_FALSE(f.IsCached("c1"));
  };
  REQUIRE(cache.Open("c2").ok());
  CHECK(num_fetched == 1);
}

TEST_CASE("A damaged copy is dropped though others have it pinned, and its successor is not",
          "[object_store]") {
  CacheFixture f;
  f.Publish("c1", "bytes");
  CheckpointCache cache = f.Cache();
  const auto one = cache.Open("c1");
  const auto other = cache.Open("c1");
  REQUIRE((one.ok() && other.ok()));
  std::ofstream(one->path() / "weights") << "BYTES";
  CHECK(cache.Drop(*one).ok());
  const auto successor = cache.Open("c1");
  REQUIRE(successor.ok());
  CHECK(WeightsOf(*successor) == "bytes");
  CHECK(cache.Drop(*other).ok());  // its reader saw the damage, too
  CHECK(successor->is_current());
  CHECK_FALSE(other->is_current());
}

TEST_CASE("A reader that waits for another's fetch counts that as progress", "[object_store]") {
  CacheFixture f;
  f.Publish("c1", "bytes");
  CheckpointCache fetching = f.Cache();
  CheckpointCache waiting = f.Cache();
  std::thread waiter;
  bool has_waited = false;
  f.store->on_get = [&](const std::string&) {
    waiter = std::thread([&] { has_waited = waiting.Open("c1").ok(); });
    while (waiting.progress() < 3) std::this_thread::yield();
  };
  CHECK(fetching.Open("c1").ok());
  waiter.join();
  CHECK(has_waited);
  CHECK(fs::is_empty(f.root / "cache" / "locks"));
}

TEST_CASE("A fetch waits for no other checkpoint's", "[object_store]") {
  CacheFixture f;
  std::vector<std::string> dirs;
  for (int i = 0; i < 100; ++i) dirs.push_back(absl::StrFormat("c%d", i));
  for (const std::string& dir : dirs) f.Publish(dir, "bytes");
  CheckpointCache cache = f.Cache();
  // All others are fetched while the first one is.
  f.store->on_get = [&](const std::string& name) {
    if (!absl::StrContains(name, "/c0/")) return;
    for (const std::string& dir : dirs) {
      if (dir != "c0") CHECK(cache.Open(dir).ok());
    }
  };
  CHECK(cache.Open("c0").ok());
}

TEST_CASE("A copy larger than the bound serves its reader", "[object_store]") {
  CacheFixture f;
  f.Publish("c1", std::string(kFileBytes, 'x'));
  CheckpointCache cache = f.Cache(/*max_bytes=*/1);
  CHECK(cache.Open("c1").ok());
  CHECK(cache.Open("c1").ok());
}

TEST_CASE("In a place that no engine has claimed, no checkpoint counts as missing",
          "[object_store]") {
  CacheFixture f;
  CheckpointCache cache(
      std::make_shared<CheckpointObjects>(std::make_shared<DirectoryStore>(f.root / "typo")),
      f.root / "cache", 1 << 20);
  CHECK(absl::IsUnavailable(cache.Open("c1").status()));
}

TEST_CASE("Nothing is published in a place that became another's", "[object_store]") {
  CacheFixture f;
  const bool has_published = GENERATE(false, true);
  f.Publish("c1", "bytes");
  const auto uploads = std::make_shared<CheckpointObjects>(f.store, f.objects.get());
  if (has_published) CHECK(uploads->Publish("c1", f.root / "made" / "c1").ok());
  REQUIRE(f.store->PutText("LATHE_STORE", "other\n").ok());
  CHECK(absl::IsInternal(uploads->Publish("c2", f.root / "made" / "c1")));
  CHECK(f.objects->ListDirs().value() == std::vector<std::string>{"c1"});
  CHECK(absl::IsUnavailable(f.Cache().Open("c1").status()));  // what uploads saw counts here, too
}

TEST_CASE("A manifest that no client could read is not published", "[object_store]") {
  CacheFixture f;
  const fs::path folder = f.root / "made" / "c1";
  fs::create_directories(folder);
  std::ofstream(folder / "manifest.json") << R"({"files":[]})" << std::string(17 << 20, ' ');
  const absl::Status status = f.objects->Publish("c1", folder);
  CHECK(absl::IsInternal(status));
  CHECK(absl::StrContains(status.message(), "manifest.json has 17825804 bytes"));
  CHECK(f.objects->ListDirs()->empty());
}

TEST_CASE("A damaged store gives no copy", "[object_store]") {
  CacheFixture f;
  f.Publish("c1", "bytes");
  std::ofstream(f.root / "store/checkpoints/c1/weights") << "BYTES";
  CheckpointCache cache = f.Cache();
  CHECK(absl::IsDataLoss(cache.Open("c1").status()));
  fs::remove(f.root / "store/checkpoints/c1/weights");
  CHECK(absl::IsDataLoss(cache.Open("c1").status()));
  CHECK_FALSE(f.IsCached("c1"));
}

TEST_CASE("A folder without a manifest is fetched again", "[object_store]") {
  CacheFixture f;
  f.Publish("c1", "bytes");
  fs::create_directories(f.root / "cache" / "c1");
  CheckpointCache cache = f.Cache();
  REQUIRE(cache.Open("c1").ok());
  CHECK(fs::exists(f.root / "cache" / "c1" / "weights"));
}

TEST_CASE("Readers at the same time get the same copy", "[object_store]") {
  CacheFixture f;
  for (int i = 0; i < 8; ++i)
    f.Publish(absl::StrFormat("c%d", i), std::string(kFileBytes, 'a' + i));
  CheckpointCache cache = f.Cache(4 * kFileBytes);
  std::atomic<int> num_wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const int number = (i * 3 + t) % 8;
        const auto pin = cache.Open(absl::StrFormat("c%d", number));
        if (!pin.ok()) {
          if (!absl::IsUnavailable(pin.status())) ++num_wrong;
          continue;
        }
        if (WeightsOf(*pin) != std::string(kFileBytes, 'a' + number)) ++num_wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(num_wrong == 0);
}

TEST_CASE("A place has one owner, and a checkpoint one content", "[object_store]") {
  CacheFixture f;
  CHECK(f.objects->Claim("id").ok());
  CHECK(absl::IsFailedPrecondition(f.objects->Claim("other")));
  f.Publish("c1", "bytes");
  f.Publish("c1", "bytes");
  const fs::path folder = f.root / "made" / "c1";
  std::ofstream(folder / "manifest.json") << R"({"files":[]})";
  CHECK(absl::IsInternal(f.objects->Publish("c1", folder)));
  CHECK(absl::StrContains(*f.objects->ReadText("c1", "manifest.json"), "weights"));
  // Its owner may put the marker back. So a save may work later.
  fs::remove(f.root / "store" / "LATHE_STORE");
  CHECK(absl::IsUnavailable(f.objects->Publish("c1", folder)));
}

}  // namespace
}  // namespace lathe

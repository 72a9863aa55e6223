#include "services/engine/batcher/sample_window.h"

#include <catch2/catch.hpp>
#include <string>

namespace lathe::engine {
namespace {

TEST_CASE("SampleWindow: a quarter more sequences than the worker runs", "[batcher]") {
  SampleWindow window(2048);
  window.SetRunning(8, 1);
  for (int i = 0; i < 10; ++i) {
    CHECK(window.HasRoomFor("a"));
    window.Add(std::to_string(i), "a", 1);
  }
  CHECK_FALSE(window.HasRoomFor("a"));
  window.Remove("3");
  window.Remove("unknown");
  CHECK(window.HasRoomFor("a"));
}

TEST_CASE("SampleWindow: one more than the worker runs, if a quarter is less", "[batcher]") {
  SampleWindow window(2048);
  window.SetRunning(1, 1);
  window.Add("r", "a", 1);
  CHECK(window.HasRoomFor("a"));
  window.Add("s", "a", 1);
  CHECK_FALSE(window.HasRoomFor("a"));
}

TEST_CASE("SampleWindow: a worker that reports no number has the number of the options",
          "[batcher]") {
  SampleWindow window(6);
  window.SetRunning(1, 1);
  window.SetRunning(0, 1);
  window.Add("r", "a", 5);
  CHECK(window.HasRoomFor("a"));
  window.Add("s", "a", 1);
  CHECK_FALSE(window.HasRoomFor("a"));
}

TEST_CASE("SampleWindow: sequences leave it as they end, each once", "[batcher]") {
  SampleWindow window(4);
  window.Add("r", "a", 6);
  window.SetEnded("unknown", 3);
  window.SetEnded("r", 2);
  CHECK(window.num_sequences() == 4);
  window.SetEnded("r", 2);
  window.SetEnded("r", 1);  // an earlier report
  window.SetEnded("r", -1);
  CHECK(window.num_sequences() == 4);
  CHECK_FALSE(window.HasRoomFor("a"));
  window.SetEnded("r", 3);
  CHECK(window.HasRoomFor("a"));
  window.SetEnded("r", 100);
  CHECK(window.num_sequences() == 0);
  window.Add("r", "a", 6);  // it is there already
  CHECK(window.num_sequences() == 0);
  window.Remove("r");
  window.SetEnded("r", 6);
  CHECK(window.num_sequences() == 0);
  window.Add("r", "a", 6);  // sent again later, it begins anew
  CHECK(window.num_sequences() == 6);
}

TEST_CASE("SampleWindow: a large request holds up its tenant and no other", "[batcher]") {
  SampleWindow window(8);
  window.Add("large", "a", 1000);
  CHECK_FALSE(window.HasRoomFor("a"));
  for (int i = 0; i < 4; ++i) {
    CHECK(window.HasRoomFor("b"));
    window.Add("b" + std::to_string(i), "b", 1);
  }
  CHECK_FALSE(window.HasRoomFor("b"));  // half of the limit
  CHECK(window.HasRoomFor("c"));
  window.Add("c", "c", 1000);
  CHECK_FALSE(window.HasRoomFor("c"));
  CHECK_FALSE(window.IsFull());
  window.Remove("large");
  window.Remove("c");
  CHECK(window.HasRoomFor("b"));
}

TEST_CASE("SampleWindow: more tenants than the limit share nothing beyond it", "[batcher]") {
  SampleWindow window(3);
  for (const char* tenant : {"a", "b", "c"}) window.Add(tenant, tenant, 2);
  CHECK_FALSE(window.HasRoomFor("a"));
  CHECK_FALSE(window.HasRoomFor("d"));
  window.Clear();
  int num_sent = 0;
  for (const char* tenant : {"a", "b", "c", "d", "e"}) {
    if (!window.HasRoomFor(tenant)) continue;
    window.Add(tenant, tenant, 1000);
    ++num_sent;
  }
  CHECK(num_sent == 3);
  CHECK(window.IsFull());
  window.Remove("a");
  CHECK_FALSE(window.IsFull());
  CHECK(window.HasRoomFor("e"));
}

TEST_CASE("SampleWindow: a request that one replica runs leaves room for the others", "[batcher]") {
  SampleWindow window(3);
  window.SetRunning(32, 4);  // 40 in all, 10 of each replica
  for (const char* request : {"1", "2", "3", "4"}) {
    CHECK(window.HasRoomFor("a"));
    window.Add(request, "a", 1000);
  }
  CHECK_FALSE(window.HasRoomFor("a"));
  window.SetEnded("1", 990);
  CHECK_FALSE(window.HasRoomFor("a"));
  window.SetEnded("1", 991);
  CHECK(window.HasRoomFor("a"));
  window.SetRunning(32, 1);  // another worker
  CHECK(window.num_sequences() == 9 + 3 * 40);
  for (const char* request : {"1", "2", "3", "4"}) window.Remove(request);
  CHECK(window.num_sequences() == 0);
}

}  // namespace
}  // namespace lathe::engine

#include "services/worker/sampling/start_order.h"

#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace lathe::worker {
namespace {

// Requests of an order, whose samples start when a test says so.
class Requests {
 public:
  ActiveRequest* Add(const std::string& tenant, const std::string& version, int64_t num_samples) {
    auto request = std::make_unique<ActiveRequest>();
    request->request.request_id = tenant + version + std::to_string(all_.size());
    request->request.tenant_id = tenant;
    request->request.version_id = version;
    request->request.num_samples = num_samples;
    order.Add(request.get());
    all_.push_back(std::move(request));
    return all_.back().get();
  }

  // Starts the next `count` samples and returns the names of their requests.
  std::vector<std::string> Start(int count) {
    std::vector<std::string> names;
    StartOrder::Walk walk(order);
    while (count-- > 0) {
      ActiveRequest* const request = walk.Next();
      if (request == nullptr) break;
      order.Start(request);
      walk.Take();
      names.push_back(request->request.request_id);
    }
    return names;
  }

  void End(ActiveRequest* request) {
    order.End(request);
    ++request->num_finished;
  }

  StartOrder order;

 private:
  std::vector<std::unique_ptr<ActiveRequest>> all_;
};

using Names = std::vector<std::string>;

TEST_CASE("StartOrder: a newcomer is next, then tenants share the rows", "[sampling]") {
  Requests r;
  ActiveRequest* const first = r.Add("a", "m", 100);
  CHECK(r.Start(4) == Names(4, "am0"));
  r.Add("b", "m", 100);
  CHECK(r.Start(5) == Names{"bm1", "bm1", "bm1", "bm1", "am0"});
  r.End(first);
  r.End(first);
  CHECK(r.Start(3) == Names{"am0", "bm1", "am0"});
}

TEST_CASE("StartOrder: a tenant's versions share its rows, however many they are", "[sampling]") {
  Requests r;
  r.Add("a", "m", 100);
  r.Add("a", "n", 100);
  r.Add("b", "m", 100);
  CHECK(r.Start(8) == Names{"am0", "bm2", "an1", "bm2", "am0", "bm2", "an1", "bm2"});
}

TEST_CASE("StartOrder: requests of a version start in order of arrival", "[sampling]") {
  Requests r;
  r.Add("a", "m", 2);
  r.Add("a", "m", 1);
  CHECK_FALSE(r.order.empty());
  CHECK(r.Start(9) == Names{"am0", "am0", "am1"});
  CHECK(r.order.empty());
}

TEST_CASE("StartOrder: more tenants than rows take turns, also those that come back",
          "[sampling]") {
  Requests r;
  std::vector<ActiveRequest*> requests;
  for (const char* tenant : {"a", "b", "c"}) requests.push_back(r.Add(tenant, "m", 1));
  CHECK(r.Start(1) == Names{"am0"});
  r.End(requests[0]);
  r.Add("a", "m", 1);
  CHECK(r.Start(1) == Names{"bm1"});
  r.End(requests[1]);
  r.Add("b", "m", 1);
  CHECK(r.Start(9) == Names{"cm2", "am3", "bm4"});
}

TEST_CASE("StartOrder: a request that is removed leaves nothing behind", "[sampling]") {
  Requests r;
  ActiveRequest* const gone = r.Add("a", "m", 100);
  r.Start(6);
  r.End(gone);
  r.order.Remove(gone);
  CHECK(r.order.empty());
  r.Add("b", "m", 100);
  r.Start(2);
  r.Add("a", "m", 100);
  CHECK(r.Start(3) == Names{"am2", "am2", "bm1"});
}

TEST_CASE("StartOrder: a walk passes over a request and changes nothing", "[sampling]") {
  Requests r;
  ActiveRequest* const first = r.Add("a", "m", 3);
  ActiveRequest* const second = r.Add("a", "m", 1);
  ActiveRequest* const other = r.Add("b", "m", 1);
  StartOrder::Walk walk(r.order);
  CHECK(walk.Next() == first);
  walk.Take();
  CHECK(walk.Next() == other);
  walk.Take();
  CHECK(walk.Next() == first);
  walk.Skip();
  CHECK(walk.Next() == second);
  walk.Take();
  CHECK(walk.Next() == nullptr);
  CHECK(first->num_started == 0);
  CHECK(r.Start(1) == Names{"am0"});
}

}  // namespace
}  // namespace lathe::worker

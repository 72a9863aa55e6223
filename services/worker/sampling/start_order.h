// Order in which the samples of waiting requests start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "services/worker/sampling/active_request.h"

namespace lathe::worker {

// The next sample to start is one of the tenant with the fewest running samples. So tenants share
// the rows of a pass equally, and a newcomer gets the next row that becomes free. A tenant's
// versions share its rows in the same way. Among equals the turn goes to the one that had its last
// turn longest ago. Requests of one version start in order of arrival. Executor thread only; ranks
// that make the same calls get the same order.
class StartOrder {
 public:
  class Walk;

  // Adds a request none of whose samples has started. It must be removed before its destruction.
  void Add(ActiveRequest* request);
  // Records that the request's next sample starts. After its last one, the request waits no longer.
  void Start(ActiveRequest* request);
  // Records that a running sample of the request has ended. `num_finished` grows after this call.
  void End(const ActiveRequest* request);
  // Forgets the request and its running samples.
  void Remove(const ActiveRequest* request);
  bool empty() const { return num_waiting_ == 0; }

 private:
  struct Turn {
    int64_t num_running = 0;
    int64_t last = 0;  // its last start, or its arrival, on `clock_`
  };
  struct Version {
    Turn turn;
    std::deque<ActiveRequest*> waiting;
  };
  struct Tenant {
    Turn turn;
    std::map<std::string, Version> versions;
  };

  void Release(const ActiveRequest* request, int64_t num_ended, bool still_waits);

  std::map<std::string, Tenant> tenants_;  // those with waiting or running samples
  int64_t num_waiting_ = 0;                // number of requests
  int64_t clock_ = 0;
};

// The next starts in order, as if each of them happened. A walk does not see later changes of the
// order.
class StartOrder::Walk {
 public:
  explicit Walk(const StartOrder& order);

  // Returns the request of the next start; nullptr: none is left.
  ActiveRequest* Next();
  // Continues as if the start that Next returned happened.
  void Take();
  // Continues without any further start of the request that Next returned.
  void Skip();

 private:
  struct Lane {
    size_t tenant = 0;  // index in `tenants_`
    Turn turn;
    std::vector<ActiveRequest*> requests;
    size_t first = 0;      // index in `requests`
    int64_t num_left = 0;  // number of starts of the first request
  };

  static int64_t NumLeft(const Lane& lane);

  std::vector<Turn> tenants_;
  std::vector<Lane> lanes_;  // one for each version
  Lane* next_ = nullptr;
  int64_t clock_ = 0;
};

}  // namespace lathe::worker

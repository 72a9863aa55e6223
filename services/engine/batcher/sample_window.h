// Bound on the sequences that a worker has at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

namespace lathe::engine {

// The sample requests at one worker, and their sequences that have not ended. The worker has a
// quarter more of them than it runs together, so that it can start one as soon as another ends. The
// others wait in the engine, in fair-share order.
//
// A request goes out whole, so one with many sequences may fill the window. Its tenant then waits.
// Another tenant still sends until it has an equal share, and the worker starts the sequences of
// its tenants in turn. So the window holds at most two limits, and a request of each tenant.
class SampleWindow {
 public:
  struct Entry {
    std::string tenant;
    int64_t num_sequences = 0;
    int64_t num_ended = 0;
    int64_t counted = 0;  // sequences of it that count
  };

  // `limit`: for a worker that does not report how many samples it runs.
  explicit SampleWindow(int64_t limit) : default_limit_(limit), limit_(limit) {}

  // Takes the number of samples that the worker runs together, on all its replicas of the model; 0:
  // it does not report it. A request runs on one replica, so it counts as no more than that one's
  // share of the limit.
  void SetRunning(int64_t max_running_samples, int64_t num_replicas);

  bool HasRoomFor(const std::string& tenant) const;
  // Returns true if no tenant has room, not even one without a request here.
  bool IsFull() const;

  // Does nothing if the request is already in the window.
  void Add(const std::string& request_id, const std::string& tenant, int64_t num_sequences);
  // Takes the number of the request's sequences that have ended since it began. Reports may repeat.
  // Does nothing if the request is not in the window.
  void SetEnded(const std::string& request_id, int64_t num_ended);
  // Does nothing if the request is not in the window.
  void Remove(const std::string& request_id);
  void Clear();

  bool Has(const std::string& request_id) const { return requests_.count(request_id) > 0; }
  const std::map<std::string, Entry>& requests() const { return requests_; }  // by id
  // Sequences that have not ended, as they count.
  int64_t num_sequences() const { return num_sequences_; }

 private:
  struct Tenant {
    int64_t num_requests = 0;
    int64_t num_sequences = 0;
  };

  // Brings what the request counts to what it should.
  void Count(Entry& entry);

  const int64_t default_limit_;
  int64_t limit_;
  int64_t most_of_request_ = std::numeric_limits<int64_t>::max();
  std::map<std::string, Entry> requests_;
  std::map<std::string, Tenant> tenants_;  // those with requests
  int64_t num_sequences_ = 0;
};

}  // namespace lathe::engine

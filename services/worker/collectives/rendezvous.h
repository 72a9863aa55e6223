// Where the ranks of a group meet before they have communicators: a key-value store on rank 0.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/worker/collectives/local_address.h"
#include "services/worker/collectives/mesh.h"

namespace lathe::worker {

struct RendezvousOptions {
  int rank = 0;
  int world = 1;
  // Of this forming of the group: what is left of another one is never read.
  std::string session;
  // What must be the same on every rank, by its name: "mesh", "version", "base model". The
  // difference is the error, on every rank.
  std::map<std::string, std::string> must_agree;
  // For all ranks to come, and for each value waited for later.
  absl::Duration timeout = absl::Seconds(60);
};

// One thread at a time. Rank 0's serves the store: it must live until the last rank has its
// communicators, which no longer need it then. c10d's TCPStore: no authentication, no encryption,
// see local_address.h.
class Rendezvous {
 public:
  // Rank 0's.
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Serve(ListeningSocket socket,
                                                           const RendezvousOptions& options);
  // The others', with the numeric address and the port of rank 0's socket. DeadlineExceeded if
  // there is none in time.
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Join(const std::string& address, uint16_t port,
                                                          const RendezvousOptions& options);

  // Values of this session.
  absl::Status Set(const std::string& key, std::string_view value);
  // Waits for it.
  absl::StatusOr<std::string> Get(const std::string& key);

  const RendezvousOptions& options() const { return options_; }
  // For c10d's process groups.
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

 private:
  Rendezvous(c10::intrusive_ptr<c10d::Store> server, c10::intrusive_ptr<c10d::Store> store,
             const RendezvousOptions& options)
      : server_(std::move(server)), store_(std::move(store)), options_(options) {}
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Open(const std::string& address, uint16_t port,
                                                          std::optional<int> listening_fd,
                                                          const RendezvousOptions& options);
  absl::Status CheckIn();
  absl::Status HearVerdict();
  void AwaitHearers();
  absl::Status CompareAll();
  absl::Status Compare(int rank);

  const c10::intrusive_ptr<c10d::Store> server_;  // rank 0's; null: another's
  // A client also on rank 0: process groups keep it, and the server is not to live as long.
  const c10::intrusive_ptr<c10d::Store> store_;
  const RendezvousOptions options_;
};

}  // namespace lathe::worker

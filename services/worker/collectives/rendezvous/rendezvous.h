// The key-value store on rank 0 through which ranks find each other before they have communicators.
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
#include "services/worker/collectives/mesh.h"
#include "services/worker/collectives/rendezvous/rendezvous_socket.h"

namespace lathe::worker {

struct RendezvousOptions {
  int rank = 0;
  int world = 1;
  // Identifies this attempt to form the group. Values of other sessions are never read.
  std::string session;
  // Values that must be the same on every rank, by name: "mesh", "version", "base model". A
  // difference is an error on every rank.
  std::map<std::string, std::string> must_agree;
  // Time for all ranks to arrive, and for each later Get.
  absl::Duration timeout = absl::Seconds(60);
};

// A rank's connection to the store. One thread at a time. Rank 0 also serves the store: its object
// must live until the last rank has its communicators. Finished communicators do not need the
// store. It is c10d's TCPStore: no authentication and no encryption, see rendezvous_socket.h.
class Rendezvous {
 public:
  // Rank 0 calls it.
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Serve(ListeningSocket socket,
                                                           const RendezvousOptions& options);
  // The other ranks call it, with the numeric address and the port of rank 0's socket. Unavailable:
  // there is no store within the timeout.
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Join(const std::string& address, uint16_t port,
                                                          const RendezvousOptions& options);

  // Sets a value of this session.
  absl::Status Set(const std::string& key, std::string_view value);
  // Blocks until the key is set or the timeout expires.
  absl::StatusOr<std::string> Get(const std::string& key);

  const RendezvousOptions& options() const { return options_; }
  // Store for c10d's process groups.
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

 private:
  Rendezvous(c10::intrusive_ptr<c10d::Store> server, c10::intrusive_ptr<c10d::Store> store,
             const RendezvousOptions& options)
      : server_(std::move(server)), store_(std::move(store)), options_(options) {}
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Open(const std::string& address, uint16_t port,
                                                          std::optional<int> listening_fd,
                                                          const RendezvousOptions& options);
  absl::Status CheckIn();
  absl::Status ReadComparison();
  void AwaitReaders();
  absl::Status CompareAll();
  absl::Status Compare(int rank);

  const c10::intrusive_ptr<c10d::Store> server_;  // rank 0's server; null on other ranks
  // A client on rank 0 too: process groups keep it, and must not keep the server alive.
  const c10::intrusive_ptr<c10d::Store> store_;
  const RendezvousOptions options_;
};

}  // namespace lathe::worker

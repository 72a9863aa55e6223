#include "services/worker/collectives/rendezvous/rendezvous.h"

#include <chrono>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

std::chrono::milliseconds Milliseconds(absl::Duration duration) {
  return absl::ToChronoMilliseconds(duration);
}

std::string FirstLine(const std::exception& error) {
  const std::string_view text = error.what();
  return std::string(text.substr(0, text.find('\n')));
}

// c10d reports all errors as exceptions. A wait that times out throws DistStoreError.
template <typename Body>
absl::Status CallStore(const std::string& what, Body&& body) {
  try {
    body();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("rendezvous: ", what, ": ", FirstLine(error)));
  }
}

std::string KeyOf(const std::string& name, int rank) {
  return absl::StrCat("agree/", name, "/", rank);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Rendezvous>> Rendezvous::Serve(ListeningSocket socket,
                                                              const RendezvousOptions& options) {
  return Open(socket.address(), socket.port(), socket.Release(), options);
}

absl::StatusOr<std::unique_ptr<Rendezvous>> Rendezvous::Join(const std::string& address,
                                                             uint16_t port,
                                                             const RendezvousOptions& options) {
  return Open(address, port, std::nullopt, options);
}

absl::StatusOr<std::unique_ptr<Rendezvous>> Rendezvous::Open(const std::string& address,
                                                             uint16_t port,
                                                             std::optional<int> listening_fd,
                                                             const RendezvousOptions& options) {
  c10d::TCPStoreOptions store_options;
  store_options.port = port;
  store_options.isServer = listening_fd.has_value();
  store_options.masterListenFd = listening_fd;
  // CheckIn waits instead, and names the missing rank.
  store_options.waitWorkers = false;
  store_options.timeout = Milliseconds(options.timeout);
  c10::intrusive_ptr<c10d::Store> server, store;
  RETURN_IF_ERROR(CallStore(absl::StrCat("no store at ", address, " port ", port), [&] {
    if (store_options.isServer) {
      server = c10::make_intrusive<c10d::TCPStore>(address, store_options);
      store_options.isServer = false;
      store_options.masterListenFd = std::nullopt;
    }
    store = c10::make_intrusive<c10d::PrefixStore>(
        options.session, c10::make_intrusive<c10d::TCPStore>(address, store_options));
    store->setTimeout(Milliseconds(options.timeout));
  }));
  std::unique_ptr<Rendezvous> rendezvous(
      new Rendezvous(std::move(server), std::move(store), options));
  RETURN_IF_ERROR(rendezvous->CheckIn());
  return rendezvous;
}

absl::Status Rendezvous::Set(const std::string& key, std::string_view value) {
  return CallStore(absl::StrCat("cannot set ", key),
                   [&] { store_->set(key, std::vector<uint8_t>(value.begin(), value.end())); });
}

absl::StatusOr<std::string> Rendezvous::Get(const std::string& key) {
  std::string value;
  RETURN_IF_ERROR(
      CallStore(absl::StrCat("no ", key, " in ", absl::FormatDuration(options_.timeout)), [&] {
        const std::vector<uint8_t> bytes = store_->get(key);
        value.assign(bytes.begin(), bytes.end());
      }));
  return value;
}

// Rank 0 compares every rank with itself and publishes the verdict, so that all ranks end with the
// same reason.
absl::Status Rendezvous::CheckIn() {
  int64_t num_claims = 0;
  RETURN_IF_ERROR(CallStore("cannot check in", [&] {
    num_claims = store_->add(absl::StrCat("claims/", options_.rank), 1);
  }));
  if (num_claims > 1) {
    return absl::FailedPreconditionError(
        absl::StrFormat("rendezvous: another process is rank %d already", options_.rank));
  }
  for (const auto& [name, value] : options_.must_agree) {
    RETURN_IF_ERROR(Set(KeyOf(name, options_.rank), value));
  }
  RETURN_IF_ERROR(Set(absl::StrCat("here/", options_.rank), "yes"));
  if (options_.rank == 0) {
    const absl::Status status = CompareAll();
    RETURN_IF_ERROR(Set("comparison", std::string(status.message())));
    if (!status.ok()) AwaitReaders();
    return status;
  }
  const absl::Status status = ReadComparison();
  RETURN_IF_ERROR(Set(absl::StrCat("read/", options_.rank), "yes"));
  return status;
}

absl::Status Rendezvous::ReadComparison() {
  // First compares this rank with rank 0, because rank 0 may not know that this rank exists.
  RETURN_IF_ERROR(Compare(options_.rank));
  ASSIGN_OR_RETURN(const std::string comparison, Get("comparison"));
  return comparison.empty() ? absl::OkStatus() : absl::FailedPreconditionError(comparison);
}

// The store ends with this process, so rank 0 waits until the others have read the verdict.
void Rendezvous::AwaitReaders() {
  for (int rank = 1; rank < options_.world; ++rank) {
    // A rank that arrived and is gone will not answer.
    CallStore("a rank has not read the result", [&] {
      if (!store_->check({absl::StrCat("here/", rank)})) return;
      store_->wait({absl::StrCat("read/", rank)}, std::chrono::seconds(2));
    }).IgnoreError();
  }
}

absl::Status Rendezvous::CompareAll() {
  for (int rank = 1; rank < options_.world; ++rank) {
    if (!Get(absl::StrCat("here/", rank)).ok()) {
      return absl::DeadlineExceededError(
          absl::StrFormat("rendezvous: rank %d of %d has not arrived in %s", rank, options_.world,
                          absl::FormatDuration(options_.timeout)));
    }
    RETURN_IF_ERROR(Compare(rank));
  }
  return absl::OkStatus();
}

absl::Status Rendezvous::Compare(int rank) {
  for (const auto& [name, own] : options_.must_agree) {
    ASSIGN_OR_RETURN(const std::string theirs, Get(KeyOf(name, rank)));
    ASSIGN_OR_RETURN(const std::string firsts, Get(KeyOf(name, 0)));
    if (theirs == firsts) continue;
    return absl::FailedPreconditionError(absl::StrFormat(
        "rendezvous: rank %d has %s %s, rank 0 has %s", rank, name, theirs, firsts));
  }
  return absl::OkStatus();
}

}  // namespace lathe::worker

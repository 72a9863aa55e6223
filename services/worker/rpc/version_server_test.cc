#include "services/worker/rpc/version_server.h"

#include <catch2/catch.hpp>

#include <string>
#include <thread>
#include <utility>

#include "libs/common/time/clock.h"
#include "services/worker/collectives/rendezvous/rendezvous_socket.h"
#include "services/worker/rpc/version_client.h"

namespace lathe::worker {
namespace {

constexpr int64_t kBytes = (3 << 20) + 7;

ServedVersion Version(int64_t seq_id) {
  auto bytes = std::make_shared<std::string>(kBytes, 'a');
  for (size_t i = 0; i < bytes->size(); ++i) (*bytes)[i] = static_cast<char>(i * 31 % 251);
  ServedVersion version{.header = {.base_content_hash = "hash",
                                   .lora = {.rank = 4, .alpha = 8, .target_modules = {"q_proj"}},
                                   .num_bytes = kBytes,
                                   .model_id = "m",
                                   .seq_id = seq_id,
                                   .applied_seq = 2},
                        .data = bytes->data()};
  version.holder = std::move(bytes);
  return version;
}

struct Fixture {
  Fixture() : server(*VersionServer::Start("127.0.0.1", versions)) {}

  absl::Status Read(const VersionAddress& source, int64_t seq_id = 5) {
    return client.Read(source, "v", seq_id,
                       [&](const VersionHeader& received) -> absl::StatusOr<void*> {
                         header = received;
                         if (!refusal.ok()) return refusal;
                         bytes.resize(received.num_bytes);
                         return bytes.data();
                       });
  }

  ServedVersions versions;
  std::unique_ptr<VersionServer> server;
  VersionClient client;
  VersionHeader header;
  std::string bytes;
  absl::Status refusal;
};

TEST_CASE("a version is read as it was served", "[rpc]") {
  Fixture t;
  t.versions.Put("v", Version(5), 2);
  REQUIRE(t.Read(t.server->address()) == absl::OkStatus());
  const ServedVersion expected = Version(5);
  CHECK(t.bytes == std::string(static_cast<const char*>(expected.data), kBytes));
  CHECK(t.header.base_content_hash == "hash");
  CHECK(t.header.lora.rank == 4);
  CHECK(t.header.lora.alpha == 8);
  CHECK(t.header.lora.target_modules == std::vector<std::string>{"q_proj"});
  CHECK(t.header.model_id == "m");
  CHECK(t.header.seq_id == 5);
  CHECK(t.header.applied_seq == 2);
}

TEST_CASE("a read is refused by name", "[rpc]") {
  Fixture t;
  t.versions.Put("v", Version(5), 1);
  const VersionAddress address = t.server->address();
  CHECK(absl::IsPermissionDenied(t.Read({address.address, "another token"})));
  CHECK(absl::IsPermissionDenied(t.Read({address.address, ""})));
  CHECK(absl::IsNotFound(t.Read(address, 6)));
  t.refusal = absl::FailedPreconditionError("not of my base model");
  CHECK(t.Read(address) == t.refusal);
  CHECK(absl::IsNotFound(t.Read(address)));  // that was the only read
}

TEST_CASE("an absent source is abandoned soon", "[rpc]") {
  Fixture t;
  CHECK(absl::IsUnavailable(t.Read({"", ""})));
  const VersionAddress address = t.server->address();
  t.server.reset();
  const absl::Time began = SteadyNow();
  CHECK(absl::IsUnavailable(t.Read(address)));
  CHECK(SteadyNow() - began < absl::Seconds(10));
}

TEST_CASE("a silent source is abandoned, and stopping ends a read", "[rpc]") {
  // Accepts connections and never answers.
  const auto silent = ListeningSocket::Open("127.0.0.1");
  REQUIRE(silent.ok());
  const VersionAddress address{"127.0.0.1:" + std::to_string(silent->port()), "t"};
  VersionClient impatient(absl::Milliseconds(300));
  const auto begin = [](const VersionHeader&) -> absl::StatusOr<void*> {
    return absl::InternalError("nothing comes");
  };
  const absl::Status late = impatient.Read(address, "v", 5, begin);
  CHECK((absl::IsDeadlineExceeded(late) || absl::IsUnavailable(late)));
  VersionClient stopped;
  absl::Status status;
  std::thread reads([&] { status = stopped.Read(address, "v", 5, begin); });
  absl::SleepFor(absl::Milliseconds(50));
  stopped.Stop();
  reads.join();
  CHECK(absl::IsCancelled(status));
  CHECK(absl::IsCancelled(stopped.Read(address, "v", 5, begin)));
}

}  // namespace
}  // namespace lathe::worker

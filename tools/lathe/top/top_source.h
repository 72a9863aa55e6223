// Sources of the data of `lathe top`.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "protos/lathe/v1/admin.pb.h"
#include "tools/lathe/admin_client.h"
#include "tools/lathe/selftest/api_client.h"

namespace lathe::cli {

class TopSource {
 public:
  virtual ~TopSource() = default;
  // Takes 15 s at most. Ends within 2 s, perhaps as Cancelled, once `is_stopped` (null: never)
  // returns true. Only the system's search for the server's address can take longer.
  virtual absl::StatusOr<v1::GetStatusResponse> Read(const std::function<bool()>& is_stopped) = 0;
  // Pause between two reads that costs the server little.
  virtual absl::Duration period() const = 0;
};

// The admin socket of the data directory: all groups, tenants and runs.
class AdminTopSource : public TopSource {
 public:
  explicit AdminTopSource(const DataDir& dir) : client_(dir) {}

  absl::StatusOr<v1::GetStatusResponse> Read(const std::function<bool()>& is_stopped) override;
  absl::Duration period() const override { return absl::Seconds(1); }

 private:
  AdminClient client_;
};

// The HTTP API, with what the key may see: the base models as groups without ranks, and the newest
// 50 runs of the key's tenant. Of the newest 10 active runs it knows what they wait for.
class ApiTopSource : public TopSource {
 public:
  explicit ApiTopSource(ApiClient api) : api_(std::move(api)) {}

  absl::StatusOr<v1::GetStatusResponse> Read(const std::function<bool()>& is_stopped) override;
  absl::Duration period() const override { return absl::Seconds(5); }

 private:
  absl::Status ReadGroups(v1::GetStatusResponse& status);
  absl::Status ReadRunsInto(v1::GetStatusResponse& status);

  ApiClient api_;
  // The server has asked for no questions about requests before this time (SteadyNow).
  absl::Time may_ask_at_ = absl::InfinitePast();
};

// Fills in the requests of a run from an answer of ListRunRequests: how many have not ended, the
// oldest of them with its stage, and the largest seq_id that ended well.
void SetRequests(const Json& requests, v1::ModelStatus& run);

}  // namespace lathe::cli

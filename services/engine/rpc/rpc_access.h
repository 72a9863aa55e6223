// The table of rpcs and the scopes that they require.
#pragma once

#include <string_view>

#include "services/engine/auth/scope.h"

namespace lathe::engine {

// All scopes: any valid key is sufficient.
inline constexpr Scopes kAnyScope =
    Scopes(Scope::kTrain) | Scope::kSample | Scope::kRead | Scope::kCheckpointsWrite;

struct RpcRule {
  // Service and method in lathe.v1, e.g. "Engine.ListRuns".
  std::string_view rpc;
  // Sufficient scopes; a key needs one of them.
  Scopes scopes;
  // True: the rpc needs no key, or finds keys in its messages.
  bool is_open = false;
  // True: the rpc is about the presented key, so a session will not do.
  bool is_for_keys = false;
};

inline constexpr RpcRule kRpcRules[] = {
    {"Engine.Authenticate", kAnyScope},
    {"Engine.GetCapabilities", kAnyScope},

    {"Engine.CreateSession", Scope::kTrain | Scope::kSample | Scopes(Scope::kRead)},
    {"Engine.Heartbeat", kAnyScope},
    {"Engine.FinishSession", kAnyScope},
    {"Engine.ListSessions", Scope::kRead},
    {"Engine.GetSession", Scope::kRead},

    {"Engine.CreateModel", Scope::kTrain},
    {"Engine.UnloadModel", Scope::kTrain},
    {"Engine.ForwardBackward", Scope::kTrain},
    {"Engine.OptimStep", Scope::kTrain},
    {"Engine.SaveWeights", Scope::kTrain},
    {"Engine.SaveWeightsForSampler", Scope::kTrain},
    {"Engine.LoadWeights", Scope::kTrain},
    {"Engine.GetModel", kAnyScope},

    {"Engine.CreateSamplingSession", Scope::kSample},
    {"Engine.JoinSamplingSession", Scope::kSample},
    {"Engine.GetSampler", kAnyScope},
    {"Engine.Sample", Scope::kSample},
    {"Engine.CancelSample", Scope::kSample},

    {"Engine.GetResult", kAnyScope},
    {"Engine.AwaitSamples", kAnyScope},
    // Each subscription carries its own caller's key.
    {"Engine.Watch", Scopes(), /*is_open=*/true},

    {"Engine.ListRuns", Scope::kRead},
    {"Engine.GetRun", Scope::kRead},
    {"Engine.ListCheckpoints", Scope::kRead},
    {"Engine.GetWeightsInfo", kAnyScope},
    {"Engine.DeleteCheckpoint", Scope::kCheckpointsWrite},
    {"Engine.PublishCheckpoint", Scope::kCheckpointsWrite},
    {"Engine.SetCheckpointTtl", Scope::kCheckpointsWrite},
    {"Engine.DescribeArchive", Scope::kRead},
    // The token from DescribeArchive or DescribeExternalWeights is the only credential needed.
    {"Engine.OpenArchive", Scopes(), /*is_open=*/true},

    {"Tenants.GetOwnKey", kAnyScope, /*is_open=*/false, /*is_for_keys=*/true},
    {"Tenants.RevokeOwnKey", kAnyScope, /*is_open=*/false, /*is_for_keys=*/true},
    // A session's token would outlive the session.
    {"Tenants.ExchangeToken", kAnyScope, /*is_open=*/false, /*is_for_keys=*/true},
    {"Tenants.ListAudit", Scope::kAdmin},
    {"Tenants.ListTenantKeys", Scope::kAdmin},
    {"Tenants.CreateTenantKey", Scope::kAdmin},
    {"Tenants.RevokeTenantKey", Scope::kAdmin},
    {"Tenants.RotateTenantKey", Scope::kAdmin},
    {"Tenants.ListTenants", Scope::kAdmin},
    {"Tenants.SetTenantQuota", Scope::kOperator},

    {"Streaming.SampleStream", Scope::kSample},

    {"Accounts.AssignSessionProject", Scope::kTrain | Scope::kSample},
    {"Accounts.ListProjectRuns", Scope::kRead},
    {"Accounts.SearchSessions", Scope::kRead},
    {"Accounts.ListUsage", Scope::kRead},
    {"Accounts.GetCheckpointStorage", Scope::kRead},
    {"Accounts.GetServiceStatus", Scope::kRead},

    {"Checkpoints.SaveWeightsExternal", Scope::kTrain},
    {"Checkpoints.DescribeExternalWeights", Scope::kRead},
    {"Checkpoints.CopyWeights", Scope::kCheckpointsWrite},

    {"Groups.ListGroupModels", Scope::kOperator},
    {"Groups.DrainGroup", Scope::kOperator},
    {"Groups.ResumeGroup", Scope::kOperator},
    {"Groups.RemoveGroup", Scope::kOperator},
    {"Groups.MoveModel", Scope::kOperator},

    {"Metrics.Append", Scope::kTrain},
    {"Metrics.Query", Scope::kRead},
    // Curves of groups of workers need the scope admin too.
    {"Metrics.QueryMachine", Scope::kRead},

    // Each subscription carries its own viewer's key, with the scope `read`.
    {"Events.Stream", Scopes(), /*is_open=*/true},

    {"Users.GetOwnSession", kAnyScope},
    {"Users.EndOwnSession", kAnyScope},
    {"Users.ListUsers", Scope::kAdmin},
    {"Users.UpdateUser", Scope::kAdmin},
    {"Users.ListUserSessions", Scope::kAdmin},
    {"Users.EndUserSession", Scope::kAdmin},

    {"Traces.DescribeTrace", Scope::kRead},
    {"Traces.ListRunRequests", Scope::kRead},
    // The token from DescribeTrace is the only credential needed.
    {"Traces.OpenTrace", Scopes(), /*is_open=*/true},
};

// The scopes that an rpc requires, looked up by name at compile time. A name that is open or
// missing in the table does not compile.
class RpcAccess {
 public:
  consteval RpcAccess(const char* rpc)  // NOLINT
      : scopes_(Find(rpc).scopes), is_for_keys_(Find(rpc).is_for_keys) {}

  constexpr Scopes scopes() const { return scopes_; }
  constexpr bool is_for_keys() const { return is_for_keys_; }

 private:
  static consteval RpcRule Find(std::string_view rpc) {
    for (const RpcRule& rule : kRpcRules) {
      if (rule.rpc == rpc && !rule.is_open) return rule;
    }
    throw "the rpc has no entry in kRpcRules";
  }

  Scopes scopes_;
  bool is_for_keys_;
};

}  // namespace lathe::engine

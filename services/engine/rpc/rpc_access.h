// Who may make which rpc: the one table of it.
#pragma once

#include <string_view>

#include "services/engine/auth/scope.h"

namespace lathe::engine {

// Every scope: any key that is valid will do.
inline constexpr Scopes kAnyScope =
    Scopes(Scope::kTrain) | Scope::kSample | Scope::kRead | Scope::kCheckpointsWrite;

struct RpcRule {
  // Service and method of lathe.v1: "Engine.ListRuns".
  std::string_view rpc;
  // One of these suffices.
  Scopes scopes;
  // True: needs no key, or finds the caller's in its messages.
  bool is_open = false;
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
    // Each subscription carries the key of whom it is for.
    {"Engine.Watch", Scopes(), /*is_open=*/true},

    {"Engine.ListRuns", Scope::kRead},
    {"Engine.GetRun", Scope::kRead},
    {"Engine.ListCheckpoints", Scope::kRead},
    {"Engine.GetWeightsInfo", kAnyScope},
    {"Engine.DeleteCheckpoint", Scope::kCheckpointsWrite},
    {"Engine.PublishCheckpoint", Scope::kCheckpointsWrite},
    {"Engine.SetCheckpointTtl", Scope::kCheckpointsWrite},
    {"Engine.DescribeArchive", Scope::kRead},
    // The token that DescribeArchive or DescribeExternalWeights signed is the right.
    {"Engine.OpenArchive", Scopes(), /*is_open=*/true},

    {"Tenants.GetOwnKey", kAnyScope},
    {"Tenants.RevokeOwnKey", kAnyScope},
    {"Tenants.ExchangeToken", kAnyScope},
    {"Tenants.ListAudit", Scope::kAdmin},

    {"Streaming.SampleStream", Scope::kSample},

    {"Accounts.AssignSessionProject", Scope::kTrain | Scope::kSample},
    {"Accounts.ListProjectRuns", Scope::kRead},
    {"Accounts.SearchSessions", Scope::kRead},
    {"Accounts.ListUsage", Scope::kRead},
    {"Accounts.GetCheckpointStorage", Scope::kRead},

    {"Checkpoints.SaveWeightsExternal", Scope::kTrain},
    {"Checkpoints.DescribeExternalWeights", Scope::kRead},
    {"Checkpoints.CopyWeights", Scope::kCheckpointsWrite},

    {"Traces.DescribeTrace", Scope::kRead},
    // The token that DescribeTrace signed is the right.
    {"Traces.OpenTrace", Scopes(), /*is_open=*/true},
};

// What an rpc asks of a key. Made of the rpc's name; one that is not in the table, or is open,
// does not compile.
class RpcAccess {
 public:
  consteval RpcAccess(const char* rpc) : scopes_(Find(rpc)) {}  // NOLINT

  constexpr Scopes scopes() const { return scopes_; }

 private:
  static consteval Scopes Find(std::string_view rpc) {
    for (const RpcRule& rule : kRpcRules) {
      if (rule.rpc == rpc && !rule.is_open) return rule.scopes;
    }
    throw "the rpc has no entry in kRpcRules";
  }

  Scopes scopes_;
};

}  // namespace lathe::engine

// A group that trains and a group that samples, for tests of version transfers between them.
#pragma once

#include <string>
#include <vector>

#include "services/engine/core/testing/core_harness.h"
#include "services/engine/core/testing/recovery_steps.h"

namespace lathe::engine {

// Group "g" trains a model and group "h" samples, by default.
struct Roles {
  CoreHarness h;
  FakeWorker* other;
  std::string session;
  std::string model;
  std::string version;
  std::string sampler;

  explicit Roles(GroupRole role = GroupRole::kTrain, GroupRole other_role = GroupRole::kSample,
                 bool serves_versions = false) {
    h.role = role;
    h.serves_versions = serves_versions;
    h.AttachWorker();
    other = &h.AttachOther("h", other_role);
    session = h.NewSession();
    model = h.NewModel(session);
    version = model + "@inflight";
    sampler = session + ":sample:0";
  }
  // Runs the worker of group "g" only.
  void RunFirst() {
    bool has_updates = true;
    while (has_updates) {
      if (h.worker->HasWork()) h.worker->RunOne();
      std::vector<EventBody> reports = h.worker->TakeReports();
      has_updates = !reports.empty() || h.worker->HasWork();
      for (EventBody& report : reports) h.Post(std::move(report));
    }
  }
  void Train(int64_t seq) {
    h.Gradient(model, seq);
    h.Step(model, seq + 1);
    RunFirst();
  }
  void PublishInflight(int64_t seq, int64_t sampler_seq) { Publish(seq, sampler_seq, true); }
  void Publish(int64_t seq, int64_t sampler_seq, bool inflight = false) {
    SaveArgs args;
    args.sampling_session_seq_id = sampler_seq;
    args.inflight = inflight;
    h.Save(model, seq, args, OperationKind::kSaveWeightsForSampler);
    RunFirst();
  }
  std::string Dir() const { return h.store.versions().at(version).dir; }
  SendLoadVersion LastLoad() const { return other->Received<SendLoadVersion>().back(); }
  void ReportLoaded(int64_t seq) { h.Post(WorkerVersionLoaded{"h", other->epoch(), version, seq}); }
};

}  // namespace lathe::engine

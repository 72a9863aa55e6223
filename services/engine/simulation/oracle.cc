#include "services/engine/simulation/oracle.h"

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/engine/core/state/plan.h"
#include "services/engine/ledger/gradient_window.h"
#include "services/engine/testing/mix.h"

namespace lathe::engine::simulation {
namespace {

using History = SimStore::History;

// Replays one model, from its creation to its last request.
class Walk {
 public:
  Walk(const World& world, const std::string& model_id, std::map<std::string, Weights>& versions)
      : world_(world), model_id_(model_id), versions_(versions) {}

  void Follow(const History& history) {
    const bool done = history.row.state == RequestState::kDone;
    if (done && history.row.op_class == OpClass::kModel) return Create(history);
    if (history.row.op_class != OpClass::kTrain) return;
    const auto plan = DecodePlan(history.row.plan);
    if (!plan || plan->refused) return;
    if (done) {
      Apply(history, *plan);
    } else {
      Fail(history);
    }
  }

  // Drops gradients that the core dropped during a silence of their client.
  void Drop(const std::vector<int64_t>& seqs) {
    if (!seqs.empty()) CheckWasSilent();
    for (const int64_t seq : seqs) adapter_.window.erase(seq);
  }

  void CheckLive(const CountingAdapter* held) const {
    if (is_lost_) return;
    if (held == nullptr) Fail("I2", "no worker holds it");
    Expect("I2", "the worker's weights", held->weights, adapter_.weights);
    Expect("I2", "the worker's moments", held->moments, adapter_.moments);
    if (held->window != adapter_.window) {
      Fail("I2", absl::StrFormat("the worker's gradient is of [%s] instead of [%s]",
                                 absl::StrJoin(SeqsOf(held->window), " "),
                                 absl::StrJoin(SeqsOf(adapter_.window), " ")));
    }
    if (held->applied_seq != adapter_.applied_seq) Fail("I2", "the worker's applied_seq differs");
  }

 private:
  [[noreturn]] void Fail(const std::string& invariant, const std::string& what) const {
    throw Violation(invariant, absl::StrFormat("%s: %s", model_id_, what));
  }

  void Expect(const char* invariant, const std::string& what, const Weights& is,
              const Weights& should) const {
    if (HashOf(is) == HashOf(should)) return;
    Fail(invariant,
         absl::StrFormat("%s are \"%s\" instead of \"%s\"", what, Describe(is), Describe(should)));
  }

  void ExpectResult(const History& history) const {
    if (history.result->weights == HashOf(adapter_.weights)) return;
    Fail("I2", absl::StrFormat("seq %d ran on, or made, other weights than \"%s\"",
                               history.row.seq_id, Describe(adapter_.weights)));
  }

  void Create(const History& history) {
    adapter_ = CountingAdapter();
    is_lost_ = false;
    if (history.row.kind == OperationKind::kLoadWeights) {
      Load(history, *DecodePlan(history.row.plan), /*seq_id=*/0);
    } else {
      const auto model = world_.store.models_ever().find(model_id_);
      adapter_.weights = Lineage::Create(model_id_, model->second.lora.seed);
    }
  }

  // The worker that read the files has recorded which checkpoint the path named.
  void Load(const History& history, const Plan& plan, int64_t seq_id) {
    const auto loaded = world_.loaded.find(history.row.request_id);
    if (loaded == world_.loaded.end()) Fail("I4", "a load is done that no worker ran");
    const auto& args = std::get<LoadArgs>(plan.args);
    const auto own = saved_.find(args.path);
    if (own != saved_.end()) {
      Expect("I4", "the weights loaded from " + args.path, loaded->second.weights,
             own->second.weights);
    }
    adapter_ = CountingAdapter();
    adapter_.weights = loaded->second.weights;
    if (args.with_optimizer) adapter_.moments = loaded->second.moments;
    adapter_.applied_seq = seq_id;
    is_lost_ = false;
    loaded_at_ = history.row.done_at;
  }

  void Save(const History& history, const Plan& plan) {
    const auto& args = std::get<SaveArgs>(plan.args);
    if (!plan.version_id.empty()) {
      if (!args.inflight) versions_[plan.version_id] = adapter_.weights;
      return;
    }
    const std::string& dir = history.row.outcome;
    const CheckpointFiles* const files = world_.disk.FindEver(dir);
    if (files == nullptr) Fail("I4", "a save is done without files in " + dir);
    Expect("I4", "the saved weights", files->weights, adapter_.weights);
    Expect("I4", "the saved moments", files->moments, adapter_.moments);
    if (files->applied_seq != adapter_.applied_seq)
      Fail("I4", "a checkpoint's applied_seq differs");
    if (history.row.kind == OperationKind::kSaveWeights) {
      saved_[absl::StrFormat("tinker://%s/weights/%s", model_id_, args.name)] = *files;
    }
  }

  void Apply(const History& history, const Plan& plan) {
    const OperationKind kind = history.row.kind;
    const int64_t seq = history.row.seq_id;
    const bool needs_state = kind != OperationKind::kForward &&
                             kind != OperationKind::kForwardBackward &&
                             kind != OperationKind::kLoadWeights;
    if (is_lost_ && needs_state) Fail("I2", absl::StrFormat("seq %d ran on a lost model", seq));
    switch (kind) {
      case OperationKind::kForwardBackward:
        ExpectResult(history);
        if (is_lost_) return;
        adapter_.window[seq] = history.body->content;
        accepted_at_[seq] = history.row.accepted_at;
        return;
      case OperationKind::kForward:
        return ExpectResult(history);
      case OperationKind::kOptimStep: {
        CheckGradientIsWhole(history);
        const auto& args = std::get<OptimStepArgs>(plan.args);
        adapter_.Step(seq, MixBytes(0, args.adam_params));
        failures_.clear();
        return ExpectResult(history);
      }
      case OperationKind::kLoadWeights:
        failures_.clear();
        return Load(history, plan, seq);
      default:
        return Save(history, plan);
    }
  }

  // Checks that the step's caller meant just this gradient: it began after the client had received
  // every failure.
  void CheckGradientIsWhole(const History& step) const {
    for (const History* const failure : failures_) {
      const int64_t known_at = failure->handed_out_at;
      bool is_whole = known_at > 0 && known_at <= step.row.accepted_at;
      for (const auto& [seq, content] : adapter_.window) {
        is_whole &= seq > failure->row.seq_id && known_at <= accepted_at_.at(seq);
      }
      if (is_whole) continue;
      Fail("I2", absl::StrFormat("seq %d applied a part of a gradient: seq %d had failed",
                                 step.row.seq_id, failure->row.seq_id));
    }
  }

  void Fail(const History& history) {
    if (history.result->code == "model_lost") {
      // A later load under a smaller seq has restored the model.
      if (history.row.done_at <= loaded_at_) return;
      is_lost_ = true;
      adapter_.window.clear();
      failures_.clear();
    } else if (history.row.kind == OperationKind::kForwardBackward) {
      failures_.push_back(&history);
    } else if (history.result->code == "incomplete_gradient") {
      if (failures_.empty()) CheckWasSilent();
      adapter_.window.clear();
      failures_.clear();
    }
  }

  void CheckWasSilent() const {
    const std::string session_id = model_id_.substr(0, model_id_.find(':'));
    if (world_.silent_sessions.contains(session_id)) return;
    Fail("I2", "its gradient was dropped although its client was there");
  }

  const World& world_;
  const std::string model_id_;
  std::map<std::string, Weights>& versions_;
  CountingAdapter adapter_;
  bool is_lost_ = true;  // not created
  int64_t loaded_at_ = 0;
  std::map<int64_t, int64_t> accepted_at_;        // of forward_backwards that succeeded, by seq
  std::map<std::string, CheckpointFiles> saved_;  // by path
  std::vector<const History*> failures_;          // failures of the open gradient
};

// Requests by model: the creation under 0, then training requests by seq.
using ByModel = std::map<std::string, std::map<int64_t, const History*>>;

ByModel GroupByModel(const World& world) {
  ByModel models;
  for (const auto& [id, history] : world.store.history()) {
    const RequestRow& row = history.row;
    if (row.op_class == OpClass::kModel) {
      models[absl::StrFormat("%s:train:%d", row.owner_id, row.seq_id)][0] = &history;
    } else if (row.op_class == OpClass::kTrain) {
      const History*& slot = models[row.owner_id][row.seq_id];
      if (slot != nullptr) {
        throw Violation("I2",
                        absl::StrFormat("%s seq %d was accepted twice", row.owner_id, row.seq_id));
      }
      slot = &history;
    }
  }
  return models;
}

void CheckSamples(const World& world, const std::map<std::string, Weights>& versions) {
  for (const auto& [id, history] : world.store.history()) {
    const bool done = history.row.state == RequestState::kDone;
    if (!done || history.row.op_class != OpClass::kSample) continue;
    const SamplerRow& sampler = world.store.samplers_ever().at(history.row.owner_id);
    uint64_t expected = 0;
    if (!sampler.checkpoint_dir.empty()) {
      const CheckpointFiles* const files = world.disk.FindEver(sampler.checkpoint_dir);
      expected = files == nullptr ? 0 : HashOf(files->weights);
    } else if (!sampler.version_id.empty()) {
      const auto version = versions.find(sampler.version_id);
      if (version == versions.end()) continue;  // an inflight version, whose weights change
      expected = HashOf(version->second);
    }
    if (history.result->weights == expected) continue;
    throw Violation("I2", absl::StrFormat("sample %s was not drawn from the weights of %s", id,
                                          sampler.sampling_session_id));
  }
}

}  // namespace

void CheckModels(const World& world,
                 const std::function<const CountingAdapter*(const std::string&)>& live) {
  std::map<std::string, Weights> versions;
  for (const auto& [model_id, requests] : GroupByModel(world)) {
    Walk walk(world, model_id, versions);
    for (const auto& [seq, history] : requests) {
      if (history->row.done_at > 0) walk.Follow(*history);
    }
    const auto row = world.store.models().find(model_id);
    const bool lives = row != world.store.models().end() && row->second.state == ModelState::kReady;
    // A model that is still offloaded belongs to a client that did not come back.
    if (lives && !row->second.is_offloaded) {
      walk.Drop(DecodeSeqs(row->second.dropped_window));
      walk.CheckLive(live(model_id));
    }
    const bool is_lost =
        row != world.store.models().end() && row->second.state == ModelState::kLost;
    if (is_lost) throw Violation("I2", model_id + " is lost");
  }
  CheckSamples(world, versions);
}

void CheckEnded(const World& world) {
  for (const auto& [id, history] : world.store.history()) {
    if (history.row.done_at > 0) continue;
    throw Violation("I1", absl::StrFormat("request %s (%s seq %d kind %d) never ended", id,
                                          history.row.owner_id, history.row.seq_id,
                                          static_cast<int>(history.row.kind)));
  }
}

void CheckKills(const World& world) {
  // Without reports of exits, engines guess and may mistake a crash for an outage.
  if (!world.swarm.is_supervised) return;
  // Two crashes alone, plus some reported late or to another engine. Seeds reach half of this.
  const int64_t limit = 12 + 6 * world.store.term();
  for (const auto& [request_id, num_kills] : world.kills) {
    if (num_kills <= limit) continue;
    throw Violation("I7", absl::StrFormat("request %s has ended %d workers, limit is %d",
                                          request_id, num_kills, limit));
  }
}

void CheckNothingLeaks(const World& world) {
  const SimStore& store = world.store;
  for (const auto& [id, row] : store.sessions()) {
    if (row.state != SessionState::kEnded) throw Violation("I6", "session " + id + " never ended");
  }
  for (const auto& [id, row] : store.models()) {
    if (row.state <= ModelState::kReady) {
      throw Violation("I6", absl::StrFormat("model %s of an ended session lives", id));
    }
  }
  if (!store.samplers().empty()) {
    throw Violation("I6", "sampler " + store.samplers().begin()->first + " is left");
  }
  if (!store.bodies().empty()) {
    throw Violation("I6", "body " + store.bodies().begin()->first + " is left");
  }
  if (!store.snapshots().empty()) {
    throw Violation("I6", "snapshot " + store.snapshots().front().snapshot_id + " is left");
  }
  if (!store.versions().empty()) {
    throw Violation("I6", "version " + store.versions().begin()->first + " is left");
  }
  std::set<std::string> needed;
  for (const auto& [path, row] : store.checkpoints()) {
    if (row.state == CheckpointState::kComplete) needed.insert(row.dir);
  }
  for (const std::string& dir : world.disk.List()) {
    if (needed.erase(dir) == 0) throw Violation("I6", "directory " + dir + " is left");
  }
  if (!needed.empty()) throw Violation("I4", "checkpoint files " + *needed.begin() + " are gone");
}

}  // namespace lathe::engine::simulation

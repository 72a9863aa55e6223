#include "services/worker/executor/executor_core.h"

#include <catch2/catch.hpp>

#include <algorithm>

#include "services/worker/layers/yield_points.h"
#include "services/worker/testing/test_core.h"

namespace lathe::worker {
namespace {

TEST_CASE("a saved model loads with its optimizer and continues as if never saved", "[executor]") {
  Worker worker;
  worker.Apply({Train("m", 1)});
  worker.core.Apply(Step("m", 2, 0, {1}));
  worker.core.Apply(SaveCheckpoint{.request_id = "save",
                                   .model_id = "m",
                                   .seq_id = 3,
                                   .kind = CheckpointKind::kTraining,
                                   .dir = "ckpt",
                                   .manifest_json = "{}"});
  // A step right after the save must not affect it.
  worker.Apply({Train("m", 4)});
  worker.core.Apply(Step("m", 5, 2, {4}));
  worker.Apply({Train("m", 6)});
  const double expected = Loss(Answer<TrainDone>(worker.Drain(), "m:6").output);
  const ReportEvent save = worker.NextSave();
  const auto& saved = std::get<SaveDone>(save.report);
  CHECK(saved.size_bytes > 0);
  CHECK(saved.manifest_sha256.size() == 64);
  CHECK(save.model->applied_seq == 2);

  worker.core.Apply(LoadAdapter{"load", "copy", 9, "ckpt", /*with_optimizer=*/true});
  CHECK(Answer<OpDone>(worker.Drain(), "load").lora.rank == 4);
  worker.Apply({Train("copy", 10)});
  worker.core.Apply(Step("copy", 11, 9, {10}));
  worker.Apply({Train("copy", 12)});
  CHECK(Loss(Answer<TrainDone>(worker.Drain(), "copy:12").output) ==
        Approx(expected).epsilon(1e-6));
}

TEST_CASE("a load that fails leaves the model as it was", "[executor]") {
  Worker worker;
  worker.Apply({Train("m", 1)});
  worker.core.Apply(LoadAdapter{"load", "m", 2, "missing", false});
  Answer<OpFailed>(worker.Drain(), "load");
  CHECK(worker.State().window == std::vector<int64_t>{1});
  CHECK(worker.State().applied_seq == 0);
}

TEST_CASE("a published version samples with the weights of its moment", "[executor]") {
  Worker worker;
  worker.core.Apply(PublishVersion{"publish", "m", 1, "v1"});
  worker.core.Apply(Sample("s1", "v1"));
  auto reports = worker.Drain();
  CHECK(Answer<OpDone>(reports, "publish").version_bytes > 0);
  const auto before = Answer<SampleDone>(reports, "s1").output;
  worker.Apply({Train("m", 2)});
  worker.core.Apply(Step("m", 3, 0, {2}));
  worker.core.Apply(PublishVersion{"publish2", "m", 4, "v2"});
  worker.core.Apply(Sample("s2", "v1"));
  worker.core.Apply(Sample("s3", "v2"));
  reports = worker.Drain();
  CHECK(Difference(Answer<SampleDone>(reports, "s2").output, before) < kRounding);
  CHECK(Difference(Answer<SampleDone>(reports, "s3").output, before) > 100 * kRounding);
  CHECK(VersionIds(worker.core) == std::vector<std::string>{"v1", "v2"});
  CHECK(before.sequences[0].tokens.size() == 4);
}

TEST_CASE("an inflight version is replaced by each publication and says which it was",
          "[executor]") {
  Worker worker;
  const auto publish = [&](int64_t seq_id) {
    worker.core.Apply(PublishVersion{.request_id = "p" + std::to_string(seq_id),
                                     .model_id = "m",
                                     .seq_id = seq_id,
                                     .version_id = "m@inflight",
                                     .is_inflight = true});
  };
  publish(1);
  worker.core.Apply(Sample("before", "m@inflight"));
  const auto before = Answer<SampleDone>(worker.Drain(), "before").output;
  worker.Apply({Train("m", 2)});
  worker.core.Apply(Step("m", 3, 0, {2}));
  worker.core.Apply(Sample("between", "m@inflight"));
  const auto between = Answer<SampleDone>(worker.Drain(), "between").output;
  publish(4);
  worker.Drain();
  worker.core.Apply(Sample("after", "m@inflight"));
  const auto after = Answer<SampleDone>(worker.Drain(), "after").output;

  CHECK(Difference(before, between) < kRounding);
  CHECK(Difference(before, after) > kRounding);
  CHECK(between.sequences[0].weights_runs.at(0).seq_id == 1);
  CHECK(after.sequences[0].weights_runs.at(0).seq_id == 4);
  CHECK(after.sequences[0].weights_runs.at(0).num_tokens == 4);
}

TEST_CASE("a sampler checkpoint loads as a version, a missing one fails its samples",
          "[executor]") {
  Worker worker;
  worker.core.Apply(SaveCheckpoint{.request_id = "save",
                                   .model_id = "m",
                                   .seq_id = 1,
                                   .kind = CheckpointKind::kSampler,
                                   .dir = "sampler",
                                   .manifest_json = "{}"});
  worker.core.Apply(PublishVersion{"publish", "m", 2, "v"});
  worker.core.Apply(Sample("direct", "v"));
  const auto direct = Answer<SampleDone>(worker.Drain(), "direct").output;
  worker.NextSave();
  worker.core.Apply(LoadVersion{"loaded", "sampler"});
  worker.core.Apply(LoadVersion{"broken", "missing"});
  worker.core.Apply(Sample("s1", "loaded"));
  worker.core.Apply(Sample("s2", "broken"));
  worker.core.Apply(Sample("s3", "unheard"));
  const auto reports = worker.Drain();
  CHECK(Answer<SampleDone>(reports, "s1").output.sequences[0].tokens == direct.sequences[0].tokens);
  const auto failed = std::find_if(reports.begin(), reports.end(), [](const ReportEvent& event) {
    return std::holds_alternative<VersionFailed>(event.report);
  });
  REQUIRE(failed != reports.end());
  CHECK(std::get<VersionFailed>(failed->report).version_id == "broken");
  // The failed version is reported before its samples fail.
  CHECK(std::get<OpFailed>((failed + 1)->report).request_id == "s2");
  CHECK_FALSE(Answer<OpFailed>(reports, "s2").status.ok());
  CHECK(Answer<OpFailed>(reports, "s3").status.code() == absl::StatusCode::kNotFound);
}

TEST_CASE("a dropped version still serves the samples that run", "[executor]") {
  Worker worker;
  worker.core.Apply(PublishVersion{"publish", "m", 1, "v"});
  worker.Drain();
  worker.core.Apply(Sample("running", "v"));
  worker.core.Apply(DropVersion{"v"});
  worker.core.Apply(Sample("late", "v"));
  const auto reports = worker.Drain();
  Answer<SampleDone>(reports, "running");
  Answer<OpFailed>(reports, "late");
}

TEST_CASE("a cancelled sample is answered once", "[executor]") {
  Worker worker;
  worker.core.Apply(Sample("s", ""));
  worker.core.Apply(Cancel{"s"});
  worker.core.Apply(Cancel{"s"});
  CHECK(Answer<OpFailed>(worker.Drain(), "s").status.code() == absl::StatusCode::kCancelled);
}

TEST_CASE("a sample that is cancelled while it runs gives its blocks back", "[executor]") {
  Worker worker;
  SampleRequest request = Sample("s", "");
  request.num_samples = 3;
  request.params.max_tokens = 100;
  worker.core.Apply(request);
  for (int unit = 0; unit < 20; ++unit) worker.core.RunUnit();
  CHECK(worker.core.kv_usage().num_used > 0);
  worker.core.Apply(Cancel{"s"});
  CHECK(worker.core.kv_usage().num_used == 0);
  Answer<OpFailed>(worker.Drain(), "s");
}

TEST_CASE("a running request says how many of its sequences have ended", "[executor]") {
  CoreOptions options;
  options.sampling.max_running_samples = 2;
  Worker worker(options);
  SampleRequest request = Sample("s", "");
  request.num_samples = 6;
  request.params.max_tokens = 3;
  request.params.ignore_eos = true;
  worker.core.Apply(request);
  std::vector<EndedSequences> ended;
  bool is_done = false;
  for (const ReportEvent& event : worker.Drain()) {
    is_done |= std::holds_alternative<SampleDone>(event.report);
    if (const auto* const progress = std::get_if<SampleProgress>(&event.report)) {
      CHECK(progress->tokens.empty());
      CHECK_FALSE(is_done);
      ended.insert(ended.end(), progress->ended.begin(), progress->ended.end());
    }
  }
  CHECK(is_done);
  // The extra parentheses keep Catch2 from printing the reports.
  CHECK((ended == std::vector<EndedSequences>{{"s", 2}, {"s", 4}}));
}

TEST_CASE("a dropped version's keys and values are not kept", "[executor]") {
  Worker worker;
  worker.core.Apply(PublishVersion{"publish", "m", 1, "v"});
  SampleRequest request = Sample("s", "v");
  request.tenant_id = "t";
  request.prompt.assign(40, 7);
  worker.core.Apply(request);
  worker.Drain();
  CHECK(worker.core.kv_usage().num_idle == 2);
  worker.core.Apply(DropVersion{"v"});
  CHECK(worker.core.kv_usage().num_idle == 0);
  CHECK(worker.core.kv_usage().num_used == 0);
}

TEST_CASE("a dropped model is gone and its name can be used again", "[executor]") {
  Worker worker;
  worker.Apply({Train("m", 1)});
  worker.core.Apply(DropAdapter{"drop", "m"});
  Answer<OpDone>(worker.Drain(), "drop");
  CHECK(worker.core.ModelStates().empty());
  worker.core.Apply(CreateAdapter{"again", "m", {.rank = 4, .seed = 1}});
  worker.Apply({Train("m", 1)});
  Answer<TrainDone>(worker.Drain(), "m:1");
}

TEST_CASE("training and sampling that come together both finish", "[executor]") {
  Worker worker;
  worker.Apply({Train("m", 1)});
  worker.core.Apply(Sample("s", ""));
  const auto reports = worker.Drain();
  Answer<TrainDone>(reports, "m:1");
  Answer<SampleDone>(reports, "s");
  CHECK(worker.core.counters().decode_passes == 3);
  CHECK(worker.core.counters().generated_tokens == 4);
}

class YieldingModel : public ModelAround {
 public:
  using ModelAround::ModelAround;

 private:
  void BeforeLayer(const at::Tensor&) const override {
    if (HasYieldPoints()) Yield();
  }
};

TEST_CASE("a sample that comes during a training step runs before its end", "[executor]") {
  const YieldingModel model(BaseModel());
  Worker w({}, model);
  w.Apply({Train("m", 1)});
  std::vector<int64_t> prefill_passes;  // at each yield point
  while (w.core.RunUnit([&] {
    if (prefill_passes.empty()) w.core.Apply(Sample("s", ""));
    prefill_passes.push_back(w.core.counters().prefill_passes);
    CHECK(w.core.counters().train_passes == 0);
  })) {
  }
  REQUIRE(prefill_passes.size() > 1);
  CHECK(prefill_passes[1] == 1);
  CHECK(w.State().window == std::vector<int64_t>{1});
}

constexpr absl::Duration kDecodeLayer = absl::Milliseconds(4);
constexpr absl::Duration kForwardLayer = absl::Milliseconds(30);
constexpr absl::Duration kBackwardLayer = absl::Milliseconds(60);

// A model whose steps advance the fake clock.
class TimedModel : public ModelAround {
 public:
  TimedModel(const Model& model, FakeClock*& clock) : ModelAround(model), clock_(clock) {}

  at::Tensor LayerForward(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                          AttentionContext& attention) const override {
    const absl::Time now = clock_->Now();
    if (last_decode != absl::InfinitePast())
      longest_wait = std::max(longest_wait, now - last_decode);
    Spend(kDecodeLayer, sampling);
    last_decode = clock_->Now();
    return ModelAround::LayerForward(layer, x, rows, attention);
  }
  at::Tensor LayerForwardSaving(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                                std::unique_ptr<LayerSaved>* saved) const override {
    Spend(kForwardLayer, training);
    return ModelAround::LayerForwardSaving(layer, x, rows, saved);
  }
  at::Tensor LayerBackward(int64_t layer, const at::Tensor& dy, const PackedRows& rows,
                           std::unique_ptr<LayerSaved> saved,
                           std::vector<AdapterGradients*>& gradients) const override {
    Spend(kBackwardLayer, training);
    return ModelAround::LayerBackward(layer, dy, rows, std::move(saved), gradients);
  }

  mutable absl::Duration sampling;
  mutable absl::Duration training;
  mutable absl::Time last_decode = absl::InfinitePast();
  mutable absl::Duration longest_wait;  // from one decode step to the next

 private:
  void BeforeLayer(const at::Tensor&) const override {}
  void Spend(absl::Duration duration, absl::Duration& total) const {
    clock_->Advance(duration);
    total += duration;
    if (HasYieldPoints()) Yield();
  }

  FakeClock*& clock_;  // belongs to a worker that is made later
};

TEST_CASE(
    "training and sampling get their shares of the device, and no decode pass waits longer "
    "than a step",
    "[executor]") {
  const double share = GENERATE(0.2, 0.5, 0.8);
  CAPTURE(share);
  CoreOptions options;
  options.sampling_share = share;
  FakeClock* clock = nullptr;
  const TimedModel model(BaseModel(), clock);
  Worker worker(options, model);
  clock = &worker.clock;
  SteadyLoad load(worker);
  load.Renew();
  while (model.training + model.sampling < absl::Seconds(60)) {
    worker.core.RunUnit([&] { load.Renew(); });
    load.Renew();
  }
  const double measured = absl::FDivDuration(model.sampling, model.training + model.sampling);
  CHECK(measured == Approx(share).margin(0.02));
  CHECK(worker.core.counters().sampling_time == model.sampling);
  CHECK(worker.core.counters().training_time == model.training);
  CHECK(load.num_trained > 10);
  CHECK(load.num_sampled > 10);
  // Training steps run until they have used the time that training is owed. The last one may exceed
  // it.
  const absl::Duration owed = 2 * kDecodeLayer * (1 - share) / share;
  CHECK(model.longest_wait <= kBackwardLayer + owed);
}

}  // namespace
}  // namespace lathe::worker

#include "services/worker/executor/device_clock.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>

#include "services/worker/executor/device_meter.h"
#include "services/worker/testing/test_core.h"
#include "services/worker/testing/test_gpu.h"

namespace lathe::worker {
namespace {

// Products that take a while on `device`.
void Work(const at::Tensor& x, int num_products) {
  for (int i = 0; i < num_products; ++i) x.matmul(x);
}

// Marks measure work as well as a host does that waits for it.
void CheckClock(at::Device device) {
  const auto clock = MakeDeviceClock(device);
  const int64_t size = device.is_cpu() ? 256 : 4096;
  const at::Tensor x = at::ones({size, size}, at::TensorOptions(at::kFloat).device(device));
  clock->Wait((Work(x, 3), clock->SetMark()));  // libraries load their kernels
  double best = 0;
  // Other processes may take the CPU away between two readings of a clock.
  for (int attempt = 0; attempt < 20 && best < 0.8; ++attempt) {
    const absl::Time began = SteadyNow();
    const DeviceClock::Mark begin = clock->SetMark();
    Work(x, 20);
    const DeviceClock::Mark end = clock->SetMark();
    if (!device.is_cpu()) CHECK_FALSE(clock->HasPassed(end));
    clock->Wait(end);
    CHECK(clock->HasPassed(end));
    const double share = absl::FDivDuration(clock->Between(begin, end), SteadyNow() - began);
    CHECK(share < 1.05);
    best = std::max(best, share);
  }
  CHECK(best >= 0.8);
}

TEST_CASE("DeviceClock: marks measure what a CPU does", "[executor]") { CheckClock(at::kCPU); }

TEST_CASE("DeviceClock: marks measure what a GPU does after the host went on", "[executor][gpu]") {
  if (HasGpu()) CheckClock(TestGpu());
}

// A device that does work long after the host has queued it.
class SimulatedDevice : public DeviceClock {
 public:
  // Takes the host `host_time`, and the device `device_time` once it has done what came before.
  void Queue(absl::Duration host_time, absl::Duration device_time) {
    host_now += host_time;
    idle_at_ = IdleAt() + device_time;
    most_ahead = std::max(most_ahead, idle_at_ - host_now);
  }
  void WaitForAll() { host_now = IdleAt(); }

  Mark SetMark() override {
    marks_[next_] = IdleAt();
    return next_++;
  }
  bool HasPassed(Mark mark) override { return marks_.at(mark) <= host_now; }
  void Wait(Mark mark) override { host_now = std::max(host_now, marks_.at(mark)); }
  absl::Duration Between(Mark begin, Mark end) override {
    CHECK(HasPassed(end));
    return marks_.at(end) - marks_.at(begin);
  }

  absl::Time host_now = absl::UnixEpoch();
  absl::Duration most_ahead;

 private:
  absl::Time IdleAt() const { return std::max(host_now, idle_at_); }

  absl::Time idle_at_ = absl::UnixEpoch();
  std::map<Mark, absl::Time> marks_;
  Mark next_ = 0;
};

struct Metered {
  // Runs a unit that takes the host a millisecond.
  void Unit(DeviceUse use, absl::Duration duration) {
    meter.Begin(use);
    device.Queue(absl::Milliseconds(1), duration);
    meter.End();
  }

  SimulatedDevice device;
  TimeShare share{0.5};
  CoreCounters counters;
  DeviceMeter meter{device, share, counters};
};

TEST_CASE("DeviceMeter: a unit counts when the device has done it, and without the gap before it",
          "[executor]") {
  Metered m;
  m.Unit(DeviceUse::kTraining, absl::Milliseconds(40));
  CHECK(m.counters.training_time == absl::ZeroDuration());
  CHECK(m.device.host_now == absl::UnixEpoch() + absl::Milliseconds(1));
  m.Unit(DeviceUse::kSampling, absl::Milliseconds(7));
  CHECK(m.device.host_now == absl::UnixEpoch() + absl::Milliseconds(41));
  CHECK(m.counters.training_time == absl::Milliseconds(41));
  CHECK(m.counters.sampling_time == absl::ZeroDuration());
  m.meter.Finish();
  CHECK(m.counters.sampling_time == absl::Milliseconds(7));
  m.device.host_now += absl::Seconds(1);  // there is nothing to do
  m.Unit(DeviceUse::kSampling, absl::Milliseconds(5));
  m.meter.Finish();
  CHECK(m.counters.sampling_time == absl::Milliseconds(13));
  CHECK(m.counters.training_time == absl::Milliseconds(41));
}

TEST_CASE("DeviceMeter: a unit without competition that ends during one is not owed back",
          "[executor]") {
  Metered m;
  m.share.Pick(/*has_training=*/true, /*has_sampling=*/false);
  m.Unit(DeviceUse::kTraining, absl::Milliseconds(40));
  CHECK(m.share.Pick(/*has_training=*/true, /*has_sampling=*/true) == DeviceUse::kSampling);
  m.Unit(DeviceUse::kSampling, absl::Milliseconds(7));
  m.meter.Finish();
  CHECK(m.counters.training_time == absl::Milliseconds(41));
  CHECK(m.share.Preferred() == DeviceUse::kTraining);
}

// A model whose layers run on a simulated device.
class QueuedModel : public ModelAround {
 public:
  static constexpr absl::Duration kLaunch = absl::Milliseconds(1);
  static constexpr absl::Duration kDecode = absl::Milliseconds(4);
  static constexpr absl::Duration kForward = absl::Milliseconds(30);
  static constexpr absl::Duration kBackward = absl::Milliseconds(60);

  QueuedModel(const Model& model, SimulatedDevice& device) : ModelAround(model), device_(device) {}

  at::Tensor LayerForward(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                          AttentionContext& attention) const override {
    Spend(kDecode, sampling);
    // The host reads the tokens of a pass.
    if (layer + 1 == spec().num_layers()) device_.WaitForAll();
    longest_gap = std::max(longest_gap, device_.host_now - last_pass);
    if (layer + 1 == spec().num_layers()) last_pass = device_.host_now;
    return ModelAround::LayerForward(layer, x, rows, attention);
  }
  at::Tensor LayerForwardSaving(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                                std::unique_ptr<LayerSaved>* saved) const override {
    Spend(kForward, training);
    return ModelAround::LayerForwardSaving(layer, x, rows, saved);
  }
  at::Tensor LayerBackward(int64_t layer, const at::Tensor& dy, const PackedRows& rows,
                           std::unique_ptr<LayerSaved> saved,
                           std::vector<AdapterGradients*>& gradients) const override {
    Spend(kBackward, training);
    return ModelAround::LayerBackward(layer, dy, rows, std::move(saved), gradients);
  }

  mutable absl::Duration sampling;
  mutable absl::Duration training;
  mutable absl::Time last_pass = absl::UnixEpoch();
  mutable absl::Duration longest_gap;  // from one decode pass to the next

 private:
  void BeforeLayer(const at::Tensor&) const override {}
  void Spend(absl::Duration duration, absl::Duration& total) const {
    device_.Queue(kLaunch, duration);
    total += duration;
  }

  SimulatedDevice& device_;
};

// Keeps both uses busy for a minute of the device's time. Returns the share that sampling got.
double MeasureShare(double share, const QueuedModel& model, DeviceClock& clock) {
  CoreOptions options;
  options.sampling_share = share;
  Worker worker(options, model, &clock);
  SteadyLoad load(worker);
  load.Renew();
  while (model.training + model.sampling < absl::Minutes(1)) {
    worker.core.RunUnit();
    load.Renew();
  }
  CHECK(load.num_trained > 5);
  return absl::FDivDuration(model.sampling, model.training + model.sampling);
}

TEST_CASE("training and sampling get their shares of a device that works behind the host",
          "[executor]") {
  const double share = GENERATE(0.2, 0.5, 0.8);
  CAPTURE(share);
  SimulatedDevice device;
  const QueuedModel model(BaseModel(), device);
  CHECK(MeasureShare(share, model, device) == Approx(share).margin(0.05));
  // A decode pass waits for one unit, and for what training is owed.
  using M = QueuedModel;
  const absl::Duration pass = 2 * (M::kLaunch + M::kDecode);
  CHECK(model.longest_gap <= M::kLaunch + M::kBackward + pass * (1 - share) / share + pass);
  CHECK(device.most_ahead <= M::kBackward + 2 * M::kDecode);
}

TEST_CASE("the host's clock would charge samples with their wait for training", "[executor]") {
  SimulatedDevice device;
  const QueuedModel model(BaseModel(), device);
  HostDeviceClock host([&device] { return device.host_now; });
  CHECK(MeasureShare(0.5, model, host) < 0.1);
  CHECK(device.most_ahead > 5 * QueuedModel::kBackward);
}

TEST_CASE("training without competition is queued two units ahead, so that the device never waits",
          "[executor]") {
  SimulatedDevice device;
  const QueuedModel model(BaseModel(), device);
  Worker worker({}, model, &device);
  worker.Apply({Train("m", 1), Train("m", 2)});
  worker.Drain();
  CHECK(device.most_ahead > QueuedModel::kBackward);
  CHECK(device.most_ahead <= 2 * QueuedModel::kBackward);
  const absl::Duration launches = worker.core.counters().training_time - model.training;
  CHECK(launches >= absl::ZeroDuration());
  CHECK(launches < 10 * QueuedModel::kLaunch);
}

}  // namespace
}  // namespace lathe::worker

// Replays of decode passes by ranks of axis tp, on emulated GPUs.
#include "services/worker/testing/emulated_gpu/replayed_ranks.h"

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/sampling/attention/decode_pass.h"
#include "services/worker/testing/emulated_gpu/emulated_gpu.h"
#include "services/worker/testing/test_family_model.h"

namespace lathe::worker {
namespace {

using Catch::Matchers::Contains;

constexpr int64_t kNumRows = 4;

// Sums halves of the hidden states over the ranks before each layer. Its results are those of
// `model`, and it has the collectives of axis tp.
class SumsHalves : public ModelAround {
 public:
  SumsHalves(const Model& model, const RankGroup& tp) : ModelAround(model), tp_(tp) {}
  const RankGroup& tp() const override { return tp_; }

 private:
  void BeforeLayer(const at::Tensor& x) const override {
    if (tp_.is_alone()) return;
    x.mul_(0.5);
    tp_.Sum("halves", x);
  }

  const RankGroup tp_;
};

// A decode pass of sequences of one token.
class OneTokenPass {
 public:
  OneTokenPass(const Model& model, const RankGroup& tp)
      : model_(model, tp),
        cache_(model.spec(), 600 * KvCache::BytesPerToken(model.spec(), MatmulArithmetic::kBf16),
               MatmulArithmetic::kBf16),
        buffers_(model_, cache_, kNumRows),
        pass_(buffers_.PassOf(kNumRows, /*has_lora=*/false)),
        sequences_(kNumRows) {
    for (size_t i = 0; i < sequences_.size(); ++i) {
      TORCH_CHECK(cache_.Extend(sequences_[i], 1));
      rows_.push_back({.kv = &sequences_[i], .token = static_cast<int32_t>(5 + 7 * i)});
    }
  }

  void Forward() {
    buffers_.SetInputs(rows_, pass_);
    buffers_.Forward(pass_);
  }
  // Queues Forward as a recording, which reads its inputs from the buffers.
  void Replay(EmulatedStream& stream) {
    buffers_.SetInputs(rows_, pass_);
    buffers_.Replay([&] {
      stream.Queue([&] {
        try {
          buffers_.Forward(pass_);
        } catch (const RanksDisagree&) {  // a GPU ends the pass with wrong results
        }
      });
    });
  }
  at::Tensor logits() const { return buffers_.logits(); }

 private:
  const SumsHalves model_;
  KvCache cache_;
  const DecodeBuffers buffers_;
  DecodeBuffers::Pass pass_;
  std::vector<KvSequence> sequences_;
  std::vector<DecodeRow> rows_;
};

// Failures that the ranks' on_failure received.
class Failures {
 public:
  void Add(const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    all_.push_back(status);
  }
  std::vector<absl::Status> all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<absl::Status> all_;
};

// Two ranks whose passes have run once.
class TwoRanks {
 public:
  explicit TwoRanks(const Model& model) {
    for (int rank = 0; rank < 2; ++rank) {
      collectives_[rank].emplace(
          *links_[rank], streams[rank], [this] { links_[1].reset(); },
          CollectivesOptions{.timeout = kTestPatience,
                             .on_failure = [this](const auto& status) { failures.Add(status); },
                             .wait_limit = std::make_shared<WaitLimit>(kLimit)},
          order_, recorder_);
      passes[rank].emplace(model, group(rank));
    }
    InThreads(2, [&](int rank) {
      passes[rank]->Forward();
      return rank;
    });
  }

  RankGroup group(int rank) { return RankGroup(*collectives_[rank]); }

  static constexpr absl::Duration kLimit = absl::Milliseconds(300);
  Failures failures;
  std::optional<OneTokenPass> passes[2];
  EmulatedStream streams[2];

 private:
  FlightRecorder recorder_;
  IssueOrder order_;
  // A rank that leaves ends the other's waits, which is what aborting a communicator does.
  std::vector<std::unique_ptr<Collectives>> links_ =
      MakeLocalCollectives("tp", 2, {.timeout = kTestPatience}, recorder_);
  std::optional<ReplayedCollectives> collectives_[2];
};

Decoder TestModel() {
  return RandomModelOn(EmulatedGpu(), TestFamilySpec("qwen3", 64), at::kBFloat16);
}

}  // namespace

TEST_CASE("Ranks that replay a decode pass get what one rank computes",
          "[collectives][emulated_gpu]") {
  const Decoder model = TestModel();
  OneTokenPass alone(model, {});
  alone.Forward();
  const at::Tensor expected = alone.logits().to(at::kCPU);
  TwoRanks ranks(model);
  InThreads(2, [&](int rank) {
    ranks.passes[rank]->logits().fill_(std::numeric_limits<float>::quiet_NaN());
    for (int i = 0; i < 2; ++i) {
      ranks.passes[rank]->Replay(ranks.streams[rank]);
      ranks.streams[rank].Synchronize();
    }
    return rank;
  });
  for (const auto& pass : ranks.passes) CHECK(at::equal(pass->logits().to(at::kCPU), expected));
  CHECK(ranks.failures.all().empty());
}

TEST_CASE("Replays: one whose peer is gone fails at the deadline and is aborted",
          "[collectives][emulated_gpu]") {
  const Decoder model = TestModel();
  TwoRanks ranks(model);
  ranks.group(0).LimitWaits("rank 1 is gone");  // the deadline is 300 ms from now on
  ranks.passes[0]->Replay(ranks.streams[0]);    // rank 1 replays nothing
  ranks.streams[0].Synchronize();               // returns because of the abort
  const std::vector<absl::Status> failures = ranks.failures.all();
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].code() == absl::StatusCode::kDeadlineExceeded);
  // The pass before had a sum for each of the two layers.
  CHECK_THAT(std::string(failures[0].message()),
             Contains("collective decode pass (replay, number 3) on axis tp, rank 0 of 2") &&
                 Contains("deadline of 300ms is over; before, on this rank: rank 1 is gone"));
  try {
    ranks.passes[0]->Replay(ranks.streams[0]);
    FAIL("a replay was queued after the failure");
  } catch (const RanksDisagree& error) {
    CHECK(error.status == failures[0]);
  }
}

}  // namespace lathe::worker

// Compares replicas that share requests with one rank that runs them all.
#include "services/worker/sampling/data_parallel_sampling.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "services/worker/testing/test_model.h"
#include "services/worker/testing/test_outputs.h"
#include "services/worker/testing/test_ranks.h"
#include "services/worker/testing/test_requests.h"

namespace lathe::worker {
namespace {

struct Seen {
  Outputs outputs;
  std::set<std::string> streamed;        // request, sample, token index, token
  std::map<std::string, int64_t> ended;  // highest number that was reported of each request
  SamplingCounters counters;
  KvUsage kv_usage;         // over all replicas, after the first pass
  bool has_worked = false;  // this rank ran a layer
};

class RecordsWork : public ModelAround {
 public:
  using ModelAround::ModelAround;
  bool has_worked() const { return has_worked_; }

 private:
  void BeforeLayer(const at::Tensor&) const override { has_worked_ = true; }

  mutable bool has_worked_ = false;
};

// Returns options with a small cache and short chunks.
SamplingOptions Small() {
  return {.kv_cache_bytes = 400 * KvCache::BytesPerToken(SmallSpec(), MatmulArithmetic::kFp32),
          .max_prefill_tokens = 23};
}

void Take(DataParallelSampling& sampling, Seen& seen) {
  sampling.RunPass();
  if (seen.kv_usage.num_blocks == 0) seen.kv_usage = sampling.kv_usage();
  for (FinishedSample& finished : sampling.TakeFinished()) {
    TORCH_CHECK(seen.outputs.emplace(finished.request_id, std::move(finished.output)).second);
  }
  for (const SampledToken& token : sampling.TakeStreamed()) {
    seen.streamed.insert(absl::StrCat(token.request_id, " ", token.sample_index, " ",
                                      token.token_index, " ", token.token));
  }
  for (const EndedSequences& ended : sampling.TakeEnded()) {
    TORCH_CHECK(seen.ended[ended.request_id] < ended.num_ended);
    TORCH_CHECK(!seen.outputs.contains(ended.request_id));
    seen.ended[ended.request_id] = ended.num_ended;
  }
}

void Finish(DataParallelSampling& sampling, Seen& seen) {
  for (int pass = 0; sampling.HasWork(); ++pass) {
    TORCH_CHECK(pass < 10000);
    Take(sampling, seen);
  }
  seen.counters = sampling.counters();
}

// Adds one request per pass, or with `one_by_one` each request after the previous one has ended.
Seen RunAll(const Model& model, const std::vector<Asked>& all, const ReplicaPlace& place,
            bool one_by_one = false) {
  const RecordsWork recorded(model);
  DataParallelSampling sampling(recorded, Small(), nullptr, place);
  Seen seen;
  for (const Asked& asked : all) {
    TORCH_CHECK(sampling.Add(asked.request, asked.adapter).ok());
    one_by_one ? Finish(sampling, seen) : Take(sampling, seen);
  }
  Finish(sampling, seen);
  seen.has_worked = recorded.has_worked();
  return seen;
}

// Runs `body` on each of `world` ranks, which form two replicas.
template <typename Body>
auto AsReplicas(int world, Body&& body) {
  return AsRanks(TestBackend::kLocal, world, [&](Collectives& ranks) {
    return body(
        ReplicaPlace{.index = ranks.rank() / (world / 2), .count = 2, .all = RankGroup(ranks)});
  });
}

TEST_CASE("Data-parallel sampling: all ranks know what one rank would have sampled", "[sampling]") {
  const int world = GENERATE(2, 4);
  const Decoder model = SmallModel();
  std::vector<Asked> all;
  for (uint32_t index = 0; index < 20; ++index) {
    all.push_back(AskFor(index));
    all.back().adapter = index % 3 == 0 ? RandomAdapter(2, 5) : nullptr;
    all.back().request.streamed = index % 2 == 0;
  }
  const Seen alone = RunAll(model, all, {});
  const std::vector<Seen> ranks =
      AsReplicas(world, [&](const ReplicaPlace& place) { return RunAll(model, all, place); });
  REQUIRE(alone.outputs.size() == all.size());
  REQUIRE_FALSE(alone.streamed.empty());
  REQUIRE_FALSE(alone.ended.empty());
  for (const Seen& rank : ranks) {
    CHECK(rank.has_worked);
    CHECK(rank.streamed == alone.streamed);
    CHECK(rank.ended == ranks[0].ended);
    CHECK(rank.counters.generated_tokens == alone.counters.generated_tokens);
    REQUIRE(rank.outputs.size() == all.size());
    for (const Asked& asked : all) {
      const std::string& id = asked.request.request_id;
      CAPTURE(world, id);
      const SampleOutput& output = *rank.outputs.at(id);
      Compare(output, *alone.outputs.at(id), IsClose);
      Compare(output, *ranks[0].outputs.at(id), SameBits);
      if (output.target_prompt_logprobs.has_value()) {
        CHECK(output.target_prompt_logprobs->targets == asked.request.targets);
      }
    }
  }
}

TEST_CASE("Data-parallel sampling: every rank counts the blocks of all replicas", "[sampling]") {
  const Decoder model = SmallModel();
  std::vector<Asked> all;
  for (uint32_t index = 0; index < 2; ++index) {
    SampleRequest request{.request_id = std::to_string(index), .prompt = {1, 2, 3}};
    request.params = {.max_tokens = 40, .ignore_eos = true};
    all.push_back({.request = std::move(request)});
  }
  const KvUsage alone = RunAll(model, {all[0]}, {}).kv_usage;
  const auto ranks = AsReplicas(2, [&](const ReplicaPlace& place) {
    DataParallelSampling sampling(model, Small(), nullptr, place);
    Seen seen;
    for (const Asked& asked : all) TORCH_CHECK(sampling.Add(asked.request, nullptr).ok());
    Take(sampling, seen);
    return seen;
  });
  for (const Seen& rank : ranks) {
    CHECK(rank.kv_usage.num_blocks == 2 * alone.num_blocks);
    CHECK(rank.kv_usage.num_used == 2 * alone.num_used);
  }
}

TEST_CASE("Data-parallel sampling: damaged updates end the rank", "[sampling]") {
  const Decoder model = SmallModel();
  const auto ended = AsReplicas(2, [&](const ReplicaPlace& place) {
    if (place.index == 1) {
      SampleOutput output;
      output.target_prompt_logprobs.emplace();
      const std::string bytes =
          Pack({.finished = {{"unknown", output}}, .streamed = {}, .ended = {}});
      constexpr size_t kNumbers = 1 + (sizeof(SamplingCounters) + sizeof(KvUsage)) / 8;
      const at::Tensor header = at::zeros({static_cast<int64_t>(kNumbers)}, at::kLong);
      header[0] = static_cast<int64_t>(bytes.size());
      place.all.Gather("sampling passes", header);
      const at::Tensor piece = at::zeros({static_cast<int64_t>(bytes.size())}, at::kByte);
      std::copy(bytes.begin(), bytes.end(), piece.mutable_data_ptr<uint8_t>());
      place.all.Gather("samples", piece);
      return std::string();
    }
    DataParallelSampling sampling(model, Small(), nullptr, place);
    TORCH_CHECK(sampling.Add(AskFor(1).request, nullptr).ok());
    try {
      sampling.RunPass();
    } catch (const RanksDisagree& error) {
      return std::string(error.status.message());
    }
    return std::string("went on");
  });
  CHECK_THAT(ended[0], Catch::StartsWith("exchange of samples failed: "));
}

TEST_CASE("Data-parallel sampling: requests with equal beginnings share a replica, up to a point",
          "[sampling]") {
  const Decoder model = SmallModel();
  std::vector<Asked> all;
  for (uint32_t index = 0; index < 6; ++index) {
    SampleRequest request{.request_id = std::to_string(index), .tenant_id = "t"};
    for (int i = 0; i < 70; ++i) request.prompt.push_back(i);
    request.params = {.max_tokens = 40, .seed = index, .ignore_eos = true};
    all.push_back({.request = std::move(request)});
  }
  const auto run = [&](bool one_by_one) {
    return AsReplicas(
        2, [&](const ReplicaPlace& place) { return RunAll(model, all, place, one_by_one); });
  };
  const std::vector<Seen> calm = run(/*one_by_one=*/true);
  CHECK(calm[0].counters.prompt_hit_tokens == 5 * 64);
  CHECK_FALSE(calm[1].has_worked);
  const std::vector<Seen> busy = run(/*one_by_one=*/false);
  CHECK(busy[1].has_worked);
}

// Every pass of the model throws if `is_broken`.
class ThrowsAt : public ModelAround {
 public:
  ThrowsAt(const Model& model, bool is_broken) : ModelAround(model), is_broken_(is_broken) {}

 private:
  void BeforeLayer(const at::Tensor&) const override { TORCH_CHECK(!is_broken_, "a broken layer"); }

  const bool is_broken_;
};

TEST_CASE("Data-parallel sampling: what a pass throws fails its requests, for all ranks",
          "[sampling]") {
  const Decoder model = SmallModel();
  std::vector<Asked> all;
  for (uint32_t index = 0; index < 8; ++index) all.push_back(AskFor(index));
  const std::vector<Seen> ranks = AsReplicas(2, [&](const ReplicaPlace& place) {
    return RunAll(ThrowsAt(model, place.index == 1), all, place);
  });
  int num_failed = 0;
  for (const auto& [id, output] : ranks[0].outputs) {
    CHECK(output.status() == ranks[1].outputs.at(id).status());
    num_failed += output.ok() ? 0 : 1;
  }
  CHECK(ranks[0].outputs.size() == 8);
  CHECK((num_failed > 0 && num_failed < 8));
}

TEST_CASE("Data-parallel sampling: a rank that differs from its replica ends all", "[sampling]") {
  const Decoder model = SmallModel();
  const auto ended = AsRanks(TestBackend::kLocal, 4, [&](Collectives& ranks) {
    const ReplicaPlace place{.index = ranks.rank() / 2, .count = 2, .all = RankGroup(ranks)};
    try {
      RunAll(ThrowsAt(model, ranks.rank() == 3), {AskFor(1), AskFor(2), AskFor(3)}, place);
    } catch (const RanksDisagree& error) {
      return std::string(error.status.message());
    }
    return std::string();
  });
  for (const std::string& message : ended) {
    CHECK(message == "rank 3 has sampled other tokens than rank 2 of the same replica");
  }
}

TEST_CASE("Data-parallel sampling: a rank that has thrown waits for its replica for a short time",
          "[sampling]") {
  const Decoder model = SmallModel();
  FlightRecorder recorder;
  const auto ranks = MakeLocalCollectives(
      "all", 2,
      {.timeout = kTestPatience, .wait_limit = std::make_shared<WaitLimit>(absl::Milliseconds(10))},
      recorder);
  const RankGroup all(*ranks[1]);
  const ThrowsAt broken(model, true);
  DataParallelSampling sampling(broken, Small(), nullptr, {.all = all});
  REQUIRE(sampling.Add(AskFor(1).request, nullptr).ok());
  sampling.RunPass();
  CHECK(absl::IsInternal(sampling.TakeFinished().at(0).output.status()));
  try {
    all.Gather("round", at::zeros({1}));
    FAIL("no other rank came");
  } catch (const RanksDisagree& error) {
    CHECK(absl::IsDeadlineExceeded(error.status));
    CHECK_THAT(std::string(error.status.message()),
               Catch::Contains("; before, on this rank: sampling pass failed: "));
  }
}

TEST_CASE("Data-parallel sampling: refused and cancelled requests are so on all ranks",
          "[sampling]") {
  const Decoder model = SmallModel();
  const auto ranks = AsReplicas(2, [&](const ReplicaPlace& place) {
    DataParallelSampling sampling(model, Small(), nullptr, place);
    Seen seen;
    SampleRequest long_prompt{.request_id = "long", .prompt = std::vector<int32_t>(1000, 1)};
    seen.outputs.emplace("long", sampling.Add(long_prompt, nullptr));
    for (uint32_t index = 0; index < 6; ++index) {
      TORCH_CHECK(sampling.Add(AskFor(index).request, nullptr).ok());
    }
    seen.outputs.emplace("again", sampling.Add(AskFor(5).request, nullptr));
    sampling.RunPass();
    sampling.Cancel("4");
    sampling.Cancel("5");
    sampling.Cancel("unknown");
    Finish(sampling, seen);
    return seen;
  });
  for (const Seen& rank : ranks) {
    CHECK(absl::IsResourceExhausted(rank.outputs.at("long").status()));
    CHECK(absl::IsAlreadyExists(rank.outputs.at("again").status()));
    CHECK(rank.outputs.size() == 2 + 4);
    CHECK(rank.outputs.count("4") == 0);
  }
}

}  // namespace
}  // namespace lathe::worker

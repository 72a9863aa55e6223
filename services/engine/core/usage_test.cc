#include "services/engine/core/usage.h"

#include <catch2/catch.hpp>

#include "services/engine/core/testing/core_harness.h"

namespace lathe::engine {
namespace {

constexpr int64_t kHour = 3600 * kSecond;

struct Used {
  CoreHarness h;
  std::string session;
  std::string model;

  Used() {
    h.AttachWorker();
    session = h.NewSession();
    model = h.NewModel(session);
  }

  void Train(int64_t seq, OperationKind kind, int64_t tokens) {
    h.Train(model, seq, kind, "", "t", tokens);
  }

  // Sum of all rows. Storage counts once, as it is a level.
  UsageRow Total() const {
    UsageRow total;
    for (const UsageRow& row : h.store.usage()) {
      CHECK(row.tenant_id == "t");
      CHECK(row.base_model == "base");
      CHECK(row.session_id == (row.stored_bytes > 0 ? "" : session));
      CHECK(row.hour % kHour == 0);
      total.forward_tokens += row.forward_tokens;
      total.forward_backward_tokens += row.forward_backward_tokens;
      total.prefill_tokens += row.prefill_tokens;
      total.cached_prefill_tokens += row.cached_prefill_tokens;
      total.sampled_tokens += row.sampled_tokens;
      total.num_checkpoints += row.num_checkpoints;
      total.stored_bytes = std::max(total.stored_bytes, row.stored_bytes);
    }
    return total;
  }
};

TEST_CASE("Usage: passes, samples and saves are counted by kind", "[core]") {
  Used t;
  t.Train(1, OperationKind::kForward, 5);
  t.Train(2, OperationKind::kForwardBackward, 7);
  t.Train(3, OperationKind::kForwardBackward, 11);
  t.h.Step(t.model, 4);
  t.h.Save(t.model, 5, {.name = "a"});
  t.h.Save(t.model, 6, {.sampling_session_seq_id = 9}, OperationKind::kSaveWeightsForSampler);
  t.h.RunWorker();
  t.h.Sample(t.session + ":sample:9", 1, {2, 3, 6, false, 0});
  CHECK(t.Total().sampled_tokens == 0);
  t.h.RunWorker();
  const UsageRow total = t.Total();
  CHECK(total.forward_tokens == 5);
  CHECK(total.forward_backward_tokens == 18);
  CHECK(total.prefill_tokens == 2);
  CHECK(total.cached_prefill_tokens == 1);
  CHECK(total.sampled_tokens == 6);
  CHECK(total.num_checkpoints == 1);
  CHECK(t.h.store.usage().size() == 5);
}

TEST_CASE("Usage: failed requests are not counted", "[core]") {
  Used t;
  t.h.worker->FailOnce(t.model, 1, {absl::StatusCode::kInvalidArgument, "bad", "", "bad"});
  t.Train(1, OperationKind::kForwardBackward, 7);
  t.h.RunWorker();
  CHECK(t.h.store.usage().empty());
}

TEST_CASE("Usage: a result that a crash undid is counted when it is there again", "[core]") {
  Used t;
  t.Train(1, OperationKind::kForwardBackward, 7);
  const bool is_durable = GENERATE(false, true);
  t.h.HoldCommits();
  t.h.RunWorkerOnce();
  REQUIRE(t.h.HasCommits());
  if (is_durable) t.h.CommitAll();
  t.h.RestartEngine();
  t.h.ReattachWorker();
  t.h.CommitAll();
  t.h.RunWorker();
  t.h.CommitAll();
  CHECK(t.Total().forward_backward_tokens == 7);
}

TEST_CASE("Usage: what is stored is seen once in each hour", "[core]") {
  Used t;
  t.h.Save(t.model, 1, {.name = "a"});
  t.h.Save(t.model, 2, {.name = "b"});
  t.h.RunWorker();
  t.h.Tick();
  CHECK(t.Total().stored_bytes == 200);
  const size_t rows = t.h.store.usage().size();
  t.h.Tick();
  CHECK(t.h.store.usage().size() == rows);
  t.h.Post(DeleteCheckpoint{++t.h.last_call, "t", "tinker://" + t.model + "/weights/b"});
  t.h.Advance(kHour);
  REQUIRE(t.h.store.usage().size() == rows + 1);
  CHECK(t.h.store.usage().back().stored_bytes == 100);
  CHECK(t.h.store.usage().back().hour == t.h.now - t.h.now % kHour);
}

}  // namespace
}  // namespace lathe::engine

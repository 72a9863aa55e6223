// Sampling of versions on groups other than the one that trains their model.
#include <catch2/catch.hpp>
#include <string>

#include "services/engine/core/testing/role_groups.h"

namespace lathe::engine {
namespace {

constexpr int64_t kPastGroupLoss = 61 * kSecond;

TEST_CASE("Versions: a home that has an earlier publication only reads the newest", "[core]") {
  const bool engine_too = GENERATE(false, true);
  Roles t(GroupRole::kBoth, GroupRole::kBoth);
  Step(t.h, t.model, 1);
  t.PublishInflight(3, 0);
  Step(t.h, t.model, 4);
  Snapshot(t.h);
  t.h.DetachWorker();
  t.h.Sample(t.sampler, 0);  // runs on the group that can read the file
  REQUIRE(t.LastLoad().inflight_seq_id == 3);
  t.h.ReattachWorker();
  t.PublishInflight(6, 1);
  Step(t.h, t.model, 7);
  Snapshot(t.h);
  t.h.DetachWorker(/*process_gone=*/true);
  t.h.Advance(kPastGroupLoss);
  t.h.RunWorker();
  REQUIRE(t.h.store.models().at(t.model).group == "h");
  if (engine_too) t.h.RestartEngine();
  t.h.ReattachOther("h");
  t.h.RunWorker();
  const CallId sample = t.h.Sample(t.sampler, 1);
  t.h.RunWorker();
  CHECK(t.h.Done(sample));
  CHECK(t.LastLoad().inflight_seq_id == 6);
  CHECK(t.other->VersionWeights(t.version) == Words{"step 2 [1]", "step 5 [4]"});
}

TEST_CASE("Versions: a worker that has the newest publication is not sent a load", "[core]") {
  Roles t;
  t.Train(1);
  t.PublishInflight(3, 0);
  t.h.Sample(t.sampler, 0);
  t.h.RunWorker();
  t.h.ReattachOther("h");
  t.h.Sample(t.sampler, 1);
  t.h.RunWorker();
  CHECK(t.other->Received<SendLoadVersion>().size() == 1);
}

TEST_CASE("Versions: files of an earlier publication stay while a group may read them", "[core]") {
  Roles t;
  t.Train(1);
  t.PublishInflight(3, 0);
  const std::string first = t.Dir();
  t.other->loads_versions = false;
  const CallId sample = t.h.Sample(t.sampler, 0);
  REQUIRE(t.LastLoad().dir == first);
  t.Train(4);
  t.PublishInflight(6, 1);
  REQUIRE(t.Dir() != first);
  CHECK(t.h.deleted_dirs.count(first) == 0);

  SECTION("until it has loaded a later one, which is reported at once") {
    CHECK(t.LastLoad().inflight_seq_id == 6);
    t.ReportLoaded(3);
    CHECK(t.h.deleted_dirs.count(first) == 0);
    t.ReportLoaded(6);
    CHECK(t.h.deleted_dirs.count(first) == 1);
  }
  SECTION("until it could not load a later one") {
    t.h.Post(t.other->LoseVersion(t.version));
    CHECK(t.h.deleted_dirs.count(first) == 1);
  }
  SECTION("until its process is gone") {
    t.h.Post(WorkerDetached{"h", /*process_gone=*/true});
    CHECK(t.h.deleted_dirs.count(first) == 1);
  }
  SECTION("until no sample uses it any more") {
    t.h.RunWorker();
    REQUIRE(t.h.Done(sample));
    t.h.Post(FinishSession{++t.h.last_call, "t", t.session, "success", ""});
    t.h.RunWorker();
    CHECK(t.h.deleted_dirs.count(first) == 1);
  }
}

TEST_CASE("Versions: an earlier publication without readers is removed at once", "[core]") {
  Roles t;
  t.Train(1);
  t.PublishInflight(3, 0);
  const std::string first = t.Dir();
  t.Train(4);
  t.PublishInflight(6, 1);
  CHECK(t.h.deleted_dirs.count(first) == 1);
  CHECK(t.other->Received<SendLoadVersion>().empty());  // it is not loaded either
}

}  // namespace
}  // namespace lathe::engine

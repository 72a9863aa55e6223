// Transfers sampler versions from the memory of one executor to another one.
#include <catch2/catch.hpp>

#include <optional>
#include <string>

#include "services/worker/testing/test_core.h"
#include "services/worker/testing/test_group.h"
#include "services/worker/testing/test_random_folder.h"

namespace lathe::worker {
namespace {

VersionServed Serve(Worker& worker, const std::string& version_id, int64_t num_reads = 1) {
  worker.core.Apply(ServeVersion{version_id, "h", num_reads});
  std::optional<VersionServed> served;
  for (const ReportEvent& event : worker.Drain()) {
    if (const auto* report = std::get_if<VersionServed>(&event.report)) served = *report;
  }
  REQUIRE(served.has_value());
  CHECK(served->reader == "h");
  return *served;
}

LoadVersion LoadServed(const std::string& version_id, int64_t seq_id, bool is_inflight = false) {
  return {.version_id = version_id,
          .dir = "",
          .inflight_seq_id = is_inflight ? seq_id : 0,
          .source = VersionAddress{"somewhere", "token"},
          .source_seq_id = seq_id};
}

SampledSequence SequenceFrom(Worker& worker, const std::string& version_id) {
  worker.core.Apply(Sample("s", version_id));
  return Answer<SampleDone>(worker.Drain(), "s").output.sequences.at(0);
}

// A worker that has taken a step and published a version, and a worker that reads from it.
struct Pair {
  Pair() {
    source.Apply({Train("m", 1)});
    source.core.Apply(Step("m", 2, 0, {1}));
    source.core.Apply(PublishVersion{"publish", "m", 3, "v"});
    reader.reader.from = &source.served_versions;
  }
  Worker source;
  Worker reader;
};

TEST_CASE("a version that is read from memory samples as where it was published", "[versions]") {
  Pair t;
  const VersionServed served = Serve(t.source, "v");
  CHECK(served.status.ok());
  CHECK(served.seq_id == 3);
  t.reader.core.Apply(LoadServed("v", 3));
  CHECK(t.reader.core.Versions().at(0).is_loading);
  const auto reports = t.reader.Drain();
  CHECK(std::get<VersionLoaded>(reports.at(0).report).version_id == "v");
  CHECK((t.reader.core.Versions().at(0) == HeldVersion{"v", 3}));
  const SampledSequence here = SequenceFrom(t.source, "v");
  const SampledSequence there = SequenceFrom(t.reader, "v");
  CHECK(here.tokens == there.tokens);
  CHECK(here.logprobs == there.logprobs);
}

TEST_CASE("training goes on beside reads of what it has published", "[versions]") {
  Pair t;
  Serve(t.source, "v");
  const auto taken = *t.source.served_versions.Take("v", 3);
  const auto bytes = [](const ServedVersion& version) {
    return std::string(static_cast<const char*>(version.data), version.header.num_bytes);
  };
  const std::string published = bytes(*taken);
  // Nothing else holds the weights after that, and each step may reuse free memory.
  t.source.core.Apply(DropVersion{"v"});
  int64_t applied = 2;
  for (const int64_t seq : {4, 6, 8}) {
    t.source.Apply({Train("m", seq)});
    t.source.core.Apply(Step("m", seq + 1, applied, {seq}));
    t.source.Drain();
    applied = seq + 1;
  }
  const bool is_as_published = bytes(*taken) == published;
  CHECK(is_as_published);
  t.source.core.Apply(PublishVersion{"again", "m", 10, "w"});
  Serve(t.source, "w");
  const bool has_learned = bytes(**t.source.served_versions.Take("w", 10)) != published;
  CHECK(has_learned);
}

TEST_CASE("a version that was read from memory can be saved, and leaves memory as others do",
          "[versions]") {
  const int64_t bytes =
      4 * Adapter(WholeModel(SmallSpec()), LoraSpec{.rank = 4}, at::kCPU).num_parameters();
  Worker source;
  source.core.Apply(PublishVersion{"publish", "m", 3, "v"});
  Serve(source, "v");
  Worker reader({.model_ops = {.version_bytes = bytes}});
  reader.reader.from = &source.served_versions;
  reader.core.Apply(LoadServed("v", 3));
  reader.Drain();
  reader.core.Apply(PublishVersion{"publish", "m", 1, "other"});
  reader.Drain();
  SequenceFrom(reader, "other");  // evicts "v"
  CHECK(reader.core.counters().version_evictions == 1);
  CHECK(SequenceFrom(reader, "v").tokens == SequenceFrom(source, "v").tokens);
  reader.core.Apply(SaveVersion{"v", "saved", "{}"});
  const auto reports = reader.Drain();
  const auto& saved = std::get<VersionSaved>(reports.back().report);
  CHECK(saved.status.ok());
  CHECK(saved.seq_id == 3);
  CHECK(reader.store.Describe("saved")->model_id == "m");
}

TEST_CASE("a version that cannot be read fails the load and nothing else", "[versions]") {
  Pair t;
  t.reader.core.Apply(LoadServed("v", 3));  // not served
  auto reports = t.reader.Drain();
  CHECK(absl::IsNotFound(std::get<VersionFailed>(reports.at(0).report).status));
  CHECK(t.reader.core.Versions().empty());
  Serve(t.source, "v");
  t.reader.core.Apply(LoadServed("v", 4));  // another publication
  t.reader.Drain();
  CHECK(t.reader.core.Versions().empty());
  t.reader.core.Apply(LoadServed("v", 3));
  t.reader.Drain();
  CHECK(t.reader.core.Versions().size() == 1);
}

TEST_CASE("a version of another base model, or of another size, is not read", "[versions]") {
  Pair t;
  Serve(t.source, "v");
  ServedVersion served = **t.source.served_versions.Take("v", 3);
  const bool is_of_another_base = GENERATE(true, false);
  if (is_of_another_base) {
    served.header.base_content_hash = "another";
  } else {
    served.header.num_bytes -= 4;
  }
  t.source.served_versions.Put("v", served, 1);
  t.reader.core.Apply(LoadServed("v", 3));
  const auto reports = t.reader.Drain();
  const absl::Status status = std::get<VersionFailed>(reports.at(0).report).status;
  CHECK(status.code() ==
        (is_of_another_base ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kDataLoss));
}

TEST_CASE("what is not here is not served, what is being published is when it is", "[versions]") {
  Pair t;
  CHECK(absl::IsNotFound(Serve(t.source, "none").status));
  t.source.core.Apply(PublishVersion{"again", "m", 4, "w"});
  t.source.core.Apply(ServeVersion{"w", "h", 1});
  const auto reports = t.source.Drain();
  CHECK(std::get<VersionServed>(reports.back().report).seq_id == 4);
  t.source.core.Apply(DropVersion{"w"});
  CHECK(absl::IsNotFound(t.source.served_versions.Take("w", 4).status()));
}

TEST_CASE("samples of an inflight version go on with a publication that is read from memory",
          "[versions]") {
  Worker source;
  Worker reader;
  reader.reader.from = &source.served_versions;
  const auto publish = [&](int64_t seq_id) {
    source.core.Apply(PublishVersion{.request_id = "p",
                                     .model_id = "m",
                                     .seq_id = seq_id,
                                     .version_id = "m@inflight",
                                     .is_inflight = true});
    source.Drain();
    Serve(source, "m@inflight");
    reader.core.Apply(LoadServed("m@inflight", seq_id, /*is_inflight=*/true));
  };
  publish(1);
  reader.RunVersionJob();
  SampleRequest request = Sample("long", "m@inflight");
  request.params.max_tokens = 20;
  reader.core.Apply(request);
  for (int unit = 0; unit < 5; ++unit) reader.core.RunUnit();
  publish(6);
  reader.RunVersionJob();
  const auto output = Answer<SampleDone>(reader.Drain(), "long").output;
  const auto runs = output.sequences.at(0).weights_runs;
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].seq_id == 1);
  CHECK(runs[1].seq_id == 6);
}

TEST_CASE("groups of several ranks serve and read versions", "[executor][ranks]") {
  const TempDir model;
  WriteRandomFolder(model.path(), {.num_layers = 2});
  const MeshShape from = GENERATE(MeshShape{.tp = 2}, MeshShape{.dp = 2});
  const MeshShape to = GENERATE(MeshShape{.tp = 2}, MeshShape{});
  ServedVersions served;
  DirectReader reader;
  reader.from = &served;
  Group source(model.path(), {.mesh = from, .versions = {.served = &served}});
  Group readers(model.path(), {.mesh = to, .versions = {.reader = &reader}});
  source.Send(CreateAdapter{"create", "m", {.rank = 4, .seed = 1}});
  source.Send(TrainBatch{{Train("m", 1)}});
  source.Send(Step("m", 2, 0, {1}));
  source.Send(PublishVersion{"publish", "m", 3, "v"});
  source.Send(ServeVersion{"v", "h", to.world()});
  REQUIRE(source.AwaitAs<VersionServed>("served:v").status.ok());
  readers.Send(LoadServed("v", 3));
  source.Send(Sample("s", "v"));
  readers.Send(Sample("s", "v"));
  const auto here = source.AwaitAs<SampleDone>("s").output.sequences.at(0);
  const auto there = readers.AwaitAs<SampleDone>("s").output.sequences.at(0);
  CHECK(here.tokens == there.tokens);
  CHECK(absl::IsNotFound(served.Take("v", 3).status()));  // every rank has read it once
  source.Stop();
  readers.Stop();
}

}  // namespace
}  // namespace lathe::worker

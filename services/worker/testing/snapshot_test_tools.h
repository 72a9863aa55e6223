// Takes snapshots of a worker under test and compares their content.
#pragma once

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "services/worker/formats/safetensors/sha256.h"
#include "services/worker/testing/test_core.h"

namespace lathe::worker {

// Returns the only report of type T. Fails the test otherwise.
template <typename T>
T Only(const std::vector<ReportEvent>& reports) {
  std::vector<T> found;
  for (const ReportEvent& event : reports) {
    if (const auto* report = std::get_if<T>(&event.report)) found.push_back(*report);
  }
  REQUIRE(found.size() == 1);
  return found[0];
}

inline Snapshot SnapshotOf(const std::string& model_id, const std::string& dir) {
  return {.snapshot_id = dir, .model_id = model_id, .dir = dir, .manifest_json = "{}"};
}

// Takes a snapshot and waits until it is written.
inline SnapshotDone TakeSnapshot(Worker& worker, const std::string& model_id,
                                 const std::string& dir) {
  worker.core.Apply(SnapshotOf(model_id, dir));
  SnapshotDone done = Only<SnapshotDone>(worker.Drain());
  REQUIRE(done.status.ok());
  return done;
}

using Files = std::map<std::string, std::string>;  // contents by name

inline Files ReadFiles(const std::filesystem::path& dir) {
  Files files;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return files;
}

// Returns the whole state of the model, byte for byte.
inline Files StateOf(Worker& worker, const std::string& model_id) {
  TakeSnapshot(worker, model_id, "state");
  return ReadFiles(worker.dir / "state");
}

inline void CheckSame(const Files& actual, const Files& expected) {
  REQUIRE(actual.size() == expected.size());
  for (const auto& [name, content] : expected) {
    INFO(name);
    REQUIRE(actual.contains(name));
    const bool is_same = actual.at(name) == content;
    CHECK(is_same);
  }
}

// Copies a directory of one worker's store to another one's.
inline void CopyDir(Worker& from, Worker& to, const std::string& dir) {
  std::filesystem::copy(from.dir / dir, to.dir / dir, std::filesystem::copy_options::recursive);
}

inline absl::StatusOr<ModelState> TryRestore(Worker& worker, const std::string& model_id,
                                             const std::string& dir) {
  worker.core.Apply(RestoreAdapter{"restore", model_id, dir});
  for (const ReportEvent& event : worker.Drain()) {
    if (const auto* failed = std::get_if<OpFailed>(&event.report)) return failed->status;
    if (std::holds_alternative<OpDone>(event.report)) return *event.model;
  }
  return absl::InternalError("no report");
}

inline ModelState Restore(Worker& worker, const std::string& model_id, const std::string& dir) {
  absl::StatusOr<ModelState> state = TryRestore(worker, model_id, dir);
  INFO(state.status());
  REQUIRE(state.ok());
  return *std::move(state);
}

}  // namespace lathe::worker

// The sampler versions of this process: immutable copies of adapters, in memory or on disk.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/worker/executor/versions/recovery_files.h"
#include "services/worker/executor/versions/version_files.h"
#include "services/worker/lora/adapter_weights.h"
#include "services/worker/ops/counters.h"

namespace lathe::worker {

struct SamplerVersion {
  std::shared_ptr<const AdapterWeights> weights;  // nullptr: the base model
  // For an inflight version: seq_id of the publication that made the weights. 0: the weights never
  // change.
  int64_t inflight_seq = 0;
  Publication publication;
};

// Counts the versions in memory, and the memory of their weights. Weights that two versions share
// count once.
class WeightsInMemory {
 public:
  // A null `weights` is not counted.
  void Add(const AdapterWeights* weights);
  void Remove(const AdapterWeights* weights);

  int64_t num_versions() const { return num_versions_; }
  int64_t num_bytes() const { return num_bytes_; }

 private:
  std::map<const AdapterWeights*, int64_t> num_users_;
  int64_t num_versions_ = 0;
  int64_t num_bytes_ = 0;
};

// While memory is short, versions that no sample holds leave memory, the least recently used first.
// A version that a checkpoint has is dropped; any other version is spilled to disk. A version is
// read again when a sample needs it. Keys and values computed with it are kept.
//
// Executor thread only. `jobs` must outlive it. Running samples keep the weights of a dropped
// version alive.
class VersionTable {
 public:
  // Its jobs carry `generation`. Results of other generations are ignored.
  VersionTable(VersionJobs& jobs, int64_t generation) : jobs_(jobs), generation_(generation) {}

  // Adds a version that is in memory. Replaces the id's previous content.
  void Put(const std::string& version_id, SamplerVersion version);
  // Starts to read a version, before a sample needs it. Does nothing if the id is known and has not
  // failed, unless the command has a later publication of an inflight version. Returns true if the
  // version is here already, so that no job will report it.
  bool Load(const LoadVersion& command);
  void Drop(const std::string& version_id);

  // Returns true if Find has its final answer: weights or an error. Returns false if the weights
  // are being read; Finish reports the end of the read. ResourceExhausted: too many reads are
  // waiting.
  absl::StatusOr<bool> Fetch(const std::string& version_id);
  // Returns the base model for the empty id. If reading failed, returns that error. NotFound:
  // unknown, or its weights were not fetched.
  absl::StatusOr<SamplerVersion> Find(const std::string& version_id) const;

  // A read that ended and that samples may have waited for.
  struct EndedRead {
    std::string version_id;
    bool is_load = false;  // true for a Load, false for a version that had left memory
  };
  // Takes the result of a job.
  std::optional<EndedRead> Finish(VersionJobDone done);

  // Returns the job that writes a version, in memory or not. The version is not spilled before
  // FinishSave. After a successful save it is read from that directory. NotFound: unknown version.
  absl::StatusOr<WriteVersion> BeginSave(const SaveVersion& command);
  void FinishSave(const RecoveryJobDone& done);

  // A version stays in memory while samples hold it. Every Hold needs one Release.
  void Hold(const std::string& version_id);
  void Release(const std::string& version_id);

  // Reduces memory use to `max_bytes`, except for versions that samples hold. Spills continue after
  // this call.
  void Fit(int64_t max_bytes);

  // Call after the samples that waited for the id have failed. Makes the next Fetch read spilled
  // weights again, unless they are damaged. A failed version of a checkpoint must be loaded anew
  // instead.
  void ForgetFailure(const std::string& version_id);

  // Returns true if the version is known and its weights were not found unreadable.
  bool Has(const std::string& version_id) const;
  std::vector<HeldVersion> Held() const;  // versions that Has accepts, ascending
  int64_t NumInMemory() const { return in_memory_.num_versions(); }
  int64_t NumBytes() const { return in_memory_.num_bytes(); }
  int64_t NumStayingBytes() const;  // bytes that samples hold or the disk refused
  const VersionCounters& counters() const { return counters_; }

 private:
  struct Entry {
    SamplerVersion version;            // without weights: not in memory
    std::string dir;                   // checkpoint that has it; empty: none
    std::optional<ReadServed> served;  // source of a pending load
    std::optional<SpilledWeights> spilled;
    int64_t ticket = 0;       // job that reads or spills it; 0: none
    int64_t save_ticket = 0;  // job that saves it; 0: none
    bool is_loading = false;  // no read has ended since Load
    absl::Status failure;
    bool cannot_spill = false;  // a spill failed, and none has succeeded since
    int64_t last_used = 0;
  };

  absl::Status NotHere(const std::string& version_id) const;
  // Returns true if reading spilled weights failed, but may succeed later.
  static bool IsReadAgain(const Entry& entry);
  absl::Status Read(const std::string& version_id, Entry& entry);
  absl::Status Enqueue(const std::string& version_id, Entry& entry,
                       decltype(VersionJob::work) work);
  std::vector<std::pair<const std::string, Entry>*> Evictable();
  int64_t Touch() { return ++num_uses_; }

  VersionJobs& jobs_;
  const int64_t generation_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, int64_t> num_holders_;  // by version id, dropped versions included
  WeightsInMemory in_memory_;
  int64_t last_ticket_ = 0;
  int64_t num_uses_ = 0;
  bool is_spilling_ = false;  // one spill at a time, so that no read waits for several
  bool may_not_fit_ = false;  // something has changed since the last Fit
  int64_t fitted_bytes_ = 0;  // limit of the last Fit
  VersionCounters counters_;
};

}  // namespace lathe::worker

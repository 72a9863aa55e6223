// Sampler versions this process has: immutable copies of adapters, in memory or on disk.
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
#include "services/worker/executor/recovery_files.h"
#include "services/worker/executor/version_files.h"
#include "services/worker/lora/adapter_weights.h"

namespace lathe::worker {

struct SamplerVersion {
  std::shared_ptr<const AdapterWeights> weights;  // nullptr: the base model
  // Inflight: seq_id of the publication that the weights come from. 0: they never change.
  int64_t inflight_seq = 0;
  Publication publication;
};

// Sums since the start.
struct VersionCounters {
  int64_t loads = 0;  // from disk, those that failed too
  absl::Duration loading;
  int64_t evictions = 0;
};

// How many versions have weights, and how much memory these take: those of two versions once.
class WeightsInMemory {
 public:
  // `weights` null: nothing.
  void Add(const AdapterWeights* weights);
  void Remove(const AdapterWeights* weights);

  int64_t num_versions() const { return num_versions_; }
  int64_t num_bytes() const { return num_bytes_; }

 private:
  std::map<const AdapterWeights*, int64_t> num_users_;
  int64_t num_versions_ = 0;
  int64_t num_bytes_ = 0;
};

// Versions that no sample holds go to disk while there is no room for all, the one that was used
// longest ago first: those that a checkpoint has are dropped, others are spilled. They come back
// when a sample wants them. Keys and values that were computed with them stay where they are.
//
// Executor thread only; `jobs` must outlive it. Samples that run keep the weights of a dropped
// version alive.
class VersionTable {
 public:
  // Its jobs carry `generation`, and others' are ignored.
  VersionTable(VersionJobs& jobs, int64_t generation) : jobs_(jobs), generation_(generation) {}

  // In memory; replaces what the id had.
  void Put(const std::string& version_id, SamplerVersion version);
  // From a checkpoint, read beforehand. Nothing if the id is known and did not fail, unless what is
  // known is an earlier publication of an inflight version.
  // True: it is here already, and no job will tell.
  bool Load(const LoadVersion& command);
  void Drop(const std::string& version_id);

  // True: Find has the answer. False: the weights are being read; Finish tells when they are here.
  // ResourceExhausted: too many are.
  absl::StatusOr<bool> Fetch(const std::string& version_id);
  // The base model for the empty id. The error if reading failed, else NotFound, also of a version
  // that was not fetched.
  absl::StatusOr<SamplerVersion> Find(const std::string& version_id) const;

  // A read that ended, and that samples may have waited for.
  struct EndedRead {
    std::string version_id;
    bool is_load = false;  // of a Load, and not of what had left memory
  };
  // What a job gave.
  std::optional<EndedRead> Finish(VersionJobDone done);

  // What is to be written of a version that is here, in memory or not; it is not spilled until
  // FinishSave, and afterwards its directory has it. Errors as Find.
  absl::StatusOr<WriteVersion> BeginSave(const SaveVersion& command);
  void FinishSave(const RecoveryJobDone& done);

  // While a sample runs, its version stays in memory. As many Releases as Holds.
  void Hold(const std::string& version_id);
  void Release(const std::string& version_id);

  // Makes what is in memory fit `max_bytes`, as far as no sample holds it. Spills go on when others
  // are finished.
  void Fit(int64_t max_bytes);

  // After the samples that waited for the id have ended: its next Fetch reads again, unless the
  // bytes themselves are damaged, or a checkpoint has them, which is loaded anew.
  void ForgetFailure(const std::string& version_id);

  // Known, and its weights were not found to be unreadable.
  bool Has(const std::string& version_id) const;
  std::vector<HeldVersion> Held() const;  // those, ascending
  int64_t NumInMemory() const { return in_memory_.num_versions(); }
  int64_t NumBytes() const { return in_memory_.num_bytes(); }
  int64_t NumStayingBytes() const;  // of them, what samples hold or disk has not taken
  const VersionCounters& counters() const { return counters_; }

 private:
  struct Entry {
    SamplerVersion version;            // no weights: not in memory
    std::string dir;                   // checkpoint that has them; empty: none
    std::optional<ReadServed> served;  // from which they are loaded
    std::optional<SpilledWeights> spilled;
    int64_t ticket = 0;       // of the job that reads or spills them; 0: none
    int64_t save_ticket = 0;  // of the job that saves them; 0: none
    bool is_loading = false;  // no read since Load has ended
    absl::Status failure;
    bool cannot_spill = false;  // it failed, and no other succeeded since
    int64_t last_used = 0;
  };

  absl::Status NotHere(const std::string& version_id) const;
  // Reading failed, of bytes that are there and may be read another time.
  static bool IsReadAgain(const Entry& entry);
  absl::Status Read(const std::string& version_id, Entry& entry);
  absl::Status Enqueue(const std::string& version_id, Entry& entry,
                       decltype(VersionJob::work) work);
  std::vector<std::pair<const std::string, Entry>*> Evictable();
  int64_t Touch() { return ++num_uses_; }

  VersionJobs& jobs_;
  const int64_t generation_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, int64_t> num_holders_;  // by version id, of dropped ones too
  WeightsInMemory in_memory_;
  int64_t last_ticket_ = 0;
  int64_t num_uses_ = 0;
  bool is_spilling_ = false;  // one at a time, so that no read waits for more
  bool may_not_fit_ = false;  // something changed since Fit
  int64_t fitted_bytes_ = 0;  // of the last Fit
  VersionCounters counters_;
};

}  // namespace lathe::worker

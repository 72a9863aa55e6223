#include "services/worker/executor/lockstep/lockstep.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "services/worker/torch/aten.h"

namespace lathe::worker {
namespace {

// Further commands wait for the next round, so that the work between units stays short.
constexpr size_t kMaxRoundBytes = size_t{64} << 20;

const absl::Status& StatusOf(const RecoveryJobDone& done) {
  return std::visit([](const auto& report) -> const absl::Status& { return report.status; },
                    done.report);
}

RoundItem ToRoundItem(const ExecutorItem& item) {
  if (const auto* submitted = std::get_if<SubmittedCommand>(&item)) {
    return RoundCommand{submitted->encoded};
  }
  if (const auto* reset = std::get_if<ResetItem>(&item)) return RoundReset{reset->generation};
  if (const auto* read = std::get_if<VersionJobDone>(&item)) return RoundVersionJob{read->ticket};
  if (const auto* saved = std::get_if<SaveWritten>(&item)) return RoundSave{saved->num_bytes};
  const auto& written = std::get<RecoveryJobDone>(item);
  return RoundRecoveryJob{written.number, StatusOf(written)};
}

// Returns the generation of a finished job; nullopt: the item is no job.
std::optional<int64_t> GenerationOf(const ExecutorItem& item) {
  if (const auto* read = std::get_if<VersionJobDone>(&item)) return read->generation;
  if (const auto* written = std::get_if<RecoveryJobDone>(&item)) return written->generation;
  return std::nullopt;
}

VersionJobDone Failed(const VersionJob& job, absl::Status status) {
  return {.generation = job.generation,
          .ticket = job.ticket,
          .version_id = job.version_id,
          .is_spill = std::holds_alternative<SpillWeights>(job.work),
          .result = std::move(status)};
}

// Builds this rank's result of `job`, which rank 0 has done.
RecoveryJobDone DoneElsewhere(RecoveryJob job, const absl::Status& status) {
  RecoveryJobDone done{.generation = job.generation, .number = job.number};
  if (auto* snapshot = std::get_if<WriteSnapshot>(&job.work)) {
    done.report = SnapshotDone{.snapshot_id = snapshot->command.snapshot_id,
                               .state = {.model_id = snapshot->command.model_id},
                               .status = status};
    done.buffer = std::move(snapshot->staged.buffer);
    return done;
  }
  const auto& version = std::get<WriteVersion>(job.work);
  done.report = VersionSaved{.version_id = version.command.version_id,
                             .dir = version.command.dir,
                             .seq_id = version.publication.seq_id,
                             .status = status};
  done.ticket = version.ticket;
  return done;
}

}  // namespace

// Header that every rank sends to all others before a round.
struct Lockstep::Header {
  int64_t round = 0;
  int64_t fingerprint = 0;
  int64_t wants_to_stop = 0;
  int64_t preferred = 0;
  int64_t num_versions_done = 0;  // version jobs up to this number are done
  int64_t num_bytes = 0;          // size of the round's items; only rank 0's value is used
};

Lockstep::Lockstep(const RankGroup& control, BoundedQueue<ExecutorItem>& queue, Options options)
    : control_(control), queue_(queue), options_(std::move(options)) {}

VersionJobs& Lockstep::VersionsBy(VersionJobs& jobs) {
  versions_.thread = &jobs;
  return versions_;
}

RecoveryJobs& Lockstep::RecoveryBy(RecoveryJobs& jobs) {
  recovery_.thread = &jobs;
  return recovery_;
}

absl::Status Lockstep::Versions::Enqueue(VersionJob job) {
  if (job.generation != generation_) {
    generation_ = job.generation;
    num_jobs_ = num_done_ = 0;
    numbers_.clear();
    done_.clear();
    lockstep_.num_done_everywhere_ = 0;
  }
  numbers_[job.ticket] = ++num_jobs_;
  VersionJob copy = job;  // shares the job's data
  const absl::Status status = thread->Enqueue(std::move(job));
  if (!status.ok()) lockstep_.refused_.push_back(Failed(copy, status));
  return absl::OkStatus();
}

void Lockstep::Versions::Record(VersionJobDone done) {
  if (done.generation != generation_) return;
  const auto number = numbers_.find(done.ticket);
  if (number == numbers_.end()) return;
  done_.emplace(number->second, std::move(done));
  numbers_.erase(number);
  while (done_.contains(num_done_ + 1)) ++num_done_;
}

std::optional<VersionJobDone> Lockstep::Versions::TakeUpTo(int64_t last) {
  if (done_.empty() || done_.begin()->first > last) return std::nullopt;
  return std::move(done_.extract(done_.begin()).mapped());
}

std::optional<VersionJobDone> Lockstep::Versions::Take(int64_t ticket) {
  const auto found = std::find_if(done_.begin(), done_.end(),
                                  [&](const auto& entry) { return entry.second.ticket == ticket; });
  if (found == done_.end()) return std::nullopt;
  return std::move(done_.extract(found).mapped());
}

absl::Status Lockstep::Recovery::Enqueue(RecoveryJob job) {
  job.number = ++num_jobs;
  if (!lockstep_.leads()) {
    waiting.push_back(std::move(job));
    return absl::OkStatus();
  }
  RecoveryJob copy = job;  // shares the job's data
  const absl::Status status = thread->Enqueue(std::move(job));
  if (!status.ok()) lockstep_.refused_.push_back(DoneElsewhere(std::move(copy), status));
  return absl::OkStatus();
}

std::optional<Lockstep::Round> Lockstep::Next(const RankState& rank_state) {
  Round round;
  std::string encoded;
  if (leads() && !rank_state.wants_to_stop) {
    round.items = Collect(rank_state);
    std::vector<RoundItem> items;
    for (const ExecutorItem& item : round.items) items.push_back(ToRoundItem(item));
    encoded = EncodeRoundItems(items);
  }
  if (!leads()) RecordVersionJobs();
  const std::vector<Header> headers =
      ExchangeHeaders(rank_state, static_cast<int64_t>(encoded.size()));
  ++num_rounds_;
  for (const Header& header : headers) {
    if (header.wants_to_stop != 0) return std::nullopt;
  }
  round.preferred = static_cast<DeviceUse>(headers[0].preferred);
  num_done_everywhere_ =
      std::ranges::min(headers, {}, &Header::num_versions_done).num_versions_done;
  if (headers[0].num_bytes == 0) return round;
  encoded = Forward(std::move(encoded), headers[0].num_bytes);
  if (!leads()) round.items = Follow(encoded, rank_state.generation);
  AgreeOnVersionJobs(round.items);
  return round;
}

std::vector<ExecutorItem> Lockstep::Collect(const RankState& rank_state) {
  std::vector<ExecutorItem> items;
  int64_t generation = rank_state.generation;
  size_t num_bytes = 0;
  CollectVersionJobs(items);
  const bool others_are_behind = versions_.num_done(generation) > num_done_everywhere_;
  absl::Duration patience = !rank_state.is_idle || !items.empty() ? absl::ZeroDuration()
                            : others_are_behind                   ? options_.poll
                                                                  : options_.idle;
  while (num_bytes < kMaxRoundBytes) {
    std::optional<ExecutorItem> item = TakeItem(patience);
    if (!item.has_value()) break;
    patience = absl::ZeroDuration();
    // Jobs of an older generation may never end on another rank, and their results are not needed.
    if (GenerationOf(*item).value_or(generation) != generation) continue;
    if (auto* done = std::get_if<VersionJobDone>(&*item)) {
      versions_.Record(std::move(*done));
      continue;
    }
    if (const auto* reset = std::get_if<ResetItem>(&*item)) generation = reset->generation;
    if (const auto* submitted = std::get_if<SubmittedCommand>(&*item)) {
      num_bytes += submitted->encoded.size();
    }
    items.push_back(*std::move(item));
  }
  if (generation == rank_state.generation) CollectVersionJobs(items);
  return items;
}

void Lockstep::CollectVersionJobs(std::vector<ExecutorItem>& items) {
  while (std::optional<VersionJobDone> done = versions_.TakeUpTo(num_done_everywhere_)) {
    items.emplace_back(*std::move(done));
  }
}

// The queue of a rank other than 0 has no other items.
void Lockstep::RecordVersionJobs() {
  while (std::optional<ExecutorItem> item = TakeItem(absl::ZeroDuration())) {
    versions_.Record(std::get<VersionJobDone>(*std::move(item)));
  }
}

std::optional<ExecutorItem> Lockstep::TakeItem(absl::Duration patience) {
  if (!refused_.empty()) {
    ExecutorItem item = std::move(refused_.front());
    refused_.pop_front();
    return item;
  }
  return patience > absl::ZeroDuration() ? queue_.PopFor(patience) : queue_.TryPop();
}

std::vector<Lockstep::Header> Lockstep::ExchangeHeaders(const RankState& rank_state,
                                                        int64_t num_bytes) {
  const Header own{.round = num_rounds_,
                   .fingerprint = static_cast<int64_t>(rank_state.fingerprint),
                   .wants_to_stop = rank_state.wants_to_stop ? 1 : 0,
                   .preferred = static_cast<int64_t>(rank_state.preferred),
                   .num_versions_done = versions_.num_done(rank_state.generation),
                   .num_bytes = num_bytes};
  constexpr int64_t kNumbers = sizeof(Header) / sizeof(int64_t);
  at::Tensor piece = at::empty({kNumbers}, at::kLong);
  std::memcpy(piece.mutable_data_ptr<int64_t>(), &own, sizeof(own));
  const at::Tensor all = control_.Gather("round", piece);
  std::vector<Header> headers(control_.world());
  std::memcpy(static_cast<void*>(headers.data()), all.const_data_ptr<int64_t>(),
              headers.size() * sizeof(Header));
  for (int rank = 1; rank < control_.world(); ++rank) {
    if (headers[rank].round == headers[0].round &&
        headers[rank].fingerprint == headers[0].fingerprint) {
      continue;
    }
    throw RanksDisagree{absl::InternalError(absl::StrFormat(
        "after round %d rank %d differs from rank 0 after round %d: fingerprints %016x and %016x",
        headers[rank].round, rank, headers[0].round,
        static_cast<uint64_t>(headers[rank].fingerprint),
        static_cast<uint64_t>(headers[0].fingerprint)))};
  }
  control_.LiftWaitLimit();
  return headers;
}

std::string Lockstep::Forward(std::string encoded, int64_t num_bytes) {
  encoded.resize(num_bytes);
  control_.Broadcast("items of a round", 0, at::from_blob(encoded.data(), {num_bytes}, at::kByte));
  return encoded;
}

std::vector<ExecutorItem> Lockstep::Follow(const std::string& encoded, int64_t generation) {
  absl::StatusOr<std::vector<RoundItem>> round_items = DecodeRoundItems(encoded);
  if (!round_items.ok()) throw RanksDisagree{round_items.status()};
  std::vector<ExecutorItem> items;
  for (const RoundItem& item : *round_items) {
    if (const auto* command = std::get_if<RoundCommand>(&item)) {
      absl::StatusOr<Command> decoded = options_.decode(command->encoded);
      if (!decoded.ok()) throw RanksDisagree{decoded.status()};
      items.push_back(SubmittedCommand{.command = *std::move(decoded)});
    } else if (const auto* reset = std::get_if<RoundReset>(&item)) {
      generation = reset->generation;
      items.push_back(ResetItem{generation});
    } else if (const auto* job = std::get_if<RoundVersionJob>(&item)) {
      items.emplace_back(FinishVersionJob(job->ticket));
    } else if (const auto* saved = std::get_if<RoundSave>(&item)) {
      items.emplace_back(SaveWritten{saved->num_bytes});
    } else {
      items.push_back(FinishRecoveryJob(generation, std::get<RoundRecoveryJob>(item)));
    }
  }
  return items;
}

VersionJobDone Lockstep::FinishVersionJob(int64_t ticket) {
  std::optional<VersionJobDone> done = versions_.Take(ticket);
  if (!done.has_value()) {
    throw RanksDisagree{
        absl::InternalError("rank 0 uses a sampler version that this rank has not read")};
  }
  return *std::move(done);
}

RecoveryJobDone Lockstep::FinishRecoveryJob(int64_t generation, const RoundRecoveryJob& written) {
  std::deque<RecoveryJob>& waiting = recovery_.waiting;
  while (!waiting.empty() && waiting.front().generation < generation) waiting.pop_front();
  // A job that found no room on rank 0 ends before older ones.
  const auto it = std::find_if(waiting.begin(), waiting.end(), [&](const RecoveryJob& job) {
    return job.number == written.number;
  });
  if (it == waiting.end()) {
    throw RanksDisagree{
        absl::InternalError("rank 0 reports a write that this rank did not request")};
  }
  RecoveryJob job = std::move(*it);
  waiting.erase(it);
  return DoneElsewhere(std::move(job), written.status);
}

// On each rank, a job gets the worst outcome of all ranks: the highest code, then the highest rank.
void Lockstep::AgreeOnVersionJobs(std::vector<ExecutorItem>& items) {
  std::vector<VersionJobDone*> jobs;
  for (ExecutorItem& item : items) {
    if (auto* job = std::get_if<VersionJobDone>(&item)) jobs.push_back(job);
  }
  if (jobs.empty()) return;
  const int world = control_.world();
  const at::Tensor outcomes = at::empty({static_cast<int64_t>(jobs.size())}, at::kLong);
  auto* const numbers = outcomes.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < jobs.size(); ++i) {
    numbers[i] = static_cast<int64_t>(jobs[i]->result.status().code()) * world + control_.rank();
  }
  control_.Max("outcomes of version jobs", outcomes);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const auto code = static_cast<absl::StatusCode>(numbers[i] / world);
    const auto rank = static_cast<int>(numbers[i] % world);
    if (code == absl::StatusCode::kOk || rank == control_.rank()) continue;
    jobs[i]->result =
        absl::Status(code, absl::StrCat("rank ", rank, " could not read or write sampler version ",
                                        jobs[i]->version_id));
  }
}

}  // namespace lathe::worker

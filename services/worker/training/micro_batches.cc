#include "services/worker/training/micro_batches.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include <absl/strings/str_cat.h>

#include "services/worker/training/first_fit_tree.h"

namespace lathe::worker {
namespace {

int64_t GradientBytes(const TrainJob& job) {
  return job.adapter->num_parameters() * static_cast<int64_t>(sizeof(float));
}

// Unfinished rows of one job, in the order in which their gradients are added.
struct JobRows {
  TrainJob* job = nullptr;
  std::vector<RowRef> rows;
  PassRoom need;  // sum over all rows, without gradients
  bool fits = false;
};

// Jobs whose gradients are added one after the other. Each job without gradients is a chain alone.
struct Chain {
  int64_t id = 0;  // from 1
  std::vector<JobRows> jobs;
  PassRoom need;
  bool fits = false;
  int64_t last = FirstFitTree::kNone;  // last micro-batch with rows of it
};

class Packer {
 public:
  Packer(const PassMemory& memory, const PackingOptions& options)
      : options_(options),
        empty_bytes_(memory.Bytes({.wants_gradient = true}, options.num_checkpointed)),
        num_memories_(options.numerics == Numerics::kFast ? options.num_ranks : 1),
        room_of_all_({.tokens = options.max_tokens * options.num_ranks,
                      .bytes = (options.max_bytes - empty_bytes_) * num_memories_}),
        memory_(memory) {}

  std::deque<MicroBatch> Pack(const std::vector<std::unique_ptr<TrainJob>>& jobs) {
    std::vector<Chain> chains = MakeChains(jobs);
    for (Chain& chain : chains) {
      if (options_.first != nullptr && Has(chain, *options_.first)) PlaceHead(chain);
    }
    for (Chain& chain : chains) Place(chain);
    std::deque<MicroBatch> batches;
    for (MicroBatch& batch : batches_) {
      const auto key = [&](const RowRef& row) {
        return std::make_pair(adapter_order_.at(row.job->adapter.get()), row.job->wants_gradient());
      };
      std::stable_sort(batch.rows.begin(), batch.rows.end(),
                       [&](const RowRef& a, const RowRef& b) { return key(a) < key(b); });
      batches.push_back(std::move(batch));
    }
    return batches;
  }

 private:
  PassRoom Need(const RowRef& row) const {
    const PassShape shape{.num_tokens = row.num_tokens(),
                          .num_entries = row.num_entries(),
                          .num_sequences = 1,
                          .max_lora_rank = row.job->adapter->lora().rank,
                          .wants_gradient = true};
    return {.tokens = shape.num_tokens,
            .bytes = memory_.Bytes(shape, options_.num_checkpointed) - empty_bytes_};
  }

  bool Fits(const PassRoom& need, int64_t gradient_bytes) const {
    return room_of_all_.Holds({.tokens = need.tokens, .bytes = need.bytes + gradient_bytes});
  }

  JobRows RowsOf(TrainJob& job) const {
    JobRows result{.job = &job};
    for (size_t i = 0; i < job.request.data.size(); ++i) {
      if (job.is_done[i]) continue;
      result.rows.push_back({&job, i});
      const PassRoom need = Need(result.rows.back());
      result.need.tokens += need.tokens;
      result.need.bytes += need.bytes;
    }
    result.fits = Fits(result.need, job.wants_gradient() ? BytesOfBuffers(1, job) : 0);
    // Packing the longest rows first wastes least room.
    if (options_.numerics == Numerics::kFast || !job.wants_gradient()) {
      std::stable_sort(
          result.rows.begin(), result.rows.end(),
          [](const RowRef& a, const RowRef& b) { return a.num_tokens() > b.num_tokens(); });
    }
    return result;
  }

  // Returns true if all rows are in one pass, which then adds to the accumulator directly.
  static bool IsWhole(const JobRows& rows) { return rows.fits && !rows.job->gradients.has_value(); }

  // Returns the bytes of gradient buffers. Every rank has all of them, whatever its share of the
  // rows.
  int64_t BytesOfBuffers(int64_t num_buffers, const TrainJob& job) const {
    return num_buffers * GradientBytes(job) * num_memories_;
  }

  // Returns the bytes of gradients in one micro-batch with rows of the job.
  int64_t GradientBytesIn(const JobRows& rows) const {
    if (!rows.job->wants_gradient()) return 0;
    return BytesOfBuffers(IsWhole(rows) ? 1 : 2, *rows.job);
  }

  // Sorts a job that has begun first, because its sum started from the current accumulator.
  void SortJobs(std::vector<JobRows>& jobs) const {
    const auto key = [&](const JobRows& rows) {
      const bool has_begun = rows.job->gradients.has_value();
      if (options_.numerics == Numerics::kExact) {
        return std::make_tuple(!has_begun, false, rows.job->request.seq_id);
      }
      return std::make_tuple(!has_begun, !rows.fits,
                             rows.fits ? -rows.need.tokens : rows.need.tokens);
    };
    std::stable_sort(jobs.begin(), jobs.end(),
                     [&](const JobRows& a, const JobRows& b) { return key(a) < key(b); });
  }

  // Returns chains that fit into one pass, largest first, then the others, smallest first. So a
  // small request never waits for another model's large one.
  std::vector<Chain> MakeChains(const std::vector<std::unique_ptr<TrainJob>>& jobs) {
    std::vector<Chain> chains;
    std::map<const Adapter*, size_t> chain_of;
    for (const auto& job : jobs) {
      if (job->is_finished) continue;
      adapter_order_.emplace(job->adapter.get(), static_cast<int64_t>(adapter_order_.size()));
      size_t index = chains.size();
      if (job->wants_gradient()) index = chain_of.emplace(job->adapter.get(), index).first->second;
      if (index == chains.size()) chains.push_back({.id = static_cast<int64_t>(index) + 1});
      Chain& chain = chains[index];
      chain.jobs.push_back(RowsOf(*job));
      chain.need.tokens += chain.jobs.back().need.tokens;
      chain.need.bytes += chain.jobs.back().need.bytes;
      chain.fits = Fits(chain.need, BytesOfBuffers(1, *job));
    }
    for (Chain& chain : chains) SortJobs(chain.jobs);
    std::stable_sort(chains.begin(), chains.end(), [](const Chain& a, const Chain& b) {
      if (a.fits != b.fits) return a.fits;
      return a.fits ? a.need.tokens > b.need.tokens : a.need.tokens < b.need.tokens;
    });
    return chains;
  }

  static bool Has(const Chain& chain, const TrainJob& job) {
    return std::any_of(chain.jobs.begin(), chain.jobs.end(),
                       [&](const JobRows& rows) { return rows.job == &job; });
  }

  // Puts into the first micro-batch what it holds of the chain's first job. Place does the rest.
  void PlaceHead(Chain& chain) {
    JobRows& job = chain.jobs.front();
    const int64_t gradient_bytes = GradientBytesIn(job);
    const int64_t batch = Find(0, chain, Need(job.rows.front()), gradient_bytes);
    auto row = job.rows.begin();
    do {
      Put(batch, chain, *row, Need(*row), gradient_bytes);
      ++row;
    } while (row != job.rows.end() && rooms_.room(batch).Holds(Need(*row)));
    job.rows.erase(job.rows.begin(), row);
    if (!job.rows.empty()) return;
    chain.jobs.erase(chain.jobs.begin());
    chain.last = batch;
  }

  void Place(const Chain& chain) {
    int64_t last = chain.last;
    int64_t floor = std::max<int64_t>(0, last);
    for (const JobRows& rows : chain.jobs) {
      const int64_t gradient_bytes = GradientBytesIn(rows);
      if (!rows.job->wants_gradient()) {
        PlaceApart(rows, chain, /*begin=*/0);
      } else if (IsWhole(rows)) {
        const int64_t batch = Find(floor, chain, rows.need, gradient_bytes);
        for (const RowRef& row : rows.rows) Put(batch, chain, row, Need(row), gradient_bytes);
        last = std::max(last, batch);
        if (options_.numerics == Numerics::kExact) floor = last;
      } else {
        last = PlaceApart(rows, chain, last + 1);
        floor = last;
      }
    }
  }

  // Places a job's rows one by one from micro-batch `begin` on. Returns the last micro-batch with a
  // row of it.
  int64_t PlaceApart(const JobRows& rows, const Chain& chain, int64_t begin) {
    const int64_t gradient_bytes = GradientBytesIn(rows);
    const bool in_order = options_.numerics == Numerics::kExact && rows.job->wants_gradient();
    int64_t last = begin - 1;
    for (const RowRef& row : rows.rows) {
      const PassRoom need = Need(row);
      const int64_t from = in_order ? std::max(begin, last) : begin;
      const int64_t batch = Find(from, chain, need, gradient_bytes);
      Put(batch, chain, row, need, gradient_bytes);
      last = std::max(last, batch);
    }
    return last;
  }

  // Returns the first micro-batch from `begin` on with room for `need`, and also for the gradients
  // unless it has the chain's already. Appends a micro-batch if there is none.
  int64_t Find(int64_t begin, const Chain& chain, const PassRoom& need, int64_t gradient_bytes) {
    for (int64_t i = rooms_.FindFirst(begin, need); i != FirstFitTree::kNone;
         i = rooms_.FindFirst(i + 1, need)) {
      if (holder_[i] == chain.id || rooms_.room(i).bytes >= need.bytes + gradient_bytes) return i;
    }
    batches_.emplace_back();
    holder_.push_back(0);
    rooms_.Append(room_of_all_);
    return rooms_.size() - 1;
  }

  void Put(int64_t batch, const Chain& chain, const RowRef& row, PassRoom need,
           int64_t gradient_bytes) {
    if (gradient_bytes > 0 && holder_[batch] != chain.id) need.bytes += gradient_bytes;
    if (gradient_bytes > 0) holder_[batch] = chain.id;
    rooms_.Take(batch, need);
    batches_[batch].rows.push_back(row);
  }

  const PackingOptions options_;
  const int64_t empty_bytes_;
  // Number of ranks whose memory the rows share. 1 with exact numerics: a row's numbers determine
  // its rank, and all rows may have the same rank.
  const int64_t num_memories_;
  const PassRoom room_of_all_;
  const PassMemory& memory_;
  std::map<const Adapter*, int64_t> adapter_order_;  // by first appearance, not by address
  std::vector<MicroBatch> batches_;
  std::vector<int64_t> holder_;  // by micro-batch: last chain with gradients in it
  FirstFitTree rooms_;
};

}  // namespace

PassShape ShapeOf(const MicroBatch& batch) {
  PassShape shape;
  std::map<const Adapter*, int64_t> gradients;
  std::map<const TrainJob*, int64_t> num_rows;
  for (const RowRef& row : batch.rows) {
    shape.num_tokens += row.num_tokens();
    shape.num_entries += row.num_entries();
    ++shape.num_sequences;
    shape.max_lora_rank = std::max(shape.max_lora_rank, row.job->adapter->lora().rank);
    ++num_rows[row.job];
  }
  for (const auto& [job, rows] : num_rows) {
    if (!job->wants_gradient()) continue;
    shape.wants_gradient = true;
    const bool is_whole = !job->gradients.has_value() && rows == job->num_pending_datums;
    int64_t& bytes = gradients[job->adapter.get()];
    bytes = std::max(bytes, (is_whole ? 1 : 2) * GradientBytes(*job));
  }
  for (const auto& [adapter, bytes] : gradients) shape.gradient_bytes += bytes;
  return shape;
}

PassShape ShapeAlone(const TrainJob& job, size_t datum) {
  const TrainDatum& row = job.request.data[datum];
  const int64_t num_buffers = !job.wants_gradient() ? 0 : job.request.data.size() == 1 ? 1 : 2;
  return {.num_tokens = static_cast<int64_t>(row.tokens.size()),
          .num_entries = static_cast<int64_t>(row.targets.size()),
          .num_sequences = 1,
          .gradient_bytes = num_buffers * GradientBytes(job),
          .max_lora_rank = job.adapter->lora().rank,
          .wants_gradient = job.wants_gradient()};
}

absl::StatusOr<Numerics> ParseNumerics(const std::string& name) {
  if (name == "fast") return Numerics::kFast;
  if (name == "exact") return Numerics::kExact;
  return absl::InvalidArgumentError(absl::StrCat("numerics is ", name, ", want fast or exact"));
}

std::deque<MicroBatch> PlanMicroBatches(const std::vector<std::unique_ptr<TrainJob>>& jobs,
                                        const PassMemory& memory, const PackingOptions& options) {
  return Packer(memory, options).Pack(jobs);
}

void DropFinishedJobs(std::deque<MicroBatch>& micro_batches) {
  for (MicroBatch& batch : micro_batches) {
    std::erase_if(batch.rows, [](const RowRef& row) { return row.job->is_finished; });
  }
  std::erase_if(micro_batches, [](const MicroBatch& batch) { return batch.rows.empty(); });
}

}  // namespace lathe::worker

#include "services/worker/training/rank_pass.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <string>

#include <absl/strings/str_format.h>

#include "services/worker/collectives/agreement.h"
#include "services/worker/models/layer_steps.h"
#include "services/worker/torch/device_loss.h"
#include "services/worker/torch/torch_guard.h"

namespace lathe::worker {
namespace {

// A rank's result of a pass.
enum Outcome : int64_t { kDone, kOutOfMemory, kFailed };

std::vector<bool> OwnRows(const std::vector<int>& rank_of_row, int rank) {
  std::vector<bool> is_own;
  for (const int owner : rank_of_row) is_own.push_back(owner == rank);
  return is_own;
}

TrainPass::Phase PhaseOf(const ModelStep& step) {
  switch (step.kind) {
    case ModelStep::Kind::kEmbed:
      return TrainPass::Phase::kEmbed;
    case ModelStep::Kind::kForward:
      return TrainPass::Phase::kForward;
    case ModelStep::Kind::kHead:
      return TrainPass::Phase::kHead;
    case ModelStep::Kind::kRecompute:
    case ModelStep::Kind::kBackward:
      return TrainPass::Phase::kBackward;
  }
  return TrainPass::Phase::kDone;
}

}  // namespace

std::vector<int> DealRows(const MicroBatch& micro_batch, Numerics numerics, int num_ranks) {
  const std::vector<RowRef>& rows = micro_batch.rows;
  std::vector<int> rank_of_row(rows.size(), 0);
  if (num_ranks == 1) return rank_of_row;
  if (numerics == Numerics::kExact) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const uint64_t number = static_cast<uint64_t>(rows[i].job->request.seq_id) + rows[i].datum;
      rank_of_row[i] = static_cast<int>(number % static_cast<uint64_t>(num_ranks));
    }
    return rank_of_row;
  }
  std::vector<size_t> longest_first(rows.size());
  std::iota(longest_first.begin(), longest_first.end(), size_t{0});
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](size_t a, size_t b) { return rows[a].num_tokens() > rows[b].num_tokens(); });
  std::vector<int64_t> tokens(num_ranks);
  for (const size_t i : longest_first) {
    const auto least = std::min_element(tokens.begin(), tokens.end());
    *least += rows[i].num_tokens();
    rank_of_row[i] = static_cast<int>(least - tokens.begin());
  }
  return rank_of_row;
}

PassShape LargestShare(const MicroBatch& micro_batch, const std::vector<int>& rank_of_row) {
  std::vector<PassShape> shares(*std::max_element(rank_of_row.begin(), rank_of_row.end()) + 1);
  for (size_t i = 0; i < rank_of_row.size(); ++i) {
    shares[rank_of_row[i]].num_tokens += micro_batch.rows[i].num_tokens();
    shares[rank_of_row[i]].num_entries += micro_batch.rows[i].num_entries();
    ++shares[rank_of_row[i]].num_sequences;
  }
  PassShape largest = ShapeOf(micro_batch);
  largest.num_tokens = 0;
  largest.num_entries = 0;
  largest.num_sequences = 0;
  for (const PassShape& share : shares) {
    largest.num_tokens = std::max(largest.num_tokens, share.num_tokens);
    largest.num_entries = std::max(largest.num_entries, share.num_entries);
    largest.num_sequences = std::max(largest.num_sequences, share.num_sequences);
  }
  return largest;
}

RankPass::RankPass(const Model& model, const MicroBatch& micro_batch,
                   const std::vector<int>& rank_of_row, const TrainPassOptions& options,
                   const RankGroup& data)
    : model_(model), data_(data), rows_(micro_batch.rows), rank_of_row_(rank_of_row) {
  const auto make_pass = [&] {
    pass_ = std::make_unique<TrainPass>(model, micro_batch, OwnRows(rank_of_row_, data_.rank()),
                                        options);
  };
  if (data_.is_alone()) {
    make_pass();
    return;
  }
  Try(make_pass);
  steps_ = AgreeOnSteps(options.num_checkpointed);
}

std::vector<ModelStep> RankPass::AgreeOnSteps(int64_t num_checkpointed) const {
  const int64_t own_head_steps = pass_ == nullptr ? 0 : pass_->num_head_steps();
  const int64_t own_gradient = pass_ != nullptr && pass_->wants_gradient() ? 1 : 0;
  const at::Tensor most = at::tensor({own_head_steps, own_gradient}, at::kLong).to(model_.device());
  data_.Max("steps of a training pass", most);
  const int64_t num_head_steps = most[0].item<int64_t>();
  const bool wants_gradient = most[1].item<int64_t>() != 0;
  if (num_head_steps == 0) return {};  // no rank has created its pass

  return StepsOfTraining(model_.spec().num_layers(), num_head_steps, wants_gradient,
                         num_checkpointed);
}

template <typename Body>
void RankPass::Try(const Body& body) {
  if (error_.has_value()) return;
  try {
    body();
  } catch (const std::exception& error) {
    CheckForDeviceLoss(error);
    error_ = {.is_memory = IsOutOfMemory(error), .message = MessageOf(error)};
    pass_.reset();
  }
}

bool RankPass::RunUnit() {
  if (data_.is_alone()) return pass_->RunUnit();
  if (next_step_ < steps_.size()) {
    const ModelStep& step = steps_[next_step_++];
    model_.BeginStep(step,
                     next_step_ < steps_.size() ? std::optional(steps_[next_step_]) : std::nullopt);
    Try([&] {
      if (pass_->phase() == PhaseOf(step)) pass_->RunUnit();
    });
    model_.EndStep();
  }
  if (next_step_ < steps_.size()) return true;
  AgreeOnErrors();
  ExchangeResults();
  return false;
}

void RankPass::AgreeOnErrors() const {
  const Outcome own = !error_.has_value() ? kDone : error_->is_memory ? kOutOfMemory : kFailed;
  const at::Tensor worst = at::full({1}, static_cast<int64_t>(own), at::kLong).to(model_.device());
  data_.Max("outcome of a training pass", worst);
  const auto outcome = static_cast<Outcome>(worst.item<int64_t>());
  if (outcome == kDone) return;
  const std::vector<std::string> messages = GatherTexts(
      data_, "errors of a training pass", error_.value_or(Error{}).message, model_.device());
  if (outcome == kOutOfMemory) {
    C10_THROW_ERROR(OutOfMemoryError, "a rank is out of memory");
  }
  std::string all;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    if (messages[rank].empty()) continue;
    absl::StrAppendFormat(&all, "%srank %d: %s", all.empty() ? "" : "; ", rank, messages[rank]);
  }
  throw std::runtime_error(all);
}

void RankPass::ExchangeResults() {
  std::vector<int64_t> entries_of_rank(data_.world());
  for (size_t i = 0; i < rows_.size(); ++i) {
    entries_of_rank[rank_of_row_[i]] += rows_[i].num_entries();
  }
  // Log-probabilities and losses row by row, padded to equal size on all ranks.
  const at::Tensor own =
      at::zeros({2 * *std::max_element(entries_of_rank.begin(), entries_of_rank.end())});
  auto* to = own.mutable_data_ptr<float>();
  for (const DatumResult& result : pass_->results()) {
    to = std::copy(result.logprobs.begin(), result.logprobs.end(), to);
    to = std::copy(result.losses.begin(), result.losses.end(), to);
  }
  const at::Tensor all =
      data_.Gather("results of a training pass", own.to(model_.device())).to(at::kCPU).contiguous();
  std::vector<const float*> from;
  for (int64_t rank = 0; rank < data_.world(); ++rank) {
    from.push_back(all.const_data_ptr<float>() + rank * own.numel());
  }
  std::vector<DatumResult> results;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const float*& next = from[rank_of_row_[i]];
    const int64_t size = rows_[i].num_entries();
    results.push_back({rows_[i], {next, next + size}, {next + size, next + 2 * size}});
    next += 2 * size;
  }
  pass_->SetResults(std::move(results));
}

}  // namespace lathe::worker

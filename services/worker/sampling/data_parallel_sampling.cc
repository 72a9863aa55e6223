#include "services/worker/sampling/data_parallel_sampling.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_format.h"
#include "services/worker/torch/torch_guard.h"

namespace lathe::worker {
namespace {

constexpr size_t kMaxBeginnings = 65536;

// Message of fixed size that each rank sends after a pass. The packed results follow it.
struct Header {
  int64_t num_bytes = 0;  // size of its packed results
  SamplingCounters counters;
  KvUsage kv_usage;
};
static_assert(sizeof(Header) % sizeof(int64_t) == 0);
constexpr int64_t kHeaderNumbers = sizeof(Header) / sizeof(int64_t);

SamplingCounters Sum(const SamplingCounters& a, const SamplingCounters& b) {
  constexpr size_t kNumbers = sizeof(SamplingCounters) / sizeof(int64_t);
  static_assert(sizeof(SamplingCounters) == kNumbers * sizeof(int64_t));
  using Numbers = std::array<int64_t, kNumbers>;
  auto sums = std::bit_cast<Numbers>(a);
  const auto more = std::bit_cast<Numbers>(b);
  for (size_t i = 0; i < kNumbers; ++i) sums[i] += more[i];
  return std::bit_cast<SamplingCounters>(sums);
}

KvUsage Sum(const KvUsage& a, const KvUsage& b) {
  return {.num_blocks = a.num_blocks + b.num_blocks,
          .num_used = a.num_used + b.num_used,
          .num_idle = a.num_idle + b.num_idle};
}

// Throws RanksDisagree unless the ranks of each replica have run the same passes. Only the first
// rank of a replica reports results, so another one could diverge unnoticed. `all` is
// [ranks, kHeaderNumbers].
void CheckReplicas(const at::Tensor& all, int ranks_per_replica) {
  for (int64_t rank = 0; rank < all.size(0); ++rank) {
    const int64_t speaker = rank - rank % ranks_per_replica;
    Header own, first;
    std::memcpy(static_cast<void*>(&own), all[rank].const_data_ptr<int64_t>(), sizeof(Header));
    std::memcpy(static_cast<void*>(&first), all[speaker].const_data_ptr<int64_t>(), sizeof(Header));
    if (std::memcmp(&own.counters, &first.counters, sizeof(SamplingCounters)) == 0) continue;
    throw RanksDisagree{absl::InternalError(absl::StrFormat(
        "rank %d has sampled other tokens than rank %d of the same replica", rank, speaker))};
  }
}

int64_t MostTokens(const SampleRequest& request) {
  return static_cast<int64_t>(request.prompt.size()) +
         request.num_samples * request.params.max_tokens;
}

// Returns a hash of the tenant, the version and the first block of the prompt. It is equal for
// requests that may reuse each other's keys and values, and the same on every rank.
uint64_t BeginningOf(const SampleRequest& request) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (const std::string* text : {&request.tenant_id, &request.version_id}) {
    for (const char letter : *text) add(static_cast<uint8_t>(letter));
    add(256);
  }
  const auto length = std::min<size_t>(request.prompt.size(), KvCache::kBlockTokens);
  for (size_t i = 0; i < length; ++i) add(static_cast<uint32_t>(request.prompt[i]));
  return hash;
}

}  // namespace

int DataParallelSampling::Affinity::Find(uint64_t beginning) const {
  const auto found = replicas_.find(beginning);
  return found == replicas_.end() ? -1 : found->second;
}

void DataParallelSampling::Affinity::Record(uint64_t beginning, int replica) {
  if (!replicas_.insert_or_assign(beginning, replica).second) return;
  oldest_first_.push_back(beginning);
  if (oldest_first_.size() <= kMaxBeginnings) return;
  replicas_.erase(oldest_first_.front());
  oldest_first_.pop_front();
}

DataParallelSampling::DataParallelSampling(const Model& model, const SamplingOptions& options,
                                           const Tokenizer* tokenizer, const ReplicaPlace& place)
    : engine_(model, options, tokenizer),
      place_(place),
      max_requests_(options.max_requests),
      tokens_of_replica_(place.count),
      others_kv_usage_{.num_blocks = (place.count - 1) * engine_.kv_usage().num_blocks} {}

KvUsage DataParallelSampling::own_kv_usage() const { return engine_.kv_usage(); }
KvUsage DataParallelSampling::kv_usage() const { return Sum(engine_.kv_usage(), others_kv_usage_); }

absl::Status DataParallelSampling::Add(SampleRequest request,
                                       std::shared_ptr<const AdapterWeights> adapter,
                                       int64_t inflight_seq) {
  if (is_alone()) return engine_.Add(std::move(request), std::move(adapter), inflight_seq);
  // These checks have the same result on every rank, whichever replica runs the request.
  if (static_cast<int64_t>(running_.size()) >= max_requests_) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d samples are queued, limit is %d", running_.size(), max_requests_));
  }
  if (running_.contains(request.request_id)) {
    return absl::AlreadyExistsError(absl::StrFormat("request %s is running", request.request_id));
  }
  if (const absl::Status status = engine_.Check(request); !status.ok()) return status;
  const int replica = Choose(request);
  const std::string id = request.request_id;
  const Running& running = running_[id] = {replica, MostTokens(request), request.targets};
  tokens_of_replica_[replica] += running.num_tokens;
  if (replica != place_.index) return absl::OkStatus();
  const absl::Status added = Guarded(
      "sample", [&] { return engine_.Add(std::move(request), std::move(adapter), inflight_seq); });
  if (!added.ok()) not_added_.push_back({id, added});
  return absl::OkStatus();
}

// Returns the replica with the fewest tokens to process. Prefers the replica that last got the same
// beginning if its excess is at most the prompt's length, which bounds what reuse can save.
int DataParallelSampling::Choose(const SampleRequest& request) {
  const auto least = std::min_element(tokens_of_replica_.begin(), tokens_of_replica_.end());
  auto replica = static_cast<int>(least - tokens_of_replica_.begin());
  const uint64_t beginning = BeginningOf(request);
  const int last = affinity_.Find(beginning);
  const auto saved = static_cast<int64_t>(request.prompt.size());
  if (last >= 0 && tokens_of_replica_[last] <= *least + saved) replica = last;
  affinity_.Record(beginning, replica);
  return replica;
}

void DataParallelSampling::Forget(const std::string& request_id) {
  const auto found = running_.find(request_id);
  if (found == running_.end()) return;
  tokens_of_replica_[found->second.replica] -= found->second.num_tokens;
  running_.erase(found);
}

void DataParallelSampling::MoveVersion(const std::string& version_id,
                                       const std::shared_ptr<const AdapterWeights>& adapter,
                                       int64_t inflight_seq) {
  engine_.MoveVersion(version_id, adapter, inflight_seq);
}

void DataParallelSampling::DropVersion(const std::string& version_id) {
  engine_.DropVersion(version_id);
}

void DataParallelSampling::Cancel(const std::string& request_id) {
  engine_.Cancel(request_id);
  std::erase_if(not_added_,
                [&](const FinishedSample& sample) { return sample.request_id == request_id; });
  Forget(request_id);
}

void DataParallelSampling::Stream(const std::string& request_id) { engine_.Stream(request_id); }

void DataParallelSampling::RunPass() {
  SampleUpdates own = RunOwnPass();
  if (is_alone()) {
    updates_ = std::move(own);
  } else {
    // Other ranks may have received the results, so this rank cannot just fail the requests.
    try {
      Exchange(std::move(own));
    } catch (const std::exception& error) {
      throw RanksDisagree{StatusOfException("exchange of samples", error)};
    }
  }
}

SampleUpdates DataParallelSampling::RunOwnPass() {
  if (engine_.HasWork()) {
    const absl::Status status = Guarded("sampling pass", [this] {
      engine_.RunPass();
      return absl::OkStatus();
    });
    if (!status.ok()) {
      engine_.AbandonPass(status);
      // Other ranks may be waiting for this rank in a collective of the pass. With several replicas
      // waits are not limited, because other replicas' passes may end much later.
      const bool shares_passes = place_.count == 1 && place_.all.world() > 1;
      if (shares_passes) place_.all.LimitWaits(std::string(status.message()));
    }
  }
  SampleUpdates own{.finished = engine_.TakeFinished(),
                    .streamed = engine_.TakeStreamed(),
                    .ended = engine_.TakeEnded()};
  std::move(not_added_.begin(), not_added_.end(), std::back_inserter(own.finished));
  not_added_.clear();
  return own;
}

void DataParallelSampling::Exchange(SampleUpdates own) {
  const int ranks_per_replica = place_.all.world() / place_.count;
  const bool speaks = place_.all.rank() == place_.index * ranks_per_replica;
  const std::string bytes = own.empty() || !speaks ? "" : Pack(own);
  const Header header{static_cast<int64_t>(bytes.size()), engine_.counters(), engine_.kv_usage()};
  const at::Tensor numbers = at::empty({kHeaderNumbers}, at::kLong);
  std::memcpy(numbers.mutable_data_ptr<int64_t>(), &header, sizeof(header));
  const at::Tensor all_numbers = place_.all.Gather("sampling passes", numbers);
  CheckReplicas(all_numbers, ranks_per_replica);
  std::vector<Header> headers(place_.count);
  int64_t most = 0;
  counters_ = {};
  others_kv_usage_ = {};
  for (int replica = 0; replica < place_.count; ++replica) {
    std::memcpy(static_cast<void*>(&headers[replica]),
                all_numbers[replica * ranks_per_replica].const_data_ptr<int64_t>(), sizeof(Header));
    most = std::max(most, headers[replica].num_bytes);
    counters_ = Sum(counters_, headers[replica].counters);
    if (replica == place_.index) continue;
    others_kv_usage_ = Sum(others_kv_usage_, headers[replica].kv_usage);
  }
  if (most == 0) return;
  const at::Tensor piece = at::zeros({most}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), piece.mutable_data_ptr<uint8_t>());
  const at::Tensor all_bytes = place_.all.Gather("samples", piece);
  for (int replica = 0; replica < place_.count; ++replica) {
    if (headers[replica].num_bytes == 0) continue;
    const auto* const from = reinterpret_cast<const char*>(
        all_bytes[replica * ranks_per_replica].const_data_ptr<uint8_t>());
    absl::StatusOr<SampleUpdates> updates =
        UnpackSampleUpdates({from, static_cast<size_t>(headers[replica].num_bytes)});
    if (!updates.ok()) throw RanksDisagree{updates.status()};
    std::move(updates->streamed.begin(), updates->streamed.end(),
              std::back_inserter(updates_.streamed));
    std::move(updates->ended.begin(), updates->ended.end(), std::back_inserter(updates_.ended));
    for (FinishedSample& sample : updates->finished) {
      if (sample.output.ok() && sample.output->target_prompt_logprobs.has_value()) {
        sample.output->target_prompt_logprobs->targets = running_.at(sample.request_id).targets;
      }
      Forget(sample.request_id);
      updates_.finished.push_back(std::move(sample));
    }
  }
}

}  // namespace lathe::worker

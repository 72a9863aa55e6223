#include "tools/lathe/launch/model_options.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/launch/supervised_ranks.h"

namespace lathe::cli {
namespace {

// Shares such as 0.1 have no exact representation, so their sum may exceed 1 a little.
constexpr double kRounding = 1e-6;

absl::Status Refuse(const std::string& option, const std::string& message) {
  return WithDetail(absl::InvalidArgumentError(message), "usage", option);
}

template <typename T>
absl::StatusOr<std::vector<T>> ForEachModel(const std::string& option, std::vector<T> values,
                                            size_t num_models) {
  if (values.size() == 1) values.resize(num_models, values.front());
  if (values.size() == num_models) return values;
  return Refuse(option, absl::StrCat(option, " has ", values.size(), " values for ", num_models,
                                     num_models == 1 ? " model" : " models",
                                     "; expected one for all, or one for each"));
}

// `limit` 0: none.
absl::StatusOr<std::vector<int>> Counts(const std::string& option, const std::vector<int>& given,
                                        size_t num_models, int least, int limit) {
  for (const int value : given) {
    if (value >= least && (limit == 0 || value <= limit)) continue;
    return Refuse(option, absl::StrCat(option, " is ", value, ", expected ", least,
                                       limit == 0 ? " or more" : absl::StrCat(" to ", limit)));
  }
  return ForEachModel(option, given, num_models);
}

absl::StatusOr<std::vector<double>> MemoryShares(const std::vector<double>& given,
                                                 size_t num_models) {
  constexpr char kShareOption[] = "memory_share";
  if (given.empty()) {
    return std::vector<double>(num_models, 1.0 / static_cast<double>(num_models));
  }
  for (const double share : given) {
    if (share > 0 && share <= 1) continue;  // false for NaN
    return Refuse(kShareOption,
                  absl::StrCat("memory_share is ", share, ", expected more than 0 and at most 1"));
  }
  ASSIGN_OR_RETURN(std::vector<double> shares, ForEachModel(kShareOption, given, num_models));
  double sum = 0;
  for (const double share : shares) sum += share;
  if (sum <= 1 + kRounding) return shares;
  return Refuse(kShareOption, absl::StrCat("memory_share is ", absl::StrJoin(shares, " + "), " = ",
                                           sum, " for ", num_models, " models, limit is 1"));
}

}  // namespace

void AddModelOptions(OptionSet& set, ModelFlags& flags) {
  set.Add(&flags.models, "up.model", {},
          "[NAME=]PATH of a model folder, or a model id in the local cache; give it once for each "
          "base model; --tokenizer, --threads, --memory-share, --dp, --fsdp and --tp then have one "
          "value for all, or one for each in the same order",
          {.required = true, .keeps_commas = true});
  set.Add(&flags.tokenizers, "up.tokenizer", {},
          "tokenizer id for clients; default: NAME if it has the form org/model, else the "
          "model's path",
          {.keeps_commas = true});
  set.Add(&flags.num_threads, "up.threads", {0},
          "threads of each rank; 0: its share of the CPUs, which are divided equally between "
          "groups");
  set.Add(&flags.memory_shares, "up.memory_share", {},
          "part of this machine's free memory for a base model on CPUs, for example 0.7; default: "
          "equal parts");
  set.Add(&flags.dp, "up.dp", {1},
          "number of replicas in a group; they share the rows of training and the samples");
  set.Add(&flags.fsdp, "up.fsdp", {1},
          "number of ranks that share the rows of training; each keeps a part of every layer");
  set.Add(&flags.tp, "up.tp", {1}, "number of ranks that divide every matrix");
}

absl::StatusOr<std::vector<ModelOptions>> DivideBetweenModels(const ModelFlags& flags) {
  const size_t num = flags.models.size();
  if (num == 0) return Refuse("model", "model is empty, expected [NAME=]PATH");
  std::vector<std::string> tokenizers(num);
  if (!flags.tokenizers.empty()) {
    ASSIGN_OR_RETURN(tokenizers, ForEachModel("tokenizer", flags.tokenizers, num));
  }
  ASSIGN_OR_RETURN(const auto threads, Counts("threads", flags.num_threads, num, 0, 0));
  ASSIGN_OR_RETURN(const auto shares, MemoryShares(flags.memory_shares, num));
  ASSIGN_OR_RETURN(const auto dp, Counts("dp", flags.dp, num, 1, kMaxRanks));
  ASSIGN_OR_RETURN(const auto fsdp, Counts("fsdp", flags.fsdp, num, 1, kMaxRanks));
  ASSIGN_OR_RETURN(const auto tp, Counts("tp", flags.tp, num, 1, kMaxRanks));
  std::vector<ModelOptions> models;
  for (size_t i = 0; i < num; ++i) {
    models.push_back({.model = flags.models[i],
                      .tokenizer = tokenizers[i],
                      .num_threads = threads[i],
                      .memory_share = shares[i],
                      .dp = dp[i],
                      .fsdp = fsdp[i],
                      .tp = tp[i]});
  }
  return models;
}

int ThreadsPerRank(const ModelOptions& model, int num_groups, int num_cpus) {
  if (model.num_threads > 0) return model.num_threads;
  return std::max(1, num_cpus / num_groups / model.ranks_per_group());
}

}  // namespace lathe::cli

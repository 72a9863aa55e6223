// The options of `lathe up` that divide the machine between base models.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/common/config/option_set.h"

namespace lathe::cli {

// The part of one base model.
struct ModelOptions {
  // [NAME=]PATH, see ResolveModel.
  std::string model;
  // Tokenizer id that clients receive. Empty: the worker's default.
  std::string tokenizer;
  // Threads of each rank; 0: its share of the CPUs.
  int num_threads = 0;
  // Part of the host's free memory for the model's groups, more than 0 and at most 1.
  double memory_share = 1;
  // Number of ranks along each axis of a group's mesh. All ranks are on this machine.
  int dp = 1;
  int fsdp = 1;
  int tp = 1;
  int ranks_per_group() const { return dp * fsdp * tp; }
};

// Values as the user gives them. Each list but `models` has one value for all base models, or one
// for each.
struct ModelFlags {
  std::vector<std::string> models;
  std::vector<std::string> tokenizers;
  std::vector<int> num_threads;
  std::vector<double> memory_shares;
  std::vector<int> dp;
  std::vector<int> fsdp;
  std::vector<int> tp;
};

// `flags` must outlive `set`.
void AddModelOptions(OptionSet& set, ModelFlags& flags);

// Returns an entry for each of `flags.models`. An error of the word usage names the option, its
// value and the bound: a list of another length, a value out of range, or shares of memory above 1
// together.
absl::StatusOr<std::vector<ModelOptions>> DivideBetweenModels(const ModelFlags& flags);

// Returns the threads of each of the model's ranks. Groups get equal shares of `num_cpus`, and at
// least one thread for each rank.
int ThreadsPerRank(const ModelOptions& model, int num_groups, int num_cpus);

}  // namespace lathe::cli

// Runs a training pass and a step of AdamW on ranks that are threads with emulated GPUs, and prints
// which collectives each rank called.
//   lathe_rank_calls_driver CASE.json
// CASE: {"folder": of the model, "lora_rank", "head_rows": of a chunk of the head, "lengths": of
// the sequences, "mesh": {"dp", "fsdp", "tp"}}. Prints one JSON list with an object for each rank:
// {"units", "waits", "pass", "step"}. A pass has so many units and makes the host wait so many
// times. "pass" and "step" are {axis: {call:
// {"calls", "bytes", "hidden_calls", "hidden_bytes"}}}: bytes that the rank received, and those of
// calls between whose start and wait it queued work.
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "libs/common/losses/registry.h"
#include "services/worker/lora/adapter.h"
#include "services/worker/models/load_model.h"
#include "services/worker/testing/emulated_gpu/emulated_gpu.h"
#include "services/worker/testing/emulated_gpu/queued_ranks.h"
#include "services/worker/training/adamw.h"
#include "services/worker/training/trainer.h"

namespace lathe::worker {
namespace {

TrainRequest RequestOf(const nlohmann::json& one, int64_t vocab, int64_t seq_id) {
  TrainRequest request{
      .request_id = "r", .model_id = "m", .seq_id = seq_id, .loss = DefaultLoss("cross_entropy")};
  for (const int64_t length : one["lengths"].get<std::vector<int64_t>>()) {
    TrainDatum datum;
    for (int64_t i = 0; i < length; ++i) {
      datum.tokens.push_back(static_cast<int32_t>((length + 7 * i) % vocab));
      datum.targets.push_back((length + 5 * i) % vocab);
      datum.weights.push_back(1);
    }
    request.data.push_back(std::move(datum));
  }
  return request;
}

// A rank's calls since the last time.
class Calls {
 public:
  Calls(const QueuedMesh& mesh, int rank) : mesh_(mesh), rank_(rank) { Take(); }

  nlohmann::json Take() {
    const Traffic traffic = mesh_.traffic(rank_);
    const std::map<std::string, HiddenByName> hidden = mesh_.hidden(rank_);
    nlohmann::json taken = nlohmann::json::object();
    for (const auto& [axis, calls] : traffic) {
      for (const auto& [name, now] : calls) {
        const CollectiveTotals& then = traffic_[axis][name];
        if (now.num_calls == then.num_calls) continue;
        const HiddenByName& of_axis = hidden.at(axis);
        const HiddenCalls now_hidden = of_axis.contains(name) ? of_axis.at(name) : HiddenCalls();
        const HiddenCalls& then_hidden = hidden_[axis][name];
        taken[axis][name] = {{"calls", now.num_calls - then.num_calls},
                             {"bytes", now.wire_bytes - then.wire_bytes},
                             {"hidden_calls", now_hidden.num_calls - then_hidden.num_calls},
                             {"hidden_bytes", now_hidden.wire_bytes - then_hidden.wire_bytes}};
      }
    }
    traffic_ = traffic;
    hidden_ = hidden;
    return taken;
  }

 private:
  const QueuedMesh& mesh_;
  const int rank_;
  Traffic traffic_;
  std::map<std::string, HiddenByName> hidden_;
};

nlohmann::json RunRank(const nlohmann::json& one, const QueuedMesh& mesh, int rank) {
  const RankGroups groups = mesh.groups(rank);
  const LoadedModel loaded = LoadModel(one["folder"].get<std::string>(), EmulatedGpu(), nullptr,
                                       ComputeDtype::kAuto, groups.tp, groups.fsdp)
                                 .value();
  const Model& model = *loaded.model;
  AdapterPool adapters;
  const LoraSpec lora{.rank = one["lora_rank"], .seed = 1};
  adapters.Put("m", std::make_shared<Adapter>(model.part(), lora, model.device()));
  const int64_t head_rows = one["head_rows"];
  Trainer trainer(model, adapters,
                  {.head_chunk_elements = head_rows * model.part().local.vocab_size}, groups.data);
  Calls calls(mesh, rank);
  nlohmann::json result;
  // The first pass and step leave base weights in their buffers.
  for (int64_t seq_id = 1; seq_id <= 2; ++seq_id) {
    calls.Take();
    const ThreadWork before = WorkOfThread();
    trainer.Begin({{RequestOf(one, model.spec().vocab_size, seq_id)}});
    int64_t num_units = 0;
    while (trainer.RunUnit()) ++num_units;
    for (const FinishedRequest& finished : trainer.TakeFinished()) finished.output.value();
    result["units"] = num_units;
    result["waits"] = WorkOfThread().num_readbacks - before.num_readbacks;
    result["pass"] = calls.Take();
    ApplyAdamW(*adapters.Find("m"), {}, NonFiniteGradients::kFail, {.groups = groups}).value();
    result["step"] = calls.Take();
  }
  model.Idle();
  return result;
}

void RunCase(const nlohmann::json& one) {
  EmulatedGpu();
  IssueOrder order;
  const nlohmann::json& mesh_of = one["mesh"];
  const QueuedMesh mesh({.dp = mesh_of["dp"], .fsdp = mesh_of["fsdp"], .tp = mesh_of["tp"]}, order);
  const std::vector<nlohmann::json> ranks =
      InThreads(mesh.world(), [&](int rank) { return RunRank(one, mesh, rank); });
  std::puts(nlohmann::json(ranks).dump().c_str());
}

}  // namespace
}  // namespace lathe::worker

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: lathe_rank_calls_driver CASE.json\n", stderr);
    return 2;
  }
  lathe::worker::RunCase(nlohmann::json::parse(std::ifstream(argv[1])));
}

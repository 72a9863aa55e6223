// The one thread that touches the device: apply commands, plan, run one unit, report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/worker/collectives/local_address.h"
#include "services/worker/collectives/meeting.h"
#include "services/worker/collectives/mesh.h"
#include "services/worker/executor/executor_port.h"
#include "services/worker/executor/served_versions.h"
#include "services/worker/executor/version_reader.h"

namespace lathe::worker {

struct ExecutorOptions {
  std::string model_name;
  std::string model_path;              // an HF folder
  std::string tokenizer_id;            // empty: clients go by the model's name
  std::string checkpoint_root;         // all checkpoint directories lie below it
  std::string device = "auto";         // auto, cpu or cuda
  std::string compute_dtype = "auto";  // of products with bf16 weights: auto, fp32 or bf16
  int num_threads = 0;                 // of torch; 0: one per core
  std::string numerics = "fast";       // fast or exact
  // Of the memory that is available at the start. Weights, adapters, keys and values of samples and
  // activations have their shares of it. More: longer sequences and more samples at once.
  double memory_fraction = 0.9;
  // On a CPU the available memory is at most this, for the ranks of this machine together. More:
  // less for other groups. 0: whatever is available.
  int64_t host_memory_bytes = 0;
  // Share of the device's time that sampling gets while there is training too.
  double sampling_share = 0.5;
  // How long the prompts' part of a pass may hold up the samples that decode. More: prompts are
  // read sooner. 0: 100 ms on a CPU, 20 ms elsewhere.
  absl::Duration prefill_stall;
  // Whether a tenant's requests find keys and values of earlier ones again.
  bool prefix_cache = true;
  // Memory of sampler versions that no sample uses or used lately; the rest is on disk. 0: what the
  // models leave of the adapters' memory. More: fewer are read again.
  int64_t version_bytes = 0;
  // On a GPU: see SamplingOptions.
  bool decode_graphs = true;
  // Of an optim_step.
  NonFiniteGradients nonfinite_gradients = NonFiniteGradients::kSkip;
  // Time without work after which memory that the next pass would use again goes back to the
  // system. Longer than a training loop takes from one request to the next.
  absl::Duration pause = absl::Seconds(10);
  // Commands waiting for the executor; more are refused.
  std::size_t max_queued_commands = 65536;
  // Of several ranks; each has the same options but for its rank.
  MeshShape mesh;
  int rank = 0;
  // How long a collective of a pass may take, other ranks' lateness included. More: a rank that
  // hangs is known later.
  absl::Duration collective_timeout = absl::Seconds(10);
};

// How sampler versions go from one process to another other than as files.
struct VersionExchange {
  ServedVersions* served = nullptr;  // that others are to read from this one; null: none
  VersionReader* reader = nullptr;   // null: this process reads none
};

// What one of several ranks needs besides. Rank 0 takes commands and makes reports; the others do
// what it does: they are given no commands and no Resets, and make no reports.
struct ExecutorPeers {
  // Where they meet. Called once, on the executor's thread, before the model is loaded; blocks
  // until the engine has told. Cancelled: the process ends, and so does the thread.
  std::function<absl::StatusOr<Meeting>()> await_meeting;
  // Rank 0's: the one that the meeting names.
  std::optional<ListeningSocket> socket;
  // The others': what rank 0 was given as `encoded`, as the command again.
  std::function<absl::StatusOr<Command>(const std::string& encoded)> decode;
  // A rank is gone, hangs, or is not what the others are. The process must end at once: the thread
  // has ended, or hangs. Called once, from any thread.
  std::function<void(absl::Status)> on_disagreement;
};

// Its thread loads the base model, then runs commands; without work it sleeps. Free of torch here,
// so that main may hold it beside the Attach stream.
class Executor : public ExecutorPort {
 public:
  // `on_load_failed` is called once on the executor's thread instead of anything else when the
  // model cannot be loaded: InvalidArgument, NotFound or FailedPrecondition when the configuration
  // is to blame. Of several ranks it is called on all, the rank being named. `peers` is for those.
  Executor(ExecutorOptions options, ExecutorListener listener,
           std::function<void(absl::Status)> on_load_failed, ExecutorPeers peers = {},
           VersionExchange versions = {});
  // As Stop.
  ~Executor() override;

  void Start();
  // Finishes the unit that runs and the saves that are staged; of snapshots and saves of versions
  // only the one that is being written. The other ranks then end too. May be called twice.
  void Stop();
  // As Stop, unless another rank keeps this one waiting for longer than `patience`. False: the
  // thread still waits for it, and the process has to end without it.
  bool TryStop(absl::Duration patience);

  absl::Status Submit(Command command, std::string encoded) override;
  void Reset(int64_t generation) override;
  ExecutorState State() const override;

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace lathe::worker

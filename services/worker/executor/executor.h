// The one thread that uses the device. It applies commands, plans, runs one unit and reports.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/worker/collectives/mesh.h"
#include "services/worker/collectives/rendezvous/rendezvous_socket.h"
#include "services/worker/executor/executor_port.h"
#include "services/worker/executor/versions/served_versions.h"
#include "services/worker/executor/versions/version_reader.h"

namespace lathe {
class CheckpointCache;
}  // namespace lathe

namespace lathe::worker {

// Checkpoints that are objects in a store instead of directories.
struct ExecutorStorage {
  std::shared_ptr<CheckpointCache> cache;  // null: they are directories
  // Counts pieces of objects that were fetched, each a step of a load. Null: none are.
  std::shared_ptr<const std::atomic<int64_t>> num_fetched;
};

struct ExecutorOptions {
  std::string model_name;
  std::string model_path;       // an HF folder
  std::string tokenizer_id;     // empty: clients use the model's name
  std::string checkpoint_root;  // all checkpoint directories lie below it
  ExecutorStorage storage;
  std::string device = "auto";         // auto, cpu or cuda
  std::string compute_dtype = "auto";  // for products with bf16 weights: auto, fp32, bf16
  int num_threads = 0;                 // torch's threads; 0: one per core
  std::string numerics = "fast";       // fast or exact
  // Share of the memory available at the start that this process may use. It is divided among
  // weights, adapters, the KV cache and activations. More allows longer sequences and more samples
  // at once.
  double memory_fraction = 0.9;
  // Work that the group does: train, sample or both. The rest gets no memory.
  std::string role = "both";
  // On a CPU, upper bound of the available memory, for all ranks of this machine together. More
  // leaves less for other groups. 0: no bound.
  int64_t host_memory_bytes = 0;
  // Share of device time that sampling gets while there is training too.
  double sampling_share = 0.5;
  // Time by which prompts in a pass may delay the samples that decode. More means that prompts are
  // read sooner. 0: 100 ms on a CPU, 20 ms on other devices.
  absl::Duration prefill_stall;
  // True if a tenant's requests reuse keys and values of its earlier requests.
  bool prefix_cache = true;
  // Memory for sampler versions. Versions that do not fit go to disk, the least recently used
  // first, unless a sample uses them. More memory means fewer reads. 0: the adapters' memory that
  // models leave.
  int64_t version_bytes = 0;
  // On a GPU only: see SamplingOptions.
  bool decode_graphs = true;
  // Action of an optim_step on a gradient that is not finite.
  NonFiniteGradients nonfinite_gradients = NonFiniteGradients::kSkip;
  // Idle time after which memory cached for the next pass is returned to the system. It must be
  // longer than a training loop's gap between requests.
  absl::Duration pause = absl::Seconds(10);
  // Limit of commands that wait for the executor. Further ones are refused.
  std::size_t max_queued_commands = 65536;
  // Place in a group of several ranks. All other options must be the same on every rank.
  MeshShape mesh;
  int rank = 0;
  // Timeout of a collective in a pass, including the wait for slower ranks. More delays the
  // detection of a rank that hangs.
  absl::Duration collective_timeout = absl::Seconds(10);
};

// Transfer of sampler versions between processes without files.
struct VersionExchange {
  ServedVersions* served = nullptr;  // versions for other processes to read; null: none
  VersionReader* reader = nullptr;   // null: this process reads none
};

// Further parts that one of several ranks needs. Rank 0 takes commands and makes reports. The other
// ranks follow it: they get no commands and no Resets, and make no reports.
struct ExecutorPeers {
  // Returns the rendezvous. Called once, on the executor's thread, before the model is loaded.
  // Blocks until the engine has sent it. Cancelled: the process ends, and the thread ends too.
  std::function<absl::StatusOr<RendezvousPoint>()> await_rendezvous;
  // Rank 0 only: the socket at the rendezvous address.
  std::optional<ListeningSocket> socket;
  // Other ranks only: decodes a command from the `encoded` that rank 0 got with it.
  std::function<absl::StatusOr<Command>(const std::string& encoded)> decode;
  // Called once, from any thread, when a rank is gone, hangs or has diverged. The process must end
  // at once, because the executor's thread has ended or hangs.
  std::function<void(absl::Status)> on_disagreement;
};

// The executor. Its thread loads the base model, then runs commands, and sleeps without work. This
// header does not include torch, so that main may use it beside the Attach stream.
class Executor : public ExecutorPort {
 public:
  // `on_load_failed` is called once, on the executor's thread, if the model cannot be loaded. No
  // command runs then. Configuration errors are InvalidArgument, NotFound or FailedPrecondition.
  // With several ranks, every rank gets the error, which names the rank that failed. `peers` is
  // used with several ranks only.
  Executor(ExecutorOptions options, ExecutorListener listener,
           std::function<void(absl::Status)> on_load_failed, ExecutorPeers peers = {},
           VersionExchange versions = {});
  // Calls Stop.
  ~Executor() override;

  void Start();
  // Finishes the running unit, the staged saves, and the snapshot or version that is being written.
  // Drops waiting snapshots, saves of versions, and saves without room. The other ranks then end
  // too. May be called twice.
  void Stop();
  // Like Stop, but waits for other ranks for at most `patience`. Returns false if the thread still
  // waits for one. The process then has to end without it.
  bool TryStop(absl::Duration patience);

  absl::Status Submit(Command command, std::string encoded) override;
  void Reset(int64_t generation) override;
  ExecutorState State() const override;

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace lathe::worker

// Conversion of the core's commands to worker messages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "protos/lathe/v1/worker.pb.h"
#include "services/engine/core/actions.h"
#include "services/engine/runtime/bodies.h"
#include "services/engine/runtime/sample_streams.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Returns a JSON object with owner, path, name, term and times, for people and for recovery without
// the store.
std::string ManifestJson(const CheckpointRow& row, int64_t term);
// Returns the JSON object for a snapshot or an unnamed version.
std::string ManifestJson(const std::string& tenant_id, int64_t term);

using HeldBodies = std::map<std::string, SharedBytes>;  // by body id

// Encodes commands. A body is copied as the bytes that were accepted; it is neither parsed nor
// validated again. Thread-safe.
class CommandEncoder {
 public:
  // Called for a request whose body cannot be read.
  using OnLostBody = std::function<void(const std::string& request_id, const absl::Status&)>;

  // Both must outlive this. Samples that `streams` wants are marked as streamed.
  CommandEncoder(Bodies& bodies, SampleStreams& streams) : bodies_(bodies), streams_(streams) {}

  // Returns the command's bodies that are in memory. Does not block.
  HeldBodies HoldBodies(const WorkerCommand& command) const;
  // Returns the messages to write, in order. Empty if all bodies of the command are lost. Reads
  // bodies that are not in `held` from the store, which may block.
  std::vector<v1::EngineMessage> Encode(int64_t epoch, const WorkerCommand& command,
                                        const HeldBodies& held,
                                        const OnLostBody& on_lost_body) const;

 private:
  std::vector<v1::EngineMessage> EncodeTrainBatch(int64_t epoch, const SendTrainBatch& batch,
                                                  const HeldBodies& held,
                                                  const OnLostBody& on_lost_body) const;
  std::vector<v1::EngineMessage> EncodeSample(int64_t epoch, const SendSample& sample,
                                              const HeldBodies& held,
                                              const OnLostBody& on_lost_body) const;
  absl::StatusOr<SharedBytes> BodyOf(const std::string& body_id, const HeldBodies& held) const;

  // Encodes commands without a body.
  void Fill(const FormGroup& command, v1::EngineMessage& message) const;
  void Fill(const AdoptGroup& command, v1::EngineMessage& message) const;
  void Fill(const SendOptimStep& command, v1::EngineMessage& message) const;
  void Fill(const SendCreateAdapter& command, v1::EngineMessage& message) const;
  void Fill(const SendLoadAdapter& command, v1::EngineMessage& message) const;
  void Fill(const SendDropAdapter& command, v1::EngineMessage& message) const;
  void Fill(const SendClearGradient& command, v1::EngineMessage& message) const;
  void Fill(const SendSaveCheckpoint& command, v1::EngineMessage& message) const;
  void Fill(const SendPublishVersion& command, v1::EngineMessage& message) const;
  void Fill(const SendLoadVersion& command, v1::EngineMessage& message) const;
  void Fill(const SendDropVersion& command, v1::EngineMessage& message) const;
  void Fill(const SendSaveVersion& command, v1::EngineMessage& message) const;
  void Fill(const SendServeVersion& command, v1::EngineMessage& message) const;
  void Fill(const SendSnapshot& command, v1::EngineMessage& message) const;
  void Fill(const SendRestoreAdapter& command, v1::EngineMessage& message) const;
  void Fill(const SendCancel& command, v1::EngineMessage& message) const;
  void Fill(const SendAck& command, v1::EngineMessage& message) const;
  void Fill(const SendDie& command, v1::EngineMessage& message) const;

  Bodies& bodies_;
  SampleStreams& streams_;
};

}  // namespace lathe::engine

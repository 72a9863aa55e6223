#include "services/engine/rpc/testing/fake_worker.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "libs/common/digest/sha256.h"
#include "libs/common/rpc/channel.h"

namespace lathe::engine {
namespace {

constexpr int64_t kContextLength = 64;
constexpr int64_t kVocabSize = 768;
// Name of the manifest, and its content here.
constexpr char kManifest[] = "manifest.json";

std::string Floats(size_t count, float value) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

void WriteCheckpointFiles(const std::filesystem::path& dir) {
  std::filesystem::create_directories(dir);
  for (const char* name :
       {"adapter_config.json", "adapter_model.safetensors", "checkpoint_complete", kManifest}) {
    std::ofstream(dir / name) << name;
  }
}

}  // namespace

FakeWorker::FakeWorker(Options options) : options_(std::move(options)), answers_(options_.answers) {
  Attach(options_.address);
}

FakeWorker::~FakeWorker() { Detach(); }

void FakeWorker::Attach(const std::string& address) {
  Detach();
  channel_ = MakeChannel(address);
  stub_ = lathe::v1::WorkerPool::NewStub(channel_);
  context_ = std::make_unique<grpc::ClientContext>();
  context_->set_wait_for_ready(true);
  stream_ = stub_->Attach(context_.get());
  RepeatHello();
  reader_ = std::thread([this, stream = stream_.get()] { Read(stream); });
}

void FakeWorker::RepeatHello() {
  absl::MutexLock lock(&mu_);
  Write(MakeHello());
}

void FakeWorker::Detach() {
  if (context_) context_->TryCancel();
  if (reader_.joinable()) reader_.join();
  stream_.reset();
}

grpc::Status FakeWorker::WaitForEnd() {
  reader_.join();
  return stream_->Finish();
}

lathe::v1::WorkerMessage FakeWorker::MakeHello() {
  lathe::v1::WorkerMessage message;
  message.set_epoch(epoch_);
  lathe::v1::Hello* hello = message.mutable_hello();
  hello->set_group(options_.group);
  hello->set_rank(options_.rank);
  hello->set_world(options_.tp);
  hello->mutable_mesh()->set_dp(1);
  hello->mutable_mesh()->set_fsdp(1);
  hello->mutable_mesh()->set_tp(options_.tp);
  hello->set_address("10.0.0.1");
  hello->set_port(4000);
  hello->set_lathe_version(options_.version);
  hello->set_protocol(options_.protocol.newest);
  hello->set_oldest_protocol(options_.protocol.oldest);
  hello->set_device("cpu");
  hello->set_secret(options_.secret);
  hello->set_process_id(options_.process_id);
  hello->set_epoch(epoch_);
  hello->set_term(term_);
  hello->set_base_model(options_.base_model);
  for (const auto& [id, state] : models_) *hello->add_models() = state;
  lathe::v1::ModelInfo* info = hello->mutable_ready()->mutable_model();
  info->set_name(options_.base_model);
  info->set_arch("qwen3");
  info->set_tokenizer_id("/tokenizer");
  info->set_content_hash("hash");
  info->set_max_context_length(kContextLength);
  info->set_vocab_size(kVocabSize);
  info->set_max_lora_rank(512);
  info->set_token_budget(4096);
  info->set_kv_cache_tokens(4096);
  info->set_max_running_samples(options_.max_running_samples);
  for (const LoraModule& module : options_.lora_modules) {
    lathe::v1::LoraModule* const one = info->add_lora_modules();
    one->set_name(module.name);
    // The proto's enum has these families in the same order, after an unspecified one.
    one->set_family(static_cast<lathe::v1::LoraFamily>(static_cast<int>(module.family) + 1));
  }
  return message;
}

void FakeWorker::Read(Stream* stream) {
  lathe::v1::EngineMessage message;
  while (stream->Read(&message)) {
    if (!message.has_piece()) {
      Handle(message);
      continue;
    }
    pieces_ += message.piece().data();
    if (!message.piece().last()) continue;
    lathe::v1::EngineMessage whole;
    whole.ParseFromString(std::exchange(pieces_, {}));
    Handle(whole);
  }
}

void FakeWorker::Handle(const lathe::v1::EngineMessage& message) {
  absl::MutexLock lock(&mu_);
  received_.push_back(message);
  if (message.has_form() || message.has_adopt()) {
    epoch_ = message.has_form() ? message.form().epoch() : message.adopt().epoch();
    term_ = message.has_form() ? message.form().term() : message.adopt().term();
    if (message.has_form()) {
      models_.clear();
      unacknowledged_.clear();
    }
    for (const auto& [id, done] : unacknowledged_) {
      lathe::v1::WorkerMessage again;
      again.set_epoch(epoch_);
      *again.mutable_done() = done;
      Write(again);
    }
  } else if (message.has_ack()) {
    for (const std::string& id : message.ack().request_ids()) unacknowledged_.erase(id);
  } else if (answers_) {
    Answer(message);
  } else if (!message.has_heartbeat()) {
    unanswered_.push_back(message);
  }
}

void FakeWorker::StartAnswering() {
  absl::MutexLock lock(&mu_);
  answers_ = true;
  for (const lathe::v1::EngineMessage& message : std::exchange(unanswered_, {})) Answer(message);
}

void FakeWorker::Answer(const lathe::v1::EngineMessage& message) {
  lathe::v1::OperationDone done;
  if (message.has_train_batch()) {
    for (const lathe::v1::TrainItem& item : message.train_batch().items()) Execute(item);
  } else if (message.has_optim_step()) {
    Execute(message.optim_step());
  } else if (message.has_sample()) {
    Execute(message.sample());
  } else if (message.has_create_adapter()) {
    const lathe::v1::CreateAdapter& create = message.create_adapter();
    models_[create.model_id()].set_model_id(create.model_id());
    done.set_request_id(create.request_id());
    *done.mutable_lora() = create.lora();
    done.mutable_result()->mutable_create_model()->set_model_id(create.model_id());
    *done.mutable_model() = models_[create.model_id()];
    Finish(done);
  } else if (message.has_save_checkpoint()) {
    const lathe::v1::SaveCheckpoint& save = message.save_checkpoint();
    if (!options_.checkpoints.empty()) {
      WriteCheckpointFiles(std::filesystem::path(options_.checkpoints) / save.dir());
    }
    done.set_request_id(save.request_id());
    done.set_size_bytes(123);
    done.set_manifest_sha256(Sha256Hex(kManifest));
    done.mutable_result()->mutable_save_weights();
    *done.mutable_model() = models_[save.model_id()];
    Finish(done);
  } else if (message.has_publish_version()) {
    done.set_request_id(message.publish_version().request_id());
    done.set_version_bytes(10);
    done.mutable_result()->mutable_save_weights_for_sampler();
    *done.mutable_model() = models_[message.publish_version().model_id()];
    Finish(done);
  } else if (message.has_drop_adapter() && !message.drop_adapter().request_id().empty()) {
    done.set_request_id(message.drop_adapter().request_id());
    done.mutable_result()->mutable_unload_model();
    Finish(done);
  }
}

void FakeWorker::Execute(const lathe::v1::TrainItem& item) {
  lathe::v1::OperationDone done;
  done.set_request_id(item.request_id());
  lathe::v1::ForwardBackwardResult* result = done.mutable_result()->mutable_forward_backward();
  for (const lathe::v1::Datum& datum : item.request().data()) {
    size_t num_tokens = 0;
    for (const lathe::v1::Chunk& chunk : datum.model_input())
      num_tokens += chunk.tokens().size() / 4;
    result->add_outputs()->set_logprobs(Floats(num_tokens, -1.0F));
  }
  lathe::v1::NamedNumber* loss = result->add_metrics();
  loss->set_name("loss:sum");
  loss->set_value(item.request().data_size());
  lathe::v1::ModelState& model = models_[item.request().model_id()];
  if (!item.request().forward_only()) model.add_window(item.request().seq_id());
  *done.mutable_model() = model;
  Finish(done);
}

void FakeWorker::Execute(const lathe::v1::OptimStep& step) {
  lathe::v1::OperationDone done;
  done.set_request_id(step.request_id());
  done.mutable_result()->mutable_optim_step();
  lathe::v1::ModelState& model = models_[step.model_id()];
  model.clear_window();
  model.set_applied_seq(step.seq_id());
  *done.mutable_model() = model;
  Finish(done);
}

void FakeWorker::Execute(const lathe::v1::Sample& sample) {
  lathe::v1::OperationDone done;
  done.set_request_id(sample.request_id());
  const int32_t token = 7;
  for (int64_t i = 0; i < sample.request().num_samples(); ++i) {
    lathe::v1::SampledSequence* sequence = done.mutable_result()->mutable_sample()->add_sequences();
    sequence->set_tokens(std::string(reinterpret_cast<const char*>(&token), sizeof(token)));
    sequence->set_logprobs(Floats(1, -0.5F));
  }
  Finish(done);
}

void FakeWorker::Finish(lathe::v1::OperationDone done) {
  lathe::v1::WorkerMessage message;
  message.set_epoch(epoch_);
  *message.mutable_done() = done;
  unacknowledged_[done.request_id()] = std::move(done);
  Write(message);
}

void FakeWorker::Report(const lathe::v1::SampleProgress& progress) {
  absl::MutexLock lock(&mu_);
  lathe::v1::WorkerMessage message;
  message.set_epoch(epoch_);
  *message.mutable_sample_progress() = progress;
  Write(message);
}

void FakeWorker::Beat(const lathe::v1::WorkerHeartbeat& heartbeat) {
  absl::MutexLock lock(&mu_);
  lathe::v1::WorkerMessage message;
  *message.mutable_heartbeat() = heartbeat;
  Write(message);
}

void FakeWorker::Write(const lathe::v1::WorkerMessage& message) { stream_->Write(message); }

std::vector<lathe::v1::EngineMessage> FakeWorker::received() {
  absl::MutexLock lock(&mu_);
  return received_;
}

}  // namespace lathe::engine

#include "services/engine/store/sql/row_codec.h"

#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "libs/common/strings/string_view.h"

namespace lathe::engine {

namespace {

std::optional<std::string> TakeText(std::string_view& rest) {
  const size_t colon = rest.find(':');
  size_t size = 0;
  if (colon == std::string_view::npos ||
      !absl::SimpleAtoi(AbslView(rest.substr(0, colon)), &size) || size > rest.size() - colon - 1) {
    return std::nullopt;
  }
  std::string text(rest.substr(colon + 1, size));
  rest.remove_prefix(colon + 1 + size);
  return text;
}

}  // namespace

std::string EncodeMetadata(const Metadata& metadata) {
  std::string text;
  for (const auto& [name, value] : metadata) {
    absl::StrAppend(&text, name.size(), ":", name, value.size(), ":", value);
  }
  return text;
}

Metadata DecodeMetadata(std::string_view text) {
  Metadata metadata;
  while (!text.empty()) {
    std::optional<std::string> name = TakeText(text);
    std::optional<std::string> value = TakeText(text);
    if (!name || !value) break;
    metadata.emplace_back(*std::move(name), *std::move(value));
  }
  return metadata;
}

std::string EncodeStringList(const std::vector<std::string>& words) {
  return absl::StrJoin(words, ",");
}

std::vector<std::string> DecodeStringList(std::string_view text) {
  return absl::StrSplit(AbslView(text), ',', absl::SkipEmpty());
}

std::string EncodeLoraModules(const std::vector<LoraModule>& modules) {
  return absl::StrJoin(modules, ",", [](std::string* text, const LoraModule& module) {
    absl::StrAppend(text, module.name, ":", static_cast<int>(module.family));
  });
}

std::vector<LoraModule> DecodeLoraModules(std::string_view text) {
  std::vector<LoraModule> modules;
  for (const std::string& word : DecodeStringList(text)) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(word, ':');
    int family = 0;
    if (!absl::SimpleAtoi(parts.second, &family)) break;
    modules.push_back({parts.first, static_cast<LoraFamily>(family)});
  }
  return modules;
}

namespace {

template <typename Enum>
void ReadEnum(Query& query, Enum& value) {
  value = static_cast<Enum>(query.Int());
}

void BindLora(Query& query, const LoraConfig& lora) {
  query.Bind(lora.rank, lora.alpha, lora.seed, lora.train_attn, lora.train_mlp, lora.train_unembed,
             EncodeStringList(lora.target_modules));
}

void ReadLora(Query& query, LoraConfig& lora) {
  lora.rank = query.Int();
  lora.alpha = query.Real();
  lora.seed = static_cast<uint64_t>(query.Int());
  lora.train_attn = query.Bool();
  lora.train_mlp = query.Bool();
  lora.train_unembed = query.Bool();
  lora.target_modules = DecodeStringList(query.Text());
}

}  // namespace

void BindRow(Query& query, const SessionRow& row) {
  query.Bind(row.session_id, row.tenant_id, row.ordering, row.state, row.finish_reason,
             row.finish_detail, row.sdk_version, row.display_name, row.project_id, row.tags,
             EncodeMetadata(row.user_metadata), row.created_at, row.heartbeat_at);
}

void ReadRow(Query& query, SessionRow& row) {
  row.session_id = query.Text();
  row.tenant_id = query.Text();
  ReadEnum(query, row.ordering);
  ReadEnum(query, row.state);
  row.finish_reason = query.Text();
  row.finish_detail = query.Text();
  row.sdk_version = query.Text();
  row.display_name = query.Text();
  row.project_id = query.Text();
  row.tags = query.Text();
  row.user_metadata = DecodeMetadata(query.Text());
  row.created_at = query.Int();
  row.heartbeat_at = query.Int();
}

void BindRow(Query& query, const ModelRow& row) {
  query.Bind(row.model_id, row.session_id, row.tenant_id, row.model_seq_id, row.base_model);
  BindLora(query, row.lora);
  query.Bind(row.group, row.state, row.state_reason, row.applied_seq, row.closed_seq, row.saved_seq,
             row.gradient_from_seq, row.kept_window, row.dropped_window, row.log_from_seq,
             row.is_offloaded, row.move_to, EncodeMetadata(row.user_metadata), row.created_at,
             row.last_request_at);
}

void ReadRow(Query& query, ModelRow& row) {
  row.model_id = query.Text();
  row.session_id = query.Text();
  row.tenant_id = query.Text();
  row.model_seq_id = query.Int();
  row.base_model = query.Text();
  ReadLora(query, row.lora);
  row.group = query.Text();
  ReadEnum(query, row.state);
  row.state_reason = query.Text();
  row.applied_seq = query.Int();
  row.closed_seq = query.Int();
  row.saved_seq = query.Int();
  row.gradient_from_seq = query.Int();
  row.kept_window = query.Text();
  row.dropped_window = query.Text();
  row.log_from_seq = query.Int();
  row.is_offloaded = query.Bool();
  row.move_to = query.Text();
  row.user_metadata = DecodeMetadata(query.Text());
  row.created_at = query.Int();
  row.last_request_at = query.Int();
}

void BindRow(Query& query, const RequestRow& row) {
  query.Bind(row.request_id, row.tenant_id, row.owner_id, row.op_class, row.seq_id, row.kind,
             row.state, row.content_hash, row.body_id, row.body_bytes, row.tokens);
  query.BindBytes(row.plan);
  query.Bind(row.epoch, row.accepted_at, row.done_at, row.delivered_at, row.outcome,
             row.result_bytes);
}

void ReadRow(Query& query, RequestRow& row) {
  row.request_id = query.Text();
  row.tenant_id = query.Text();
  row.owner_id = query.Text();
  ReadEnum(query, row.op_class);
  row.seq_id = query.Int();
  ReadEnum(query, row.kind);
  ReadEnum(query, row.state);
  row.content_hash = query.Text();
  row.body_id = query.Text();
  row.body_bytes = query.Int();
  row.tokens = query.Int();
  row.plan = query.Bytes();
  row.epoch = query.Int();
  row.accepted_at = query.Int();
  row.done_at = query.Int();
  row.delivered_at = query.Int();
  row.outcome = query.Text();
  row.result_bytes = query.Int();
}

void ReadRow(Query& query, CompletionRow& row) {
  row.completion_number = query.Int();
  row.request_id = query.Text();
  row.tenant_id = query.Text();
  row.sampling_session_id = query.Text();
  row.seq_id = query.Int();
  ReadEnum(query, row.state);
  row.done_at = query.Int();
  row.result_bytes = query.Int();
}

void BindRow(Query& query, const CheckpointRow& row) {
  query.Bind(row.tinker_path, row.model_id, row.tenant_id, row.kind, row.name, row.dir, row.state,
             row.base_model);
  BindLora(query, row.lora);
  query.Bind(row.applied_seq, row.size_bytes, row.manifest_sha256, row.is_public,
             EncodeMetadata(row.user_metadata), row.created_at, row.expires_at);
}

void ReadRow(Query& query, CheckpointRow& row) {
  row.tinker_path = query.Text();
  row.model_id = query.Text();
  row.tenant_id = query.Text();
  ReadEnum(query, row.kind);
  row.name = query.Text();
  row.dir = query.Text();
  ReadEnum(query, row.state);
  row.base_model = query.Text();
  ReadLora(query, row.lora);
  row.applied_seq = query.Int();
  row.size_bytes = query.Int();
  row.manifest_sha256 = query.Text();
  row.is_public = query.Bool();
  row.user_metadata = DecodeMetadata(query.Text());
  row.created_at = query.Int();
  row.expires_at = query.Int();
}

void BindRow(Query& query, const SamplerRow& row) {
  query.Bind(row.sampling_session_id, row.session_id, row.tenant_id, row.sampling_session_seq_id,
             row.base_model, row.model_path, row.model_id, row.version_id, row.checkpoint_dir,
             row.version_bytes, row.version_dropped, row.created_at, row.num_joined);
}

void ReadRow(Query& query, SamplerRow& row) {
  row.sampling_session_id = query.Text();
  row.session_id = query.Text();
  row.tenant_id = query.Text();
  row.sampling_session_seq_id = query.Int();
  row.base_model = query.Text();
  row.model_path = query.Text();
  row.model_id = query.Text();
  row.version_id = query.Text();
  row.checkpoint_dir = query.Text();
  row.version_bytes = query.Int();
  row.version_dropped = query.Bool();
  row.created_at = query.Int();
  row.num_joined = query.Int();
}

void BindRow(Query& query, const SnapshotRow& row) {
  query.Bind(row.snapshot_id, row.model_id, row.applied_seq, row.window, row.size_bytes,
             row.manifest_sha256, row.term, row.created_at);
}

void ReadRow(Query& query, SnapshotRow& row) {
  row.snapshot_id = query.Text();
  row.model_id = query.Text();
  row.applied_seq = query.Int();
  row.window = query.Text();
  row.size_bytes = query.Int();
  row.manifest_sha256 = query.Text();
  row.term = query.Int();
  row.created_at = query.Int();
}

void BindRow(Query& query, const VersionRow& row) {
  query.Bind(row.version_id, row.model_id, row.tenant_id, row.seq_id, row.is_inflight, row.dir,
             row.size_bytes, row.manifest_sha256);
}

void ReadRow(Query& query, VersionRow& row) {
  row.version_id = query.Text();
  row.model_id = query.Text();
  row.tenant_id = query.Text();
  row.seq_id = query.Int();
  row.is_inflight = query.Bool();
  row.dir = query.Text();
  row.size_bytes = query.Int();
  row.manifest_sha256 = query.Text();
}

void BindRow(Query& query, const BaseModelRow& row) {
  query.Bind(row.name, row.content_hash, row.arch, row.tokenizer_id, row.max_context_length,
             row.vocab_size, row.max_lora_rank, row.token_budget,
             EncodeLoraModules(row.lora_modules));
}

void ReadRow(Query& query, BaseModelRow& row) {
  row.name = query.Text();
  row.content_hash = query.Text();
  row.arch = query.Text();
  row.tokenizer_id = query.Text();
  row.max_context_length = query.Int();
  row.vocab_size = query.Int();
  row.max_lora_rank = query.Int();
  row.token_budget = query.Int();
  row.lora_modules = DecodeLoraModules(query.Text());
}

void BindRow(Query& query, const GroupRow& row) {
  query.Bind(row.group, row.base_model, row.epoch, row.process_id, row.is_draining);
}

void ReadRow(Query& query, GroupRow& row) {
  row.group = query.Text();
  row.base_model = query.Text();
  row.epoch = query.Int();
  row.process_id = query.Text();
  row.is_draining = query.Bool();
}

void BindRow(Query& query, const ApiKeyRow& row) {
  query.Bind(row.key_id, row.tenant_id, row.name, row.secret_sha256, EncodeStringList(row.scopes),
             row.created_at, row.expires_at, row.revoked_at);
}

void ReadRow(Query& query, ApiKeyRow& row) {
  row.key_id = query.Text();
  row.tenant_id = query.Text();
  row.name = query.Text();
  row.secret_sha256 = query.Text();
  row.scopes = DecodeStringList(query.Text());
  row.created_at = query.Int();
  row.expires_at = query.Int();
  row.revoked_at = query.Int();
}

void BindRow(Query& query, const AuditRow& row) {
  query.Bind(row.at, row.tenant_id, row.resource, row.event, row.actor, row.object, row.outcome,
             EncodeMetadata(row.details));
}

void ReadRow(Query& query, AuditRow& row) {
  row.at = query.Int();
  row.tenant_id = query.Text();
  row.resource = query.Text();
  row.event = query.Text();
  row.actor = query.Text();
  row.object = query.Text();
  row.outcome = query.Text();
  row.details = DecodeMetadata(query.Text());
}

void BindRow(Query& query, const QuotaRow& row) {
  query.Bind(row.tenant_id, row.requests_per_minute, row.tokens_per_minute, row.queued_bytes,
             row.stored_bytes, row.adapters, row.sessions, row.samplers, row.unfetched_results,
             row.unfetched_bytes);
}

void ReadRow(Query& query, QuotaRow& row) {
  row.tenant_id = query.Text();
  row.requests_per_minute = query.Int();
  row.tokens_per_minute = query.Int();
  row.queued_bytes = query.Int();
  row.stored_bytes = query.Int();
  row.adapters = query.Int();
  row.sessions = query.Int();
  row.samplers = query.Int();
  row.unfetched_results = query.Int();
  row.unfetched_bytes = query.Int();
}

void BindRow(Query& query, const UsageRow& row) {
  query.Bind(row.tenant_id, row.hour, row.session_id, row.base_model, row.forward_tokens,
             row.forward_backward_tokens, row.prefill_tokens, row.cached_prefill_tokens,
             row.sampled_tokens, row.num_checkpoints, row.stored_bytes);
}

void ReadRow(Query& query, UsageRow& row) {
  row.tenant_id = query.Text();
  row.hour = query.Int();
  row.session_id = query.Text();
  row.base_model = query.Text();
  row.forward_tokens = query.Int();
  row.forward_backward_tokens = query.Int();
  row.prefill_tokens = query.Int();
  row.cached_prefill_tokens = query.Int();
  row.sampled_tokens = query.Int();
  row.num_checkpoints = query.Int();
  row.stored_bytes = query.Int();
}

}  // namespace lathe::engine

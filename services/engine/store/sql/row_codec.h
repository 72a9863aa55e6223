// Converts rows to and from columns. ReadRow takes the columns in the order of the matching
// k…Columns constant, and BindRow binds them in the same order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "services/engine/store/rows.h"
#include "services/engine/store/sql/sql_connection.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Encodes with length prefixes, so that any bytes survive: "4:name5:value…".
std::string EncodeMetadata(const Metadata& metadata);
// Decodes the output of EncodeMetadata. Stops at the first malformed pair.
Metadata DecodeMetadata(std::string_view text);

// Encodes words, which must not contain commas, as comma-separated text.
std::string EncodeStringList(const std::vector<std::string>& words);
std::vector<std::string> DecodeStringList(std::string_view text);

// Encodes each module as its name, a colon and the number of its family, with commas between.
std::string EncodeLoraModules(const std::vector<LoraModule>& modules);
std::vector<LoraModule> DecodeLoraModules(std::string_view text);

inline constexpr char kSessionColumns[] =
    "session_id, tenant_id, ordering, state, finish_reason, finish_detail, sdk_version, "
    "display_name, project_id, tags, user_metadata, created_at, heartbeat_at";
inline constexpr char kModelColumns[] =
    "model_id, session_id, tenant_id, model_seq_id, base_model, lora_rank, lora_alpha, "
    "lora_seed, train_attn, train_mlp, train_unembed, target_modules, group_name, state, "
    "state_reason, applied_seq, closed_seq, saved_seq, gradient_from_seq, kept_window, "
    "dropped_window, log_from_seq, is_offloaded, move_to, user_metadata, created_at, "
    "last_request_at";
inline constexpr char kRequestColumns[] =
    "request_id, tenant_id, owner_id, op_class, seq_id, kind, state, content_hash, body_id, "
    "body_bytes, tokens, plan, epoch, accepted_at, done_at, delivered_at, "
    "outcome, result_bytes";
inline constexpr char kCheckpointColumns[] =
    "tinker_path, model_id, tenant_id, kind, name, dir, state, base_model, lora_rank, "
    "lora_alpha, lora_seed, train_attn, train_mlp, train_unembed, target_modules, applied_seq, "
    "size_bytes, manifest_sha256, is_public, user_metadata, created_at, expires_at";
inline constexpr char kSamplerColumns[] =
    "sampling_session_id, session_id, tenant_id, sampling_session_seq_id, base_model, "
    "model_path, model_id, version_id, checkpoint_dir, version_bytes, version_dropped, "
    "created_at, num_joined";
inline constexpr char kSnapshotColumns[] =
    "snapshot_id, model_id, applied_seq, \"window\", size_bytes, manifest_sha256, term, created_at";
inline constexpr char kVersionColumns[] =
    "version_id, model_id, tenant_id, seq_id, is_inflight, dir, size_bytes, manifest_sha256";
inline constexpr char kBaseModelColumns[] =
    "name, content_hash, arch, tokenizer_id, max_context_length, vocab_size, max_lora_rank, "
    "token_budget, lora_modules";
inline constexpr char kGroupColumns[] = "group_name, base_model, epoch, process_id, is_draining";
inline constexpr char kKeyColumns[] =
    "key_id, tenant_id, name, secret_sha256, scopes, created_at, expires_at, revoked_at";

inline constexpr char kAuditColumns[] =
    "at, tenant_id, resource, event, actor, object, outcome, details";

inline constexpr char kQuotaColumns[] =
    "tenant_id, requests_per_minute, tokens_per_minute, queued_bytes, stored_bytes, adapters, "
    "sessions, samplers, unfetched_results, unfetched_bytes";

inline constexpr char kUsageColumns[] =
    "tenant_id, hour, session_id, base_model, forward_tokens, forward_backward_tokens, "
    "prefill_tokens, cached_prefill_tokens, sampled_tokens, num_checkpoints, stored_bytes";

void BindRow(Query& query, const SessionRow& row);
void BindRow(Query& query, const ModelRow& row);
void BindRow(Query& query, const RequestRow& row);
void BindRow(Query& query, const CheckpointRow& row);
void BindRow(Query& query, const SamplerRow& row);
void BindRow(Query& query, const SnapshotRow& row);
void BindRow(Query& query, const VersionRow& row);
void BindRow(Query& query, const BaseModelRow& row);
void BindRow(Query& query, const GroupRow& row);
void BindRow(Query& query, const ApiKeyRow& row);
void BindRow(Query& query, const AuditRow& row);
void BindRow(Query& query, const QuotaRow& row);
void BindRow(Query& query, const UsageRow& row);

void ReadRow(Query& query, SessionRow& row);
void ReadRow(Query& query, ModelRow& row);
void ReadRow(Query& query, RequestRow& row);
void ReadRow(Query& query, CompletionRow& row);
void ReadRow(Query& query, CheckpointRow& row);
void ReadRow(Query& query, SamplerRow& row);
void ReadRow(Query& query, SnapshotRow& row);
void ReadRow(Query& query, VersionRow& row);
void ReadRow(Query& query, BaseModelRow& row);
void ReadRow(Query& query, GroupRow& row);
void ReadRow(Query& query, ApiKeyRow& row);
void ReadRow(Query& query, AuditRow& row);
void ReadRow(Query& query, QuotaRow& row);
void ReadRow(Query& query, UsageRow& row);

// Reads every row that `query` finds.
template <typename Row>
std::vector<Row> ReadRows(Query& query) {
  std::vector<Row> rows;
  while (query.Next()) ReadRow(query, rows.emplace_back());
  return rows;
}

}  // namespace lathe::engine

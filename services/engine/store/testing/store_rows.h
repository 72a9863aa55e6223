// Rows for tests of stores. A test sets every field that matters to it.
#pragma once

#include <string>

#include "services/engine/store/store.h"

namespace lathe::engine {

inline SessionRow TestSession(const std::string& id, const std::string& tenant = "t1",
                              int64_t created_at = 1) {
  SessionRow row;
  row.session_id = id;
  row.tenant_id = tenant;
  row.user_metadata = {{"k", "v"}};
  row.tags = "a,b";
  row.created_at = created_at;
  return row;
}

inline AuditRow TestAudit(int64_t at, const std::string& tenant = "t1",
                          const std::string& resource = "organizations") {
  return {.at = at,
          .tenant_id = tenant,
          .resource = resource,
          .event = "e" + std::to_string(at),
          .actor = "k1",
          .object = "o",
          .outcome = "ok",
          .details = {{"a", "b"}}};
}

inline ModelRow TestModel(const std::string& id, const std::string& session = "s1",
                          const std::string& tenant = "t1", int64_t created_at = 1) {
  ModelRow row;
  row.model_id = id;
  row.session_id = session;
  row.tenant_id = tenant;
  row.base_model = "tiny";
  row.lora.seed = ~uint64_t{0};
  row.lora.alpha = 12.5;
  row.lora.train_mlp = false;
  row.lora.target_modules = {"q_proj", "lm_head"};
  row.state = ModelState::kReady;
  row.created_at = created_at;
  return row;
}

inline RequestRow TestRequest(const std::string& id, int64_t seq,
                              const std::string& owner = "s1:train:0") {
  RequestRow row;
  row.request_id = id;
  row.tenant_id = "t1";
  row.owner_id = owner;
  row.seq_id = seq;
  row.content_hash = "hash";
  row.plan = std::string("\0plan\xff", 6);
  row.accepted_at = seq;
  return row;
}

inline CheckpointRow TestCheckpoint(const std::string& path, const std::string& tenant = "t1",
                                    int64_t created_at = 1) {
  CheckpointRow row;
  row.tinker_path = path;
  row.model_id = "s1:train:0";
  row.tenant_id = tenant;
  row.name = "final";
  row.dir = "c1";
  row.base_model = "tiny";
  row.created_at = created_at;
  return row;
}

inline SnapshotRow TestSnapshot(const std::string& id, int64_t applied_seq,
                                const std::string& model = "s1:train:0") {
  return {.snapshot_id = id,
          .model_id = model,
          .applied_seq = applied_seq,
          .window = "8,9",
          .size_bytes = 5,
          .manifest_sha256 = "sha",
          .term = 3,
          .created_at = applied_seq};
}

}  // namespace lathe::engine

-- kind: offline
-- The second index serves the purge. Adding to an existing row changes neither index.
CREATE TABLE usage (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  tenant_id TEXT COLLATE "C" NOT NULL, hour BIGINT NOT NULL, session_id TEXT COLLATE "C" NOT NULL,
  base_model TEXT COLLATE "C" NOT NULL, forward_tokens BIGINT NOT NULL,
  forward_backward_tokens BIGINT NOT NULL, prefill_tokens BIGINT NOT NULL,
  cached_prefill_tokens BIGINT NOT NULL, sampled_tokens BIGINT NOT NULL,
  num_checkpoints BIGINT NOT NULL, stored_bytes BIGINT NOT NULL,
  PRIMARY KEY (tenant_id, hour, session_id, base_model));
CREATE INDEX usage_by_hour ON usage (hour);

-- kind: offline
-- The second index serves the purge. Adding to an existing row changes neither index.
CREATE TABLE usage (
  tenant_id TEXT NOT NULL, hour INTEGER NOT NULL, session_id TEXT NOT NULL,
  base_model TEXT NOT NULL, forward_tokens INTEGER NOT NULL,
  forward_backward_tokens INTEGER NOT NULL, prefill_tokens INTEGER NOT NULL,
  cached_prefill_tokens INTEGER NOT NULL, sampled_tokens INTEGER NOT NULL,
  num_checkpoints INTEGER NOT NULL, stored_bytes INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, hour, session_id, base_model)) WITHOUT ROWID;
CREATE INDEX usage_by_hour ON usage (hour);

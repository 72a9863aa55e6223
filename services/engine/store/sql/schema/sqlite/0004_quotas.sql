-- kind: offline
CREATE TABLE quotas (
  tenant_id TEXT PRIMARY KEY, requests_per_minute INTEGER NOT NULL,
  tokens_per_minute INTEGER NOT NULL, queued_bytes INTEGER NOT NULL,
  stored_bytes INTEGER NOT NULL, adapters INTEGER NOT NULL);

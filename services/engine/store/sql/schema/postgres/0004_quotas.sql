-- kind: offline
CREATE TABLE quotas (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  tenant_id TEXT COLLATE "C" PRIMARY KEY, requests_per_minute BIGINT NOT NULL,
  tokens_per_minute BIGINT NOT NULL, queued_bytes BIGINT NOT NULL, stored_bytes BIGINT NOT NULL,
  adapters BIGINT NOT NULL);

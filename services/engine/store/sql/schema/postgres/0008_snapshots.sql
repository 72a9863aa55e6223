-- kind: offline
-- The log and the snapshots that rebuild a model whose worker is gone.
ALTER TABLE models ADD COLUMN log_from_seq BIGINT NOT NULL DEFAULT 0;
ALTER TABLE requests ADD COLUMN outcome TEXT COLLATE "C" NOT NULL DEFAULT '';
-- What ran before left no log: those models can be rebuilt once they have a snapshot.
UPDATE models SET log_from_seq = (SELECT coalesce(max(requests.seq_id), 0) FROM requests
  WHERE requests.owner_id = models.model_id AND requests.op_class = 1);
CREATE TABLE snapshots (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  snapshot_id TEXT COLLATE "C" PRIMARY KEY, model_id TEXT COLLATE "C" NOT NULL,
  applied_seq BIGINT NOT NULL, "window" TEXT COLLATE "C" NOT NULL, size_bytes BIGINT NOT NULL,
  manifest_sha256 TEXT COLLATE "C" NOT NULL, term BIGINT NOT NULL, created_at BIGINT NOT NULL);
CREATE INDEX snapshots_by_model ON snapshots (model_id, created_at);
CREATE TABLE versions (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  version_id TEXT COLLATE "C" PRIMARY KEY, model_id TEXT COLLATE "C" NOT NULL,
  tenant_id TEXT COLLATE "C" NOT NULL, seq_id BIGINT NOT NULL, is_inflight BIGINT NOT NULL,
  dir TEXT COLLATE "C" NOT NULL, size_bytes BIGINT NOT NULL,
  manifest_sha256 TEXT COLLATE "C" NOT NULL);

-- kind: offline
-- The log and the snapshots that rebuild a model whose worker is gone.
ALTER TABLE models ADD COLUMN log_from_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE requests ADD COLUMN outcome TEXT NOT NULL DEFAULT '';
-- What ran before left no log: those models can be rebuilt once they have a snapshot.
UPDATE models SET log_from_seq = (SELECT coalesce(max(requests.seq_id), 0) FROM requests
  WHERE requests.owner_id = models.model_id AND requests.op_class = 1);
CREATE TABLE snapshots (
  snapshot_id TEXT PRIMARY KEY, model_id TEXT NOT NULL,
  applied_seq INTEGER NOT NULL, "window" TEXT NOT NULL, size_bytes INTEGER NOT NULL,
  manifest_sha256 TEXT NOT NULL, term INTEGER NOT NULL, created_at INTEGER NOT NULL);
CREATE INDEX snapshots_by_model ON snapshots (model_id, created_at);
CREATE TABLE versions (
  version_id TEXT PRIMARY KEY, model_id TEXT NOT NULL, tenant_id TEXT NOT NULL,
  seq_id INTEGER NOT NULL, is_inflight INTEGER NOT NULL, dir TEXT NOT NULL,
  size_bytes INTEGER NOT NULL, manifest_sha256 TEXT NOT NULL);

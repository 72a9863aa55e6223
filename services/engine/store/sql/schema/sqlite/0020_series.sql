-- kind: expand
-- Metrics of runs. The journal holds batches of points that are not in their series yet.
CREATE TABLE series_journal (journal_id INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
CREATE TABLE series_runs (
  run_id TEXT PRIMARY KEY, tenant_id TEXT NOT NULL, num_steps INTEGER NOT NULL,
  folded_through INTEGER NOT NULL, num_series INTEGER NOT NULL, last_at INTEGER NOT NULL);
CREATE INDEX series_runs_by_tenant ON series_runs (tenant_id, num_series);
CREATE INDEX series_runs_by_time ON series_runs (last_at);
CREATE TABLE series (
  run_id TEXT NOT NULL, name TEXT NOT NULL, unit TEXT NOT NULL, source INTEGER NOT NULL,
  folded_through INTEGER NOT NULL, num_points INTEGER NOT NULL, num_sealed INTEGER NOT NULL,
  last_step INTEGER NOT NULL, last_value REAL NOT NULL, last_ms INTEGER NOT NULL,
  tail BLOB NOT NULL, PRIMARY KEY (run_id, name));
CREATE TABLE series_chunks (
  run_id TEXT NOT NULL, name TEXT NOT NULL, level INTEGER NOT NULL, number INTEGER NOT NULL,
  first_step INTEGER NOT NULL, last_step INTEGER NOT NULL, num_buckets INTEGER NOT NULL,
  bytes BLOB NOT NULL, PRIMARY KEY (run_id, name, level, number));

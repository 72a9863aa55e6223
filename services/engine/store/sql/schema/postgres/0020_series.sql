-- kind: expand
-- Metrics of runs. The journal holds batches of points that are not in their series yet.
CREATE TABLE series_journal (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  journal_id BIGINT PRIMARY KEY, bytes BYTEA NOT NULL);
CREATE TABLE series_runs (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  run_id TEXT COLLATE "C" PRIMARY KEY, tenant_id TEXT COLLATE "C" NOT NULL,
  num_steps BIGINT NOT NULL, folded_through BIGINT NOT NULL, num_series BIGINT NOT NULL,
  last_at BIGINT NOT NULL);
CREATE INDEX series_runs_by_tenant ON series_runs (tenant_id, num_series);
CREATE INDEX series_runs_by_time ON series_runs (last_at);
CREATE TABLE series (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  run_id TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL,
  unit TEXT COLLATE "C" NOT NULL, source BIGINT NOT NULL, folded_through BIGINT NOT NULL,
  num_points BIGINT NOT NULL, num_sealed BIGINT NOT NULL, last_step BIGINT NOT NULL,
  last_value DOUBLE PRECISION NOT NULL, last_ms BIGINT NOT NULL, tail BYTEA NOT NULL,
  PRIMARY KEY (run_id, name));
CREATE TABLE series_chunks (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  run_id TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL, level BIGINT NOT NULL,
  number BIGINT NOT NULL, first_step BIGINT NOT NULL, last_step BIGINT NOT NULL,
  num_buckets BIGINT NOT NULL, bytes BYTEA NOT NULL,
  PRIMARY KEY (run_id, name, level, number));

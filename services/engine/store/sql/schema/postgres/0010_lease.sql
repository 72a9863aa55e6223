-- kind: offline
-- A table apart from the leader's row, which every commit locks. So a renewal never waits for a
-- commit.
CREATE TABLE lease (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  id BIGINT PRIMARY KEY CHECK (id = 1), term BIGINT NOT NULL, process TEXT COLLATE "C" NOT NULL,
  address TEXT COLLATE "C" NOT NULL, duration_ms BIGINT NOT NULL, num_renewals BIGINT NOT NULL);
INSERT INTO lease (id, term, process, address, duration_ms, num_renewals)
  SELECT 1, term, '', '', 0, 0 FROM leader;

ALTER TABLE leader DROP COLUMN holder;
ALTER TABLE lease SET (fillfactor = 10, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

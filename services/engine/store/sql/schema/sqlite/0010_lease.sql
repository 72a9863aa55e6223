-- kind: offline
-- A table apart from the leader's row, which every commit locks. So a renewal never waits for a
-- commit.
CREATE TABLE lease (
  id INTEGER PRIMARY KEY CHECK (id = 1), term INTEGER NOT NULL, process TEXT NOT NULL,
  address TEXT NOT NULL, duration_ms INTEGER NOT NULL, num_renewals INTEGER NOT NULL);
INSERT INTO lease (id, term, process, address, duration_ms, num_renewals)
  SELECT 1, term, '', '', 0, 0 FROM leader;

ALTER TABLE leader ADD COLUMN last_commit INTEGER NOT NULL DEFAULT 0;

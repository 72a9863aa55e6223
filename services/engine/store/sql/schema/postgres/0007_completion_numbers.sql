-- kind: offline
-- The index is small: it holds only what no client has fetched yet.
ALTER TABLE requests ADD COLUMN completion_number BIGINT NOT NULL DEFAULT 0;
CREATE INDEX requests_undelivered ON requests (completion_number)
  WHERE completion_number > 0 AND delivered_at = 0;

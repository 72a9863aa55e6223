-- kind: offline
-- Indexes of the results by the times that end them. A flag in the request's row limits both
-- indexes to requests whose result is kept. A request that replaces another one takes the result of
-- that one away. Results of such requests were left behind before.
ALTER TABLE requests ADD COLUMN has_result INTEGER NOT NULL DEFAULT 0;
DELETE FROM results WHERE NOT EXISTS (
  SELECT 1 FROM requests WHERE requests.request_id = results.request_id);
UPDATE requests SET has_result = 1 WHERE request_id IN (SELECT request_id FROM results);

CREATE INDEX results_by_done ON requests (done_at) WHERE has_result = 1;
CREATE INDEX results_by_delivered ON requests (delivered_at)
  WHERE has_result = 1 AND delivered_at > 0;
CREATE TRIGGER results_replaced AFTER UPDATE OF request_id ON requests
  WHEN old.request_id <> new.request_id
  BEGIN DELETE FROM results WHERE request_id = old.request_id; END;

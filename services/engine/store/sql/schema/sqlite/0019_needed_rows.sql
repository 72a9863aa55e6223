-- kind: expand, online
-- Indexes of the requests that a new leader needs (needed_rows.h). They hold few rows: results that
-- no client has fetched, kept results of samples, failed requests, and loads.
CREATE INDEX results_unfetched ON requests (done_at) WHERE has_result = 1 AND delivered_at = 0;
CREATE INDEX results_of_samples ON requests (owner_id) WHERE has_result = 1 AND op_class <> 1;
CREATE INDEX requests_failed ON requests (owner_id, done_at) WHERE state = 4 AND result_bytes >= 0;
CREATE INDEX requests_loads ON requests (owner_id) WHERE kind = 8;

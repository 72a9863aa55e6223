-- kind: expand
-- Limits of a tenant that have a default; -1 means the default. Sizes of the results: 0 without a
-- result, -1 if the tenant's limit removed the result.
ALTER TABLE quotas ADD COLUMN sessions INTEGER NOT NULL DEFAULT -1;
ALTER TABLE quotas ADD COLUMN samplers INTEGER NOT NULL DEFAULT -1;
ALTER TABLE quotas ADD COLUMN unfetched_results INTEGER NOT NULL DEFAULT -1;
ALTER TABLE quotas ADD COLUMN unfetched_bytes INTEGER NOT NULL DEFAULT -1;
ALTER TABLE requests ADD COLUMN result_bytes INTEGER NOT NULL DEFAULT 0;

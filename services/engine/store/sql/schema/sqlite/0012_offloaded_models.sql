-- kind: offline
-- The flag of offloaded models.
ALTER TABLE models RENAME COLUMN is_parked TO is_offloaded;

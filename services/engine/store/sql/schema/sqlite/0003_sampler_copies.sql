-- kind: offline
-- Numbers the copies of a sampling client.
ALTER TABLE samplers ADD COLUMN num_joined INTEGER NOT NULL DEFAULT 0;

-- kind: offline
-- Migration of models between groups on request.
ALTER TABLE models ADD COLUMN move_to TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE groups ADD COLUMN is_draining BIGINT NOT NULL DEFAULT 0;

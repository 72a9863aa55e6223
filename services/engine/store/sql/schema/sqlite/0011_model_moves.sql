-- kind: offline
-- Migration of models between groups on request.
ALTER TABLE models ADD COLUMN move_to TEXT NOT NULL DEFAULT '';
ALTER TABLE groups ADD COLUMN is_draining INTEGER NOT NULL DEFAULT 0;

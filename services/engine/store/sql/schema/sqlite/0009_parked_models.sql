-- kind: offline
-- State of models whose clients are gone.
ALTER TABLE models ADD COLUMN dropped_window TEXT NOT NULL DEFAULT '';
ALTER TABLE models ADD COLUMN is_parked INTEGER NOT NULL DEFAULT 0;

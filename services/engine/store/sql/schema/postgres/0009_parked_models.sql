-- kind: offline
-- State of models whose clients are gone.
ALTER TABLE models ADD COLUMN dropped_window TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE models ADD COLUMN is_parked BIGINT NOT NULL DEFAULT 0;

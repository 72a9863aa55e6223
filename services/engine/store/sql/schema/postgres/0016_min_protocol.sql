-- kind: expand
-- The oldest protocol whose engines can use the database. From here on, the rules for two releases
-- on one database hold (schema.h).
ALTER TABLE schema_version ADD COLUMN min_protocol BIGINT NOT NULL DEFAULT 0;

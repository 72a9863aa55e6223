-- kind: offline
-- AUTOINCREMENT never assigns a number twice, so a deleted entry leaves a visible gap.
CREATE TABLE audit (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at BIGINT NOT NULL,
  tenant_id TEXT COLLATE "C" NOT NULL, resource TEXT COLLATE "C" NOT NULL,
  event TEXT COLLATE "C" NOT NULL, actor TEXT COLLATE "C" NOT NULL,
  object TEXT COLLATE "C" NOT NULL, outcome TEXT COLLATE "C" NOT NULL,
  details TEXT COLLATE "C" NOT NULL);
CREATE INDEX audit_by_tenant ON audit (tenant_id, at);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$;
CREATE TRIGGER audit_stays BEFORE DELETE OR UPDATE ON audit
  FOR EACH ROW EXECUTE FUNCTION refuse_change();

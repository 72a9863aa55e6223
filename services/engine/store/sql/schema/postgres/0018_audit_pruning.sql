-- kind: expand
-- The audit log loses entries only in a transaction that names them in this table, which is empty
-- otherwise.
CREATE TABLE audit_pruning (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  id BIGINT PRIMARY KEY CHECK (id = 1), after_id BIGINT NOT NULL, through_id BIGINT NOT NULL);

CREATE FUNCTION refuse_deletion() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN
    IF EXISTS (SELECT 1 FROM audit_pruning WHERE OLD.id > after_id AND OLD.id <= through_id) THEN
      RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only';
  END $$;
DROP TRIGGER audit_stays ON audit;
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_keeps BEFORE DELETE ON audit
  FOR EACH ROW EXECUTE FUNCTION refuse_deletion();

-- kind: expand
-- The audit log loses entries only in a transaction that names them in this table, which is empty
-- otherwise.
CREATE TABLE audit_pruning (
  id INTEGER PRIMARY KEY CHECK (id = 1), after_id INTEGER NOT NULL, through_id INTEGER NOT NULL);

DROP TRIGGER audit_keeps;
CREATE TRIGGER audit_keeps BEFORE DELETE ON audit
  WHEN NOT EXISTS (SELECT 1 FROM audit_pruning WHERE old.id > after_id AND old.id <= through_id)
  BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

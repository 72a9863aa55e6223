-- kind: offline
-- AUTOINCREMENT never assigns a number twice, so a deleted entry leaves a visible gap.
CREATE TABLE audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, tenant_id TEXT NOT NULL,
  resource TEXT NOT NULL, event TEXT NOT NULL, actor TEXT NOT NULL, object TEXT NOT NULL,
  outcome TEXT NOT NULL, details TEXT NOT NULL);
CREATE INDEX audit_by_tenant ON audit (tenant_id, at);

CREATE TRIGGER audit_keeps BEFORE DELETE ON audit
  BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit
  BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

-- kind: expand
-- People who signed in through an identity provider, the roles that administrators gave them, and
-- the sessions of browsers. The engine holds all of these rows in memory and reads them only when
-- it starts to lead. A session belongs to a user, to an API key or, with neither, to the person who
-- started the service.
CREATE TABLE users (
  user_id TEXT PRIMARY KEY, issuer TEXT NOT NULL, subject TEXT NOT NULL,
  email TEXT NOT NULL, name TEXT NOT NULL, role TEXT NOT NULL,
  tenant_id TEXT NOT NULL, created_at INTEGER NOT NULL, last_login_at INTEGER NOT NULL,
  disabled_at INTEGER NOT NULL, UNIQUE (issuer, subject));
CREATE TABLE role_bindings (
  user_id TEXT NOT NULL, tenant_id TEXT NOT NULL, role TEXT NOT NULL,
  created_at INTEGER NOT NULL, created_by TEXT NOT NULL,
  PRIMARY KEY (user_id, tenant_id));
CREATE TABLE user_sessions (
  session_hash TEXT PRIMARY KEY, user_id TEXT NOT NULL, key_id TEXT NOT NULL,
  tenant_id TEXT NOT NULL, role TEXT NOT NULL, created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL, user_agent TEXT NOT NULL, ip_prefix TEXT NOT NULL);
CREATE INDEX user_sessions_by_expiry ON user_sessions (expires_at);

-- kind: expand
-- People who signed in through an identity provider, the roles that administrators gave them, and
-- the sessions of browsers. The engine holds all of these rows in memory and reads them only when
-- it starts to lead. A session belongs to a user, to an API key or, with neither, to the person who
-- started the service.
CREATE TABLE users (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  user_id TEXT COLLATE "C" PRIMARY KEY, issuer TEXT COLLATE "C" NOT NULL, subject TEXT COLLATE "C" NOT NULL,
  email TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL, role TEXT COLLATE "C" NOT NULL,
  tenant_id TEXT COLLATE "C" NOT NULL, created_at BIGINT NOT NULL, last_login_at BIGINT NOT NULL,
  disabled_at BIGINT NOT NULL, UNIQUE (issuer, subject));
CREATE TABLE role_bindings (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  user_id TEXT COLLATE "C" NOT NULL, tenant_id TEXT COLLATE "C" NOT NULL, role TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL, created_by TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (user_id, tenant_id));
CREATE TABLE user_sessions (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  session_hash TEXT COLLATE "C" PRIMARY KEY, user_id TEXT COLLATE "C" NOT NULL, key_id TEXT COLLATE "C" NOT NULL,
  tenant_id TEXT COLLATE "C" NOT NULL, role TEXT COLLATE "C" NOT NULL, created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL, user_agent TEXT COLLATE "C" NOT NULL, ip_prefix TEXT COLLATE "C" NOT NULL);
CREATE INDEX user_sessions_by_expiry ON user_sessions (expires_at);

-- The ownership index, and in the same row the memo that makes a keyed create idempotent.

CREATE TABLE forge_authored_artifacts (
  forge_provider smallint NOT NULL,
  forge_host text COLLATE "C" NOT NULL,
  repo text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  number bigint NOT NULL,
  repo_display text COLLATE "C" NOT NULL,
  agent_account_id bigint NOT NULL,
  owner_user_id bigint NOT NULL,
  session_id text COLLATE "C" NOT NULL,
  client_request_id text COLLATE "C",
  request_fingerprint bytea,
  url text NOT NULL,
  forge_created_at text NOT NULL,
  created_at_unix_ms bigint NOT NULL,
  recorded_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT forge_authored_artifacts_pkey PRIMARY KEY (forge_provider, forge_host, repo, kind, number),
  CONSTRAINT forge_authored_artifacts_agent_fkey FOREIGN KEY (agent_account_id)
    REFERENCES agent_accounts (id) ON DELETE RESTRICT,
  CONSTRAINT forge_authored_artifacts_owner_fkey FOREIGN KEY (owner_user_id)
    REFERENCES user_accounts (id) ON DELETE RESTRICT,
  CONSTRAINT forge_authored_artifacts_provider_known CHECK (forge_provider IN (1, 2, 3, 4)),
  CONSTRAINT forge_authored_artifacts_host_filled CHECK (forge_host <> ''),
  CONSTRAINT forge_authored_artifacts_repo_filled CHECK (repo <> '' AND repo_display <> ''),
  CONSTRAINT forge_authored_artifacts_kind_known CHECK (kind IN ('issue', 'pull_request')),
  CONSTRAINT forge_authored_artifacts_number_positive CHECK (number >= 1),
  CONSTRAINT forge_authored_artifacts_session_grammar CHECK (session_id ~ '^[a-z0-9][a-z0-9-]{0,38}$'),
  CONSTRAINT forge_authored_artifacts_request_printable CHECK (
    client_request_id ~ '^[ -~]+$' AND octet_length(client_request_id) <= 256
  ),
  CONSTRAINT forge_authored_artifacts_fingerprint_size CHECK (octet_length(request_fingerprint) = 32),
  CONSTRAINT forge_authored_artifacts_memo_whole CHECK (
    (client_request_id IS NULL) = (request_fingerprint IS NULL)
  )
);
COMMENT ON TABLE forge_authored_artifacts IS 'Who wrote which artifact; a row stands only for what a forge has accepted.';
COMMENT ON COLUMN forge_authored_artifacts.repo IS 'The canonical name, by which rows are found; repo_display is the forge''s own.';
COMMENT ON COLUMN forge_authored_artifacts.forge_created_at IS 'As the forge said it, so that a replay answers the same text.';

CREATE UNIQUE INDEX forge_authored_artifacts_request_key
  ON forge_authored_artifacts (agent_account_id, client_request_id) WHERE client_request_id IS NOT NULL;
CREATE INDEX forge_authored_artifacts_agent_idx ON forge_authored_artifacts (agent_account_id, created_at_unix_ms DESC);
CREATE INDEX forge_authored_artifacts_newest_idx ON forge_authored_artifacts (created_at_unix_ms DESC);

CREATE TABLE store_secrets (
  name text COLLATE "C" NOT NULL,
  value bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT store_secrets_pkey PRIMARY KEY (name),
  CONSTRAINT store_secrets_value_size CHECK (octet_length(value) = 32)
);
COMMENT ON TABLE store_secrets IS 'Keys that all daemons of this store share; made once, by the migration that brings them.';

-- Two version 4 UUIDs hold 244 random bits from the server's strong source; their hash is the key.
INSERT INTO store_secrets (name, value)
VALUES ('ref', sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));

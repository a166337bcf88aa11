-- The whole schema, as all migrations give it: for reading, and for tools that compare. The daemon never runs it; a test
-- builds one database from this file and one from the migrations, and compares the two.

CREATE TABLE forged_migrations (
  version integer NOT NULL,
  name text NOT NULL,
  checksum bytea NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT forged_migrations_pkey PRIMARY KEY (version)
);

CREATE TABLE user_accounts (
  id bigint GENERATED ALWAYS AS IDENTITY,
  handle text COLLATE "C" NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT user_accounts_pkey PRIMARY KEY (id),
  CONSTRAINT user_accounts_handle_key UNIQUE (handle),
  CONSTRAINT user_accounts_handle_grammar CHECK (handle ~ '^[a-z0-9][a-z0-9-]{0,38}$')
);
COMMENT ON TABLE user_accounts IS 'The people who own agents.';

CREATE TABLE agent_accounts (
  id bigint GENERATED ALWAYS AS IDENTITY,
  handle text COLLATE "C" NOT NULL,
  owner_user_id bigint NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT agent_accounts_pkey PRIMARY KEY (id),
  CONSTRAINT agent_accounts_handle_key UNIQUE (handle),
  CONSTRAINT agent_accounts_handle_grammar CHECK (handle ~ '^[a-z0-9][a-z0-9-]{0,38}$'),
  CONSTRAINT agent_accounts_owner_fkey FOREIGN KEY (owner_user_id) REFERENCES user_accounts (id) ON DELETE RESTRICT
);
COMMENT ON TABLE agent_accounts IS 'The durable identities of agents; an agent is never re-owned.';

CREATE INDEX agent_accounts_owner_idx ON agent_accounts (owner_user_id);

CREATE TABLE host_containers (
  host_id text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  allowed_uids bigint[] NOT NULL DEFAULT '{}',
  socket_group bigint,
  opened_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT host_containers_pkey PRIMARY KEY (host_id, name),
  CONSTRAINT host_containers_host_grammar CHECK (host_id ~ '^[!-~]{1,255}$'),
  CONSTRAINT host_containers_name_grammar CHECK (name ~ '^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$'),
  CONSTRAINT host_containers_uids_range CHECK (
    array_position(allowed_uids, NULL) IS NULL AND 0 <= ALL (allowed_uids) AND 4294967295 > ALL (allowed_uids)
  ),
  CONSTRAINT host_containers_group_range CHECK (socket_group >= 0 AND socket_group < 4294967295)
);
COMMENT ON TABLE host_containers IS 'Which containers are open on which host, for a restart of its daemon.';

CREATE TABLE agent_sessions (
  session_id text COLLATE "C" NOT NULL,
  agent_account_id bigint NOT NULL,
  host_id text COLLATE "C" NOT NULL,
  container text COLLATE "C" NOT NULL,
  scope text[],
  bound_at timestamptz NOT NULL DEFAULT now(),
  ended_at timestamptz,
  CONSTRAINT agent_sessions_pkey PRIMARY KEY (session_id),
  CONSTRAINT agent_sessions_id_grammar CHECK (session_id ~ '^[a-z0-9][a-z0-9-]{0,38}$'),
  CONSTRAINT agent_sessions_agent_fkey FOREIGN KEY (agent_account_id)
    REFERENCES agent_accounts (id) ON DELETE RESTRICT,
  CONSTRAINT agent_sessions_scope_whole CHECK (array_position(scope, NULL) IS NULL),
  CONSTRAINT agent_sessions_ended_after_bound CHECK (ended_at >= bound_at)
);
COMMENT ON TABLE agent_sessions IS 'One run of one agent in one container; scope NULL is everything, an empty one nothing.';

CREATE UNIQUE INDEX agent_sessions_one_live_key ON agent_sessions (host_id, container) WHERE ended_at IS NULL;
CREATE INDEX agent_sessions_agent_idx ON agent_sessions (agent_account_id);

CREATE TABLE forge_repo_subscriptions (
  id bigint GENERATED ALWAYS AS IDENTITY,
  forge_provider smallint NOT NULL,
  forge_host text COLLATE "C" NOT NULL,
  repo text COLLATE "C" NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT forge_repo_subscriptions_pkey PRIMARY KEY (id),
  CONSTRAINT forge_repo_subscriptions_repo_key UNIQUE (forge_provider, forge_host, repo),
  CONSTRAINT forge_repo_subscriptions_provider_known CHECK (forge_provider IN (1, 2, 3, 4))
);
COMMENT ON TABLE forge_repo_subscriptions IS 'The repositories that a poller will follow.';

CREATE TABLE forge_artifact_cursors (
  forge_provider smallint NOT NULL,
  forge_host text COLLATE "C" NOT NULL,
  repo text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  number bigint NOT NULL,
  cursor text NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT forge_artifact_cursors_pkey PRIMARY KEY (forge_provider, forge_host, repo, kind, number),
  CONSTRAINT forge_artifact_cursors_provider_known CHECK (forge_provider IN (1, 2, 3, 4)),
  CONSTRAINT forge_artifact_cursors_kind_known CHECK (kind IN ('issue', 'pull_request')),
  CONSTRAINT forge_artifact_cursors_number_positive CHECK (number >= 1)
);
COMMENT ON TABLE forge_artifact_cursors IS 'How far a poller has read one artifact.';

CREATE TABLE forge_list_cursors (
  forge_provider smallint NOT NULL,
  forge_host text COLLATE "C" NOT NULL,
  repo text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  cursor text NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT forge_list_cursors_pkey PRIMARY KEY (forge_provider, forge_host, repo, kind),
  CONSTRAINT forge_list_cursors_provider_known CHECK (forge_provider IN (1, 2, 3, 4)),
  CONSTRAINT forge_list_cursors_kind_known CHECK (kind IN ('issue', 'pull_request'))
);
COMMENT ON TABLE forge_list_cursors IS 'How far a poller has read the list of a repository.';

CREATE TABLE agent_forge_subscriptions (
  id bigint GENERATED ALWAYS AS IDENTITY,
  agent_account_id bigint NOT NULL,
  forge_provider smallint NOT NULL,
  forge_host text COLLATE "C" NOT NULL,
  repo text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  number bigint NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  subscription_id uuid NOT NULL DEFAULT gen_random_uuid(),
  session_id text COLLATE "C" NOT NULL,
  ended_at timestamptz,
  CONSTRAINT agent_forge_subscriptions_pkey PRIMARY KEY (id),
  CONSTRAINT agent_forge_subscriptions_id_key UNIQUE (subscription_id),
  CONSTRAINT agent_forge_subscriptions_artifact_key
    UNIQUE (agent_account_id, forge_provider, forge_host, repo, kind, number),
  CONSTRAINT agent_forge_subscriptions_agent_fkey FOREIGN KEY (agent_account_id)
    REFERENCES agent_accounts (id) ON DELETE RESTRICT,
  CONSTRAINT agent_forge_subscriptions_provider_known CHECK (forge_provider IN (1, 2, 3, 4)),
  CONSTRAINT agent_forge_subscriptions_kind_known CHECK (kind IN ('issue', 'pull_request')),
  CONSTRAINT agent_forge_subscriptions_number_positive CHECK (number >= 1),
  CONSTRAINT agent_forge_subscriptions_session_grammar CHECK (session_id ~ '^[a-z0-9][a-z0-9-]{0,38}$'),
  CONSTRAINT agent_forge_subscriptions_host_filled CHECK (forge_host <> ''),
  CONSTRAINT agent_forge_subscriptions_repo_filled CHECK (repo <> ''),
  CONSTRAINT agent_forge_subscriptions_ended_after_created CHECK (ended_at >= created_at)
);
COMMENT ON TABLE agent_forge_subscriptions IS 'Which agent wants to hear of which artifact; subscribing again is the same row.';
COMMENT ON COLUMN agent_forge_subscriptions.subscription_id IS 'What agents are told; it says nothing of how many there are.';
COMMENT ON COLUMN agent_forge_subscriptions.session_id IS 'In which session it was begun, or begun again.';
COMMENT ON COLUMN agent_forge_subscriptions.ended_at IS 'NULL while it is live; a row that has ended stays, so that ending it again is no error.';

CREATE INDEX agent_forge_subscriptions_live_idx
  ON agent_forge_subscriptions (forge_provider, forge_host, repo, kind, number) WHERE ended_at IS NULL;

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

-- Daemons that share the store learn on one channel that something of a live session was changed or taken away. The
-- payload is "host_id session_id" (neither has a space in it); a listener asks the store what is true now.

CREATE FUNCTION tell_of_session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('compass_forged_sessions', OLD.host_id || ' ' || OLD.session_id);
  RETURN NULL;
END
$$;
COMMENT ON FUNCTION tell_of_session() IS 'Tells the daemon of the session''s host that the session is no longer what it was.';

CREATE FUNCTION tell_of_container() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM pg_notify('compass_forged_sessions', OLD.host_id || ' ' || session_id)
  FROM agent_sessions WHERE host_id = OLD.host_id AND container = OLD.name AND ended_at IS NULL;
  RETURN NULL;
END
$$;
COMMENT ON FUNCTION tell_of_container() IS 'Tells the daemon of the container''s host of the session that was live in it.';

CREATE TRIGGER agent_sessions_changed AFTER UPDATE ON agent_sessions FOR EACH ROW
  WHEN (
    OLD.ended_at IS NULL
    AND (NEW.session_id, NEW.agent_account_id, NEW.host_id, NEW.container, NEW.scope, NEW.ended_at)
      IS DISTINCT FROM (OLD.session_id, OLD.agent_account_id, OLD.host_id, OLD.container, OLD.scope, OLD.ended_at)
  )
  EXECUTE FUNCTION tell_of_session();
CREATE TRIGGER agent_sessions_deleted AFTER DELETE ON agent_sessions FOR EACH ROW WHEN (OLD.ended_at IS NULL)
  EXECUTE FUNCTION tell_of_session();
CREATE TRIGGER host_containers_deleted AFTER DELETE ON host_containers FOR EACH ROW
  EXECUTE FUNCTION tell_of_container();

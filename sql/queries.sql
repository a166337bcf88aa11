-- Every statement that the daemon sends, each with a name and a sentence. $1, $2 … are parameters, always.

-- name: migrations_exist
-- Whether the table of applied migrations is there.
SELECT to_regclass('forged_migrations') IS NOT NULL AS present;

-- name: lock_migrations
-- Holds off every other migrating daemon until this transaction ends. The number is this project's own.
SELECT pg_advisory_xact_lock(7163404522148915);

-- name: create_migrations
-- Makes the table of applied migrations where it is missing.
CREATE TABLE IF NOT EXISTS forged_migrations (
  version integer NOT NULL,
  name text NOT NULL,
  checksum bytea NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT forged_migrations_pkey PRIMARY KEY (version)
);

-- name: list_migrations
-- The migrations that were applied, in order.
SELECT version, name, checksum, applied_at FROM forged_migrations ORDER BY version;

-- name: record_migration
-- Notes a migration as applied, in its own transaction.
INSERT INTO forged_migrations (version, name, checksum) VALUES ($1, $2, $3);

-- name: open_container
-- Opens a container on a host, or takes over its new settings.
INSERT INTO host_containers (host_id, name, allowed_uids, socket_group) VALUES ($1, $2, $3, $4)
ON CONFLICT ON CONSTRAINT host_containers_pkey DO UPDATE
SET allowed_uids = EXCLUDED.allowed_uids, socket_group = EXCLUDED.socket_group;

-- name: close_container
-- Forgets a container; a bind that holds its row is waited for.
DELETE FROM host_containers WHERE host_id = $1 AND name = $2;

-- name: lock_container
-- Finds an open container and holds its row, so that binds to one container come one after the other.
SELECT name FROM host_containers WHERE host_id = $1 AND name = $2 FOR UPDATE;

-- name: lock_sessions
-- Holds the rows that a bind may change, always in the same order so that two binds never wait for each other.
SELECT session_id, agent_account_id, host_id, container, ended_at IS NULL AS live
FROM agent_sessions
WHERE session_id = $3 OR (host_id = $1 AND container = $2 AND ended_at IS NULL)
ORDER BY session_id
FOR UPDATE;

-- name: add_user
-- Creates a user where the handle is new.
INSERT INTO user_accounts (handle) VALUES ($1) ON CONFLICT ON CONSTRAINT user_accounts_handle_key DO NOTHING;

-- name: add_agent
-- Creates an agent under the owner of that handle, where the agent's handle is new.
INSERT INTO agent_accounts (handle, owner_user_id) SELECT $1, id FROM user_accounts WHERE handle = $2
ON CONFLICT ON CONSTRAINT agent_accounts_handle_key DO NOTHING;

-- name: find_agent
-- An agent's account with its owner's, by the agent's handle.
SELECT agent.id AS agent_id, agent.handle AS agent, owner.id AS owner_id, owner.handle AS owner
FROM agent_accounts AS agent JOIN user_accounts AS owner ON owner.id = agent.owner_user_id
WHERE agent.handle = $1;

-- name: end_other_sessions
-- Ends the container's live session unless it is the named one.
UPDATE agent_sessions SET ended_at = greatest(now(), bound_at)
WHERE host_id = $1 AND container = $2 AND session_id <> $3 AND ended_at IS NULL;

-- name: bind_session
-- Writes the session as live here; gives no row back if it is another agent's, or live elsewhere.
INSERT INTO agent_sessions AS stored (session_id, agent_account_id, host_id, container, scope)
VALUES ($3, $4, $1, $2, $5)
ON CONFLICT ON CONSTRAINT agent_sessions_pkey DO UPDATE SET
  host_id = EXCLUDED.host_id,
  container = EXCLUDED.container,
  scope = EXCLUDED.scope,
  bound_at = CASE WHEN stored.ended_at IS NULL THEN stored.bound_at ELSE now() END,
  ended_at = NULL
WHERE stored.agent_account_id = EXCLUDED.agent_account_id
  AND (stored.ended_at IS NOT NULL
       OR (stored.host_id = EXCLUDED.host_id AND stored.container = EXCLUDED.container))
RETURNING session_id;

-- name: end_session
-- Ends the container's live session and gives it back.
UPDATE agent_sessions AS session SET ended_at = greatest(now(), session.bound_at)
FROM agent_accounts AS agent JOIN user_accounts AS owner ON owner.id = agent.owner_user_id
WHERE session.host_id = $1 AND session.container = $2 AND session.ended_at IS NULL
  AND agent.id = session.agent_account_id
RETURNING session.session_id, session.container, session.scope,
  agent.id AS agent_id, agent.handle AS agent, owner.id AS owner_id, owner.handle AS owner;

-- name: load_host
-- The open containers of a host, each with its live session where it has one: one statement, so one moment.
SELECT container.name, container.allowed_uids, container.socket_group,
  session.session_id, session.container, session.scope,
  agent.id AS agent_id, agent.handle AS agent, owner.id AS owner_id, owner.handle AS owner
FROM host_containers AS container
LEFT JOIN (
  agent_sessions AS session
  JOIN agent_accounts AS agent ON agent.id = session.agent_account_id
  JOIN user_accounts AS owner ON owner.id = agent.owner_user_id
) ON session.host_id = container.host_id AND session.container = container.name AND session.ended_at IS NULL
WHERE container.host_id = $1
ORDER BY container.name;

-- name: record_authored_artifact
-- Writes ownership and memo in one step; fills an absent memo of the same agent, gives no row back if it is another's.
INSERT INTO forge_authored_artifacts AS stored (
  forge_provider, forge_host, repo, kind, number, repo_display, agent_account_id, owner_user_id, session_id,
  client_request_id, request_fingerprint, url, forge_created_at, created_at_unix_ms
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
ON CONFLICT ON CONSTRAINT forge_authored_artifacts_pkey DO UPDATE SET
  client_request_id = coalesce(stored.client_request_id, EXCLUDED.client_request_id),
  request_fingerprint = coalesce(stored.request_fingerprint, EXCLUDED.request_fingerprint)
WHERE stored.agent_account_id = EXCLUDED.agent_account_id
RETURNING agent_account_id;

-- name: record_authored_artifacts
-- The same for many rows at once, no two of one coordinate or one key; answers the positions that have a row now.
WITH wanted AS (
  SELECT * FROM unnest(
    $1::smallint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[], $9::text[],
    $10::text[], $11::bytea[], $12::text[], $13::text[], $14::bigint[]
  ) WITH ORDINALITY AS given (
    forge_provider, forge_host, repo, kind, number, repo_display, agent_account_id, owner_user_id, session_id,
    client_request_id, request_fingerprint, url, forge_created_at, created_at_unix_ms, position
  )
), written AS (
  INSERT INTO forge_authored_artifacts AS stored (
    forge_provider, forge_host, repo, kind, number, repo_display, agent_account_id, owner_user_id, session_id,
    client_request_id, request_fingerprint, url, forge_created_at, created_at_unix_ms
  )
  SELECT forge_provider, forge_host, repo, kind, number, repo_display, agent_account_id, owner_user_id, session_id,
    client_request_id, request_fingerprint, url, forge_created_at, created_at_unix_ms
  FROM wanted
  -- In one order everywhere, so that two of these wait for each other's rows in turn and not for one another.
  ORDER BY forge_provider, forge_host COLLATE "C", repo COLLATE "C", kind COLLATE "C", number
  ON CONFLICT ON CONSTRAINT forge_authored_artifacts_pkey DO UPDATE SET
    client_request_id = coalesce(stored.client_request_id, EXCLUDED.client_request_id),
    request_fingerprint = coalesce(stored.request_fingerprint, EXCLUDED.request_fingerprint)
  WHERE stored.agent_account_id = EXCLUDED.agent_account_id
  RETURNING forge_provider, forge_host, repo, kind, number
)
SELECT wanted.position
FROM wanted JOIN written
  ON (wanted.forge_provider, wanted.number) = (written.forge_provider, written.number)
  AND (wanted.forge_host, wanted.repo, wanted.kind) = (written.forge_host, written.repo, written.kind);

-- name: fill_memo
-- Gives a row of that agent's the memo, where it has none, and tells whether the key stands for another artifact.
UPDATE forge_authored_artifacts AS artifact SET
  client_request_id = coalesce(client_request_id, $7),
  request_fingerprint = coalesce(request_fingerprint, $8)
WHERE (forge_provider, forge_host, repo, kind, number) = ($1, $2, $3, $4, $5) AND agent_account_id = $6
RETURNING artifact.client_request_id <> $7 AND EXISTS (
  SELECT FROM forge_authored_artifacts AS other
  WHERE other.agent_account_id = $6 AND other.client_request_id = $7
) AS taken;

-- name: artifact_by_request_id
-- The memo: what an agent created under a key.
SELECT artifact.forge_provider, artifact.forge_host, artifact.repo, artifact.kind, artifact.number,
  artifact.repo_display, artifact.session_id, artifact.client_request_id, artifact.request_fingerprint, artifact.url,
  artifact.forge_created_at,
  agent.id AS agent_id, agent.handle AS agent, owner.id AS owner_id, owner.handle AS owner
FROM forge_authored_artifacts AS artifact
JOIN agent_accounts AS agent ON agent.id = artifact.agent_account_id
JOIN user_accounts AS owner ON owner.id = artifact.owner_user_id
WHERE artifact.agent_account_id = $1 AND artifact.client_request_id = $2;

-- name: artifacts
-- The index, newest first, narrowed to an agent's artifacts or a repository's; a NULL narrows nothing.
SELECT artifact.forge_provider, artifact.forge_host, artifact.repo, artifact.kind, artifact.number,
  artifact.repo_display, artifact.session_id, artifact.client_request_id, artifact.request_fingerprint, artifact.url,
  artifact.forge_created_at,
  agent.id AS agent_id, agent.handle AS agent, owner.id AS owner_id, owner.handle AS owner
FROM forge_authored_artifacts AS artifact
JOIN agent_accounts AS agent ON agent.id = artifact.agent_account_id
JOIN user_accounts AS owner ON owner.id = artifact.owner_user_id
WHERE ($1::bigint IS NULL OR artifact.agent_account_id = $1)
  AND ($2::text IS NULL OR lower(artifact.repo) = lower($2::text COLLATE "C"))
ORDER BY artifact.created_at_unix_ms DESC, artifact.forge_provider, artifact.forge_host, artifact.repo, artifact.kind,
  artifact.number
LIMIT $3;

-- name: attribution
-- Who wrote the artifacts of a page; position says which of the wanted a row answers, counted from 1.
SELECT wanted.position, agent.handle AS agent, owner.handle AS owner, artifact.session_id
FROM unnest($1::smallint[], $2::text[], $3::text[], $4::text[], $5::bigint[])
  WITH ORDINALITY AS wanted (forge_provider, forge_host, repo, kind, number, position)
JOIN forge_authored_artifacts AS artifact USING (forge_provider, forge_host, repo, kind, number)
JOIN agent_accounts AS agent ON agent.id = artifact.agent_account_id
JOIN user_accounts AS owner ON owner.id = artifact.owner_user_id;

-- name: subscribe
-- Writes a subscription and that its repository is followed, or wakes the one there is; no row back beyond the limit $8.
WITH wanted AS (
  SELECT $1::bigint AS agent_account_id, $2::smallint AS forge_provider, $3::text AS forge_host, $4::text AS repo,
    $5::text AS kind, $6::bigint AS number, $7::text AS session_id
  WHERE (SELECT count(*) FROM agent_forge_subscriptions WHERE agent_account_id = $1) < $8::bigint
    OR EXISTS (
      SELECT FROM agent_forge_subscriptions
      WHERE (agent_account_id, forge_provider, forge_host, repo, kind, number) = ($1, $2, $3, $4, $5, $6)
    )
), followed AS (
  INSERT INTO forge_repo_subscriptions (forge_provider, forge_host, repo)
  SELECT forge_provider, forge_host, repo FROM wanted
  ON CONFLICT ON CONSTRAINT forge_repo_subscriptions_repo_key DO NOTHING
)
INSERT INTO agent_forge_subscriptions AS stored (
  agent_account_id, forge_provider, forge_host, repo, kind, number, session_id
)
SELECT agent_account_id, forge_provider, forge_host, repo, kind, number, session_id FROM wanted
ON CONFLICT ON CONSTRAINT agent_forge_subscriptions_artifact_key DO UPDATE SET
  session_id = CASE WHEN stored.ended_at IS NULL THEN stored.session_id ELSE EXCLUDED.session_id END,
  ended_at = NULL
RETURNING subscription_id, forge_provider, forge_host, repo, kind, number, session_id, ended_at IS NULL AS live;

-- name: subscription
-- One of an agent's own subscriptions, live or ended.
SELECT subscription_id, forge_provider, forge_host, repo, kind, number, session_id, ended_at IS NULL AS live
FROM agent_forge_subscriptions
WHERE agent_account_id = $1 AND subscription_id = $2;

-- name: unsubscribe
-- Ends one of an agent's own subscriptions; one that has ended stays as it is.
UPDATE agent_forge_subscriptions SET ended_at = coalesce(ended_at, greatest(now(), created_at))
WHERE agent_account_id = $1 AND subscription_id = $2
RETURNING subscription_id;

-- name: store_secret
-- A key that all daemons of this store share.
SELECT value FROM store_secrets WHERE name = $1;

-- name: claim_host
-- Takes this connection's hold on a host id, which one daemon at a time may have. The hash is for this project alone.
SELECT pg_try_advisory_lock(hashtextextended($1, 7163404522148916)) AS held;

-- name: still_listening
-- Whether this connection still listens on a channel; that it answers at all is the other half.
SELECT EXISTS (SELECT FROM pg_listening_channels() AS channel WHERE channel = $1) AS listening;

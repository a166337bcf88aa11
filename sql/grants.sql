-- What a role needs that runs the daemon and cannot alter the schema.
--
-- Apply the migrations as the schema's owner (`compass-forged db migrate`), then run this file as the owner, then give
-- the daemon the DSN of the role named here (any name will do: replace it throughout). Run it again after an upgrade.
--
--   CREATE ROLE compass_forged_daemon LOGIN PASSWORD '…';
--
-- The role can neither rewrite who wrote an artifact nor delete a row of the index, an account or a session: UPDATE is
-- granted by column, and DELETE on open containers alone, which are forgotten when they close. Identity columns need no
-- grant on their sequences. The poller's cursors are granted to nobody until something reads them; a subscription ends by a
-- date, so that the role deletes none.
-- LISTEN, and the triggers that tell of ended sessions, need no grant.

GRANT SELECT ON forged_migrations, store_secrets TO compass_forged_daemon;
GRANT SELECT, INSERT ON user_accounts, agent_accounts TO compass_forged_daemon;
GRANT SELECT, INSERT, DELETE, UPDATE (allowed_uids, socket_group) ON host_containers TO compass_forged_daemon;
GRANT SELECT, INSERT, UPDATE (host_id, container, scope, bound_at, ended_at) ON agent_sessions
  TO compass_forged_daemon;
GRANT SELECT, INSERT, UPDATE (client_request_id, request_fingerprint) ON forge_authored_artifacts
  TO compass_forged_daemon;
GRANT SELECT, INSERT ON forge_repo_subscriptions TO compass_forged_daemon;
GRANT SELECT, INSERT, UPDATE (session_id, ended_at) ON agent_forge_subscriptions TO compass_forged_daemon;

-- Subscriptions get what their writer needs; until this migration nothing has written the table.

ALTER TABLE agent_forge_subscriptions
  ADD COLUMN subscription_id uuid NOT NULL DEFAULT gen_random_uuid(),
  ADD COLUMN session_id text COLLATE "C" NOT NULL,
  ADD COLUMN ended_at timestamptz,
  ADD CONSTRAINT agent_forge_subscriptions_id_key UNIQUE (subscription_id),
  ADD CONSTRAINT agent_forge_subscriptions_session_grammar CHECK (session_id ~ '^[a-z0-9][a-z0-9-]{0,38}$'),
  ADD CONSTRAINT agent_forge_subscriptions_host_filled CHECK (forge_host <> ''),
  ADD CONSTRAINT agent_forge_subscriptions_repo_filled CHECK (repo <> ''),
  ADD CONSTRAINT agent_forge_subscriptions_ended_after_created CHECK (ended_at >= created_at);
COMMENT ON COLUMN agent_forge_subscriptions.subscription_id IS 'What agents are told; it says nothing of how many there are.';
COMMENT ON COLUMN agent_forge_subscriptions.session_id IS 'In which session it was begun, or begun again.';
COMMENT ON COLUMN agent_forge_subscriptions.ended_at IS 'NULL while it is live; a row that has ended stays, so that ending it again is no error.';

-- For whoever delivers: who listens to an artifact.
CREATE INDEX agent_forge_subscriptions_live_idx
  ON agent_forge_subscriptions (forge_provider, forge_host, repo, kind, number) WHERE ended_at IS NULL;

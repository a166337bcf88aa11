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

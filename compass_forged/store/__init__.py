"""What the daemon keeps: the port's two adapters, Postgres and memory, and what Postgres needs around it."""

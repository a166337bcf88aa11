"""The control socket: how a runner opens containers and binds sessions. Schema, server and client."""

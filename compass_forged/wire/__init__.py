"""The protocol between a container and the daemon: schema, codec and framing. Pure: no I/O, no clock, no loop."""

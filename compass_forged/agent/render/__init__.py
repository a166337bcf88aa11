"""What a model reads of the forge: one line for a write, a fenced record for a read, one line for a failure. Pure."""

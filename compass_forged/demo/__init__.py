"""The demo: the whole system on one machine, offline, told as a story."""

"""compass_forged: the sole write chokepoint between fleets of coding agents and their forges."""

__version__ = "0.1.0"

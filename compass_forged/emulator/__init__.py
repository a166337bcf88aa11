"""The bundled forge: a stateful stand-in for GitHub's REST API, for tests, the demo and offline development.

It imports nothing of the daemon, and the daemon imports nothing of it. This package imports nothing by itself:
``app.Forge`` is the ASGI application, ``server.serve_forge`` serves it, ``faults.FaultProxy`` breaks connections in
front of it, ``seed.default_seed`` fills it. ``python -m compass_forged.emulator`` runs it as a process.
"""

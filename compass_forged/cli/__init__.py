"""The command line, ``compass-forged``. Each command imports what it needs when it runs, so that help is quick."""

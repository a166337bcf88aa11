"""The entry point: ``compass-forged``, and ``python -m compass_forged``."""

import sys


def main() -> None:
    """Run the command line. An agent's container has the library alone, and is told what the commands need."""
    if sys.argv[1:2] == ["mcp"]:  # starts in a container, for each client: without what only the others need
        from compass_forged.cli.mcp import main as mcp  # noqa: PLC0415 -- likewise

        sys.exit(mcp(sys.argv[2:]))
    try:
        from compass_forged.cli.main import main as run  # noqa: PLC0415 -- see the docstring
    except ImportError as error:
        missing = error.name or str(error)
        sys.stderr.write(f"compass-forged: {missing} is not installed; pip install 'compass-forged[daemon]'\n")
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()

"""``python -m compass_forged.emulator``: the forge as a process of its own; see ``command``."""

import sys


def main() -> None:
    """Run the command. Its packages come with an extra, and where that is missing, one line says so."""
    try:
        from compass_forged.emulator.command import main as run  # noqa: PLC0415 -- see the docstring
    except ImportError as error:
        missing = (error.name or str(error)).partition(".")[0]
        sys.stderr.write(
            f"compass-forged emulator: {missing} is not installed; pip install 'compass-forged[emulator]'\n"
        )
        sys.exit(2)
    run(prog_name="python -m compass_forged.emulator")


if __name__ == "__main__":
    main()

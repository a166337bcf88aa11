"""``python -m compass_forged``."""

from compass_forged.cli.main import main

if __name__ == "__main__":
    main()

"""``python -m sweep.cli``: the command line."""

from sweep.cli.main import main

if __name__ == "__main__":
    main()

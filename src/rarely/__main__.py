"""The command `rarely`, and `python -m rarely`."""

import sys


def main() -> None:
    """Run the command line, or say what it needs."""
    try:
        from rarely.cli import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("rarely"):
            raise
        sys.exit(f"the command line needs {error.name}, which comes with the laboratory: pip install 'rarely[lab]'")
    app()


if __name__ == "__main__":
    main()

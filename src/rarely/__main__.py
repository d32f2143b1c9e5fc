"""The command `rarely`, and `python -m rarely`."""

import io
import sys

from rarely._core.version import __version__


def main() -> None:
    """Run the command line, or say which package it needs."""
    if sys.argv[1:] == ["--version"]:  # without importing the command line, which takes longer
        print(__version__)
        return
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # λ in a pipe on Windows must not end the program
    try:
        from rarely._cli import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("rarely"):
            raise
        sys.exit(
            f"the command line needs {error.name}: pip install 'rarely[cli]'. Without it, "
            'python -c "import rarely; print(rarely.build_info())" shows how this copy was built.'
        )
    app()


if __name__ == "__main__":
    main()

"""Play the golden families, and say whether their numbers are those on record: `python -m rarely.golden`."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import entry_points

from rarely.golden import FAMILIES, NEXT, Families

GROUP = "rarely.golden"  # entry points by which other packages name their families: `reproduce = "module:FAMILIES"`


def installed() -> list[Families]:
    """Return the families of the library, and those of all packages that are installed beside it."""
    return [FAMILIES, *(point.load() for point in entry_points(group=GROUP))]


def main(arguments: list[str] | None = None) -> int:
    """Print every family that is asked for, and return 1 if a check was asked for and failed."""
    parser = argparse.ArgumentParser(prog="python -m rarely.golden", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="FAMILY", help="families to play; all if none is named")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a family is not as it is on record")
    parser.add_argument("--save", metavar="RELEASE", nargs="?", const=NEXT, help=f"record what changed, as {NEXT}")
    asked, wrong = parser.parse_args(arguments), list[str]()
    every = installed()
    if unknown := set(asked.names) - {name for families in every for name in families}:
        parser.error(f"no family is called {', '.join(sorted(unknown))}")
    for families in every:
        for name, family in families.items():
            if asked.names and name not in asked.names:
                continue
            if not family.playable:
                print(f"{name:28} not played: {family.needs} is not installed")
                continue
            golden, complaint = family.golden, families.complaint(name)
            print(f"{name:28} {golden.digest}  {golden.seconds:5.2f} s  {complaint or 'as on record'}", flush=True)
            wrong += [name] if complaint else []
        if asked.save:
            saved = families.save(asked.save)
            print(f"{families.path}: {', '.join(saved) or 'nothing has changed'}")
    return int(asked.check and bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

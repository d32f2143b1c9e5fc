"""Measure how fast the package is, in ratios to the machine's own matrix products and reads of memory.

    python benchmarks/bench.py --list                     the names of all benchmarks
    python benchmarks/bench.py --quick                    a few minutes
    python benchmarks/bench.py 'training-*' decision      some of them
    python benchmarks/bench.py --save before.json         then change something, and
    python benchmarks/bench.py --baseline before.json     see what became slower
    python benchmarks/bench.py million-rounds             the longest: only by its name or with --all

Every figure is made within one run, with its yardstick taken right before and after. The exit code is 1 if a benchmark
fails, or with --baseline if a figure is worse by more than the tolerance. A target that is not reached is shown, and is
not a failure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from rarely import InvalidInput, RarelyError, build_info
from suite import deciding, long_runs, runs, session, training
from suite.figures import Benchmark, Figure, Tell

INTERRUPTED = 130
BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark for module in (training, deciding, runs, long_runs) for benchmark in module.BENCHMARKS
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    given = _parser().parse_args(arguments)
    try:
        return _run(given)
    except (RarelyError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="benchmarks by name or pattern, such as 'training-*'")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and measure nothing")
    parser.add_argument("--quick", action="store_true", help="leave out what takes a minute or more")
    parser.add_argument("--all", action="store_true", help="include what takes an hour")
    parser.add_argument("--json", type=Path, help="write figures, machine, versions and changes to this file")
    parser.add_argument("--baseline", type=Path, help="compare with this file of --save")
    parser.add_argument("--save", type=Path, help="keep the figures as a baseline for later")
    percent = 100 * session.TOLERANCE
    parser.add_argument(
        "--tolerance", type=float, default=percent, help=f"how far a figure may move, in per cent ({percent:g})"
    )
    return parser


def _run(given: argparse.Namespace) -> int:
    wanted, left_out = chosen(BENCHMARKS, given.names, quick=given.quick, everything=given.all)
    if given.list:
        for one in BENCHMARKS.values():
            if one in wanted or one.name in left_out:
                print(f"{one.name} ({one.when}): {one.says}")
        return 0
    for path in (given.json, given.save):
        if path is not None and not path.parent.is_dir():
            raise InvalidInput(f"{path} cannot be written, because {path.parent} is not a folder.")
    before = None if given.baseline is None else session.read(given.baseline)
    now = session.begin()
    now.skipped |= left_out
    print(f"rarely {build_info().rarely}, loops: {build_info().form}")
    print(session.heading(now))
    interrupted = _measure(now, wanted)
    changes = session.compare(now.figures, before.figures if before else [], given.tolerance / 100)
    print(session.table(changes, against=before is not None))
    for line in session.notes(now):
        print(f"- {line}")
    if interrupted:
        print("interrupted; no file is written", file=sys.stderr)
        return INTERRUPTED
    if given.json is not None:
        session.write(given.json, now, changes if before else ())
    if given.save is not None:
        session.write(given.save, now)
    worse = before is not None and _show_changes(now, before, changes, given.tolerance)
    return int(worse or bool(now.failed))


def chosen(
    benchmarks: Mapping[str, Benchmark], names: Sequence[str], *, quick: bool, everything: bool
) -> tuple[list[Benchmark], dict[str, str]]:
    """Return the benchmarks asked for by name or pattern, and why others of them are left out."""
    for name in names:
        if not any(fnmatchcase(known, name) for known in benchmarks):
            raise InvalidInput(f"unknown benchmark {name!r}; known are {', '.join(benchmarks)}.")
    wanted, left_out = [], {}
    for benchmark in benchmarks.values():
        if names and not any(fnmatchcase(benchmark.name, name) for name in names):
            continue
        if quick and benchmark.when != "quick":
            left_out[benchmark.name] = "it takes a minute or more, and --quick leaves it out"
        elif benchmark.when == "named" and benchmark.name not in names and not everything:
            left_out[benchmark.name] = "it is very long, and runs only by its name or with --all"
        else:
            wanted.append(benchmark)
    return wanted, left_out


def _measure(now: session.Session, wanted: Sequence[Benchmark]) -> bool:
    """Run the benchmarks, and return whether Ctrl-C ended them.

    Progress is printed only when a benchmark reports it: a thread that refreshed the line would be measured too.
    """

    def started(benchmark: Benchmark) -> Tell:
        head = f"{wanted.index(benchmark) + 1} of {len(wanted)}: {benchmark.name}"
        print(head, flush=True)
        if not sys.stdout.isatty():
            return lambda text: None
        return lambda text: print(f"\r\x1b[K{text}", end="", flush=True)

    def finished(benchmark: Benchmark, figures: Sequence[Figure]) -> None:
        if sys.stdout.isatty():
            print("\r\x1b[K", end="")
        for figure in figures:
            print(f"{figure.name}: {session.valued(figure)}", flush=True)
        for why in (now.skipped.get(benchmark.name), now.failed.get(benchmark.name)):
            if why is not None:
                print(f"{benchmark.name}: {why}", flush=True)

    try:
        session.measure(now, wanted, started=started, finished=finished)
    except KeyboardInterrupt:
        return True
    return False


def _show_changes(
    now: session.Session, before: session.Session, changes: Sequence[session.Change], tolerance: float
) -> bool:
    """Print what a comparison shows, and return whether a figure is worse."""
    for line in session.differences(now, before):
        print(line)
    unmeasured = [change.name for change in changes if change.verdict == "not measured"]
    if unmeasured:
        print(f"in the baseline and not measured now: {', '.join(unmeasured)}")
    worse = [change.name for change in changes if change.verdict == "worse"]
    print(f"worse than the baseline by more than {tolerance:g} %: {', '.join(worse) or 'nothing'}")
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main())

"""Every benchmark by its name, in the order in which they are run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from rarely.bench import deciding, kernel, large_k, linear, overheads, runs, stream, training, wide
from rarely.bench.measure import Benchmark
from rarely.core.errors import InvalidInput

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        *training.BENCHMARKS,
        *deciding.BENCHMARKS,
        *large_k.BENCHMARKS,
        *linear.BENCHMARKS,
        *runs.BENCHMARKS,
        *overheads.BENCHMARKS,
        *kernel.BENCHMARKS,
        *wide.BENCHMARKS,
        *stream.BENCHMARKS,
    )
}


def chosen(
    benchmarks: Mapping[str, Benchmark], names: Sequence[str], *, quick: bool, everything: bool
) -> tuple[list[Benchmark], dict[str, str]]:
    """The benchmarks asked for by name or pattern, and why others of them are left out.

    >>> [b.name for b in chosen(BENCHMARKS, ["dec*", "import"], quick=True, everything=False)[0]]
    ['decision', 'import']
    """
    for name in names:
        if not any(fnmatchcase(known, name) for known in benchmarks):
            raise InvalidInput(f"no benchmark is called {name!r}; there are {', '.join(benchmarks)}.")
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

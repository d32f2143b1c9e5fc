"""What a decision from tables costs, in units of the same decision from an array.

    python benchmarks/frames.py
    python benchmarks/frames.py narwhals    # reading a frame of pandas by Narwhals, in units of our reading

20 arms of 20 numbers after 200 rounds: 20 columns of numbers; 8 columns of numbers and two of text; a user and items of
10 numbers each, one column of text in both. Tables of libraries that are not installed are left out.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy; two cores are shared by other runs

import importlib.util
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from rarely import BatchNeuralUCB, FramePolicy, LinUCB, OnDemand

ARMS, ROUNDS, REPEATS = 20, 200, 300
Columns = dict[str, Any]


def numbers(rows: int, columns: int, seed: int) -> Columns:
    values = np.random.default_rng(seed).normal(size=(columns, rows))
    return {f"c{i}": column.tolist() for i, column in enumerate(values)}


def text(rows: int) -> list[str]:
    return [f"value {i % 5}" for i in range(rows)]


def cases() -> dict[str, tuple[Columns | None, Columns]]:
    """Tables of users, if any, and of items, by what is in them."""
    users = numbers(ROUNDS, 4, 1) | {"town": text(ROUNDS)}
    return {
        "20 numbers": (None, numbers(ARMS, 20, 2)),
        "8 numbers, 2 of text": (None, numbers(ARMS, 8, 3) | {"topic": text(ARMS), "brand": text(ARMS)}),
        "a user and items": (users, numbers(ARMS, 4, 4) | {"topic": text(ARMS)}),
    }


def forms() -> dict[str, Callable[[Columns], Any]]:
    """What makes a table of columns, by the name of its library."""
    found: dict[str, Callable[[Columns], Any]] = {"dict": lambda columns: columns}
    found["list of dicts"] = lambda columns: [
        dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
    ]
    for name, maker in (("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "table")):
        if importlib.util.find_spec(name) is not None:
            found[name] = getattr(importlib.import_module(name), maker)
    return found


def ratio(policy: FramePolicy, user: Columns | None, items: Any) -> float:
    """The time of a decision from tables over that from the array that they become, taken in turn, lower quartiles."""
    plain, tables = policy.with_covariance(), policy.with_covariance()
    contexts = policy.contexts(user, items)
    times = np.empty((REPEATS, 2))
    for i in range(REPEATS):
        start = time.perf_counter()
        plain.policy.select(contexts)
        between = time.perf_counter()
        tables.select(user, items)
        times[i] = between - start, time.perf_counter() - between
    return float(np.divide(*np.percentile(times, 25, axis=0)[::-1]))


def row(table: Columns | None, i: int) -> Columns | None:
    return None if table is None else {name: values[i] for name, values in table.items()}


def lines() -> Sequence[str]:
    """The table of ratios, in Markdown."""
    made = forms()
    out = [f"| tables | policy | {' | '.join(made)} | items encoded before |", "|---" * (3 + len(made)) + "|"]
    for name, (users, items) in cases().items():
        for kind in (LinUCB, BatchNeuralUCB):
            policy = FramePolicy.fit(kind, users, items, schedule=OnDemand(), seed=0)
            for i in range(ROUNDS):
                policy.observe(policy.select(row(users, i), items), float(i % 3))
            policy.update()
            found = [ratio(policy, row(users, 7), make(items)) for make in made.values()]
            found.append(ratio(policy, row(users, 7), policy.items(items)))
            out.append(f"| {name} | {kind.__name__} | {' | '.join(f'{each:.2f}' for each in found)} |")
    return out


def by_narwhals() -> Sequence[str]:
    """How long Narwhals takes to hand over the columns of a frame, and what it makes of whole numbers beside a gap."""
    import narwhals
    import pandas

    from rarely.frames.columns import read_table

    def read(frame: Any) -> dict[str, Any]:
        columns = narwhals.from_native(frame, eager_only=True)
        kinds = {name: columns[name].dtype for name in columns.columns}
        plain = {name: kind.is_numeric() or kind == narwhals.Datetime for name, kind in kinds.items()}
        return {name: columns[name].to_numpy() if plain[name] else columns[name].to_list() for name in plain}

    def seconds(call: Callable[[], Any]) -> float:
        times = []
        for _ in range(200):
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
        return float(np.quantile(times, 0.25))

    rng, out = np.random.default_rng(0), []
    for n in (1, 50, 1000):
        numbers = {f"x{i}": rng.normal(size=n) for i in range(6)} | {"age": rng.integers(18, 80, n)}
        other = {"town": rng.choice(["Ulm", "Bonn"], n), "when": pandas.date_range("2030-01-01", periods=n)}
        frame = pandas.DataFrame(numbers | other | {"kind": pandas.Categorical(rng.choice(["a", "b"], n))})
        out.append(f"{n} rows: {seconds(partial(read, frame)) / seconds(partial(read_table, frame, 'frame')):.1f}")
    gap = pandas.DataFrame({"id": pandas.array([2**53 + 1, None], dtype="Int64")})
    return [*out, f"2⁵³ + 1 beside a gap: {read_table(gap, 'frame').columns['id'][0]} and {read(gap)['id'][0]:.0f}"]


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a Z that becomes approximate
        print(*(by_narwhals() if sys.argv[1:] == ["narwhals"] else lines()), sep="\n")

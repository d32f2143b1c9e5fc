"""Measure `rarely_lab.gpu` on a GPU: its products, its trainings, its arms against the core's, and whole experiments.

    python benchmarks/gpu.py rates                          # products and trainings, in TFLOP/s
    python benchmarks/gpu.py arms cosine mushroom           # the same cells on both engines, round by round
    python benchmarks/gpu.py play cosine quadratic --preset paper --runs 100

A training of n samples, m units and d columns counts 4nmd operations a step: its two products.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from rarely.runs.machine import cores
from rarely_lab.engine.cell import LocalExecutor, run_cells
from rarely_lab.gpu.executor import GpuExecutor
from rarely_lab.gpu.training import (
    Samples,
    Theta,
    _by_kernel,
    _by_products,
    _by_sparse_kernel,
    entries_of,
    samples_at_once,
)
from rarely_lab.reproduce.catalogue import PROBLEMS, plan_cells
from rarely_lab.reproduce.records import Store

SHAPES = ((2000, 200, 12), (500, 200, 12), (100, 200, 12), (2000, 100, 12), (2000, 100, 24), (2000, 100, 236))
"""n, m and d: cosine's at three lengths, quadratic's, MAGIC's and Mushroom's."""


def seconds_of(work, repeat=3):
    """Return the shortest of some times of the work on the GPU."""
    work()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def rates(replicas: int) -> None:
    """Print the rates of plain products and of both ways to train."""
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for dtype in (torch.float32, torch.float64):
        a, b = (torch.randn(8192, 8192, device="cuda", dtype=dtype) for _ in range(2))
        print(f"product of 8192² in {dtype}: {2 * 8192**3 / seconds_of(lambda a=a, b=b: a @ b) / 1e12:.1f} TFLOP/s")
    generator = torch.Generator(device="cuda").manual_seed(0)
    for n, m, d in SHAPES:
        x, y = (torch.randn(replicas, n, *more, device="cuda", generator=generator) for more in ((d,), ()))
        w = torch.randn(replicas, m, d, device="cuda", generator=generator) / m**0.5
        theta = Theta(w, torch.randn(replicas, m, device="cuda", generator=generator) / m**0.5)
        samples = Samples(x / d**0.5, y / m**0.5, torch.full((replicas,), n, device="cuda"))
        step = torch.full((replicas,), 1e-4, device="cuda")
        told = []
        for name, way in (("kernel", _by_kernel), ("products", _by_products)):
            if name == "kernel" and samples_at_once(d, m) < 2:
                continue
            took = seconds_of(lambda way=way, s=samples, t=theta, e=step: way(s, t, e, 200, 0.01))
            rate = 4 * n * m * d * replicas * 200 / took / 1e12
            told.append(f"{name} {rate:.1f} TFLOP/s, {took / 200 * 1e6:.0f} µs a step")
        both = [way(samples, theta, step, 20, 0.01) for way in (_by_kernel, _by_products)] if len(told) > 1 else []
        apart = f"; apart by {(both[0].first - both[1].first).abs().max():.1e}" if both else ""
        print(f"n {n} m {m} d {d}, {replicas} replicas: {'; '.join(told)}{apart}", flush=True)


def sparse_rates(replicas: int, n=2000, m=100, attributes=22, values=5) -> None:
    """Print the rates of one-hot samples, Mushroom's; operations are those of the products that are spared."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    d = 2 * (attributes * values + 8)
    chosen = torch.randint(0, values, (replicas, n, attributes), device="cuda", generator=generator)
    arm = torch.randint(0, 2, (replicas, n, 1), device="cuda", generator=generator)
    places = chosen + values * torch.arange(attributes, device="cuda") + arm * (d // 2)
    x = torch.zeros(replicas, n, d, device="cuda").scatter_(2, places, 1 / attributes**0.5)
    theta = Theta(
        *(torch.randn(replicas, m, *more, device="cuda", generator=generator) / m**0.5 for more in ((d,), ()))
    )
    y = torch.randn(replicas, n, device="cuda", generator=generator) / m**0.5
    samples = Samples(x, y, torch.full((replicas,), n, device="cuda"))
    step = torch.full((replicas,), 1e-4, device="cuda")
    listing = seconds_of(lambda: entries_of(samples))
    entries = entries_of(samples)
    took = seconds_of(lambda: _by_sparse_kernel(samples, entries, theta, step, 200, 0.01))
    slow = seconds_of(lambda: _by_products(samples, theta, step, 200, 0.01))
    both = _by_sparse_kernel(samples, entries, theta, step, 20, 0.01), _by_products(samples, theta, step, 20, 0.01)
    rate, apart = 4 * n * m * d * replicas * 200 / took / 1e12, (both[0].first - both[1].first).abs().max()
    print(
        f"one-hot n {n} m {m} d {d}, {replicas} replicas: sparse kernel {rate:.1f} TFLOP/s, {took / 200 * 1e6:.0f} µs "
        f"a step, listing {listing * 1e3:.1f} ms; products {slow / 200 * 1e6:.0f} µs a step; apart by {apart:.1e}",
        flush=True,
    )


def arms(cells, jobs: int) -> None:
    """Play the same cells on both engines, and print in which round they first differ."""
    start = time.perf_counter()
    mine = {r.id: r.record.data for r in GpuExecutor(jobs)(cells)}
    middle = time.perf_counter()
    theirs = {r.id: r.record.data for r in LocalExecutor(jobs)(cells)}
    end = time.perf_counter()
    print(f"{len(cells)} cells: GPU {middle - start:.1f} s, {jobs} processes {end - middle:.1f} s", flush=True)
    for name, core in sorted(theirs.items()):
        one, other = np.array(mine[name]["curve"]), np.array(core["curve"])
        apart = np.flatnonzero(one != other)
        first = f"first in round {apart[0] + 1}" if len(apart) else "the same arms"
        same = mine[name]["updates"]["rounds"] == core["updates"]["rounds"]
        print(
            f"{name}: {first}; regret {one[-1]:.1f} and {other[-1]:.1f}; updates {'alike' if same else 'differ'}; "
            f"near ties {mine[name].get('near_ties', '-')}"
        )


def play(cells, out: Path, jobs: int) -> None:
    """Play what `rarely reproduce --engine gpu` plays in lockstep, and print the time of every kind of cell."""
    start, took, told = time.perf_counter(), dict[str, list[float]](), [""]

    def finished(result) -> None:
        problem, preset, configuration, _ = result.id.split("/")
        kind = configuration.partition("-")[0]
        name = f"{problem}/{preset}/{'batched' if kind in ('fixed', 'adaptive') else kind}"
        if name != told[0]:
            print(f"{time.perf_counter() - start:.1f} s: the first of {name}", flush=True)
            told[0] = name
        if result.record is None:
            print(result.id, result.error, flush=True)
        else:
            took.setdefault(name, []).append(result.record.seconds)

    run_cells(cells, Store(out), GpuExecutor(jobs), finished=finished)
    for name, seconds in took.items():
        print(f"{name}: {len(seconds)} cells, {sum(seconds):.1f} s, {1e3 * np.mean(seconds):.1f} ms a cell")
    print(f"{len(cells)} cells in {time.perf_counter() - start:.1f} s")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rates", "arms", "play"))
    parser.add_argument("problems", nargs="*", default=["cosine"])
    parser.add_argument("--preset", action="append")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--replicas", type=int, default=132)
    parser.add_argument("--only", action="append")
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--out", type=Path, default=Path("out-gpu"))
    given = parser.parse_args()
    if given.what == "rates":
        rates(given.replicas)
        sparse_rates(given.replicas)
        return
    problems, presets = [PROBLEMS[name] for name in given.problems], given.preset or ["paper", "practical"]
    cells = plan_cells(problems, presets, given.runs, given.rounds, given.only or ["*"])
    if given.what == "arms":
        arms(cells, given.jobs)
    else:
        play(cells, given.out, given.jobs)


if __name__ == "__main__":
    main()

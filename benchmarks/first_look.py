"""A first look, in about a minute: the paper's quadratic problem, few updates against many.

python benchmarks/first_look.py --out out       # writes out/report.html and out/regret.svg
"""

from __future__ import annotations

import os

# At this size a second BLAS thread gains little, and on a busy machine threads that wait for each other lose much.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import html
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from machine import describe
from play import play
from problems import quadratic
from rarely import BatchNeuralUCB, DeterminantTrigger, FixedGrid, LinUCB, Policy

SEEDS = 3
KNOBS = {"hidden": 100, "ridge": 0.01, "beta": 0.01}
# Okabe and Ito's colours, told apart by everyone.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00")


def policies(rounds: int, seed: int) -> dict[str, Policy]:
    return {
        "LinUCB": LinUCB(4, ridge=1.0, beta=0.1),
        "fixed, B = 40": BatchNeuralUCB(4, FixedGrid(rounds, 40), seed=seed, **KNOBS),
        "fixed, B = 200": BatchNeuralUCB(4, FixedGrid(rounds, 200), seed=seed, **KNOBS),
        "adaptive, B = 40": BatchNeuralUCB(4, DeterminantTrigger(rounds, 40, 25.0), seed=seed, **KNOBS),
    }


class Progress:
    """A bar on a terminal, a line for each finished run elsewhere."""

    def __init__(self, runs: int, rounds: int) -> None:
        self.runs, self.rounds, self.done, self.start = runs, rounds, 0, time.perf_counter()
        self.live = sys.stdout.isatty()

    def at(self, label: str, t: int) -> None:
        """Show that a run has come to round t."""
        share = (self.done + t / self.rounds) / self.runs
        if self.live:
            left = (time.perf_counter() - self.start) * (1 - share) / max(share, 1e-9)
            bar = "█" * round(30 * share)
            print(f"\r{bar:·<30} {share:4.0%}, {left:3.0f} s left  {label:<28}", end="", flush=True)

    def finish(self, label: str, regret: float, versions: int) -> None:
        """Count a run as done."""
        self.done += 1
        if not self.live:
            print(f"{self.done} of {self.runs}: {label}: regret {regret:.0f}, {versions} versions", flush=True)
        elif self.done == self.runs:
            print()


@dataclass(frozen=True)
class Result:
    """All seeds of one policy."""

    curves: np.ndarray
    versions: float
    seconds: float
    ends: list[int]


def run_all(rounds: int) -> dict[str, Result]:
    names = list(policies(rounds, 0))
    progress, results = Progress(len(names) * SEEDS, rounds), {}
    for name in names:
        curves, versions, seconds = [], [], []
        for seed in range(SEEDS):
            policy, label = policies(rounds, seed)[name], f"{name}, seed {seed}"
            start = time.perf_counter()
            curves.append(np.cumsum(play(policy, quadratic(seed, rounds), lambda t, at=label: progress.at(at, t))))
            seconds.append(time.perf_counter() - start)
            versions.append(policy.version + 1)
            progress.finish(label, curves[-1][-1], policy.version + 1)
        ends = [record.round for record in policy.updates]
        results[name] = Result(np.array(curves), float(np.mean(versions)), float(np.mean(seconds)), ends)
    return results


def figure(results: dict[str, Result], rounds: int) -> str:
    """Mean regret curves as SVG, with a tick where the last seed's batches ended."""
    width, height, left, bottom, right = 760, 420, 60, 46, 190
    top = 1.05 * max(r.curves.mean(axis=0)[-1] for r in results.values())

    def x(t: float) -> float:
        return left + (width - left - right) * t / rounds

    def y(value: float) -> float:
        return 16 + (height - 16 - bottom) * (1 - min(value, top) / top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="13" role="img" aria-label="Regret against rounds">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        value, t = top * share, rounds * share
        parts.append(f'<line x1="{left}" x2="{x(rounds)}" y1="{y(value)}" y2="{y(value)}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y(value) + 4}" text-anchor="end">{value:.0f}</text>')
        parts.append(f'<text x="{x(t)}" y="{height - bottom + 18}" text-anchor="middle">{t:.0f}</text>')
    parts.append(f'<text x="{(left + x(rounds)) / 2}" y="{height - 8}" text-anchor="middle">round</text>')
    for (name, result), colour in zip(results.items(), COLOURS, strict=True):
        mean = result.curves.mean(axis=0)
        shown = range(0, rounds, max(1, rounds // 200))
        points = " ".join(f"{x(t + 1):.1f},{y(mean[t]):.1f}" for t in shown)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.2"/>')
        if "B = 40" in name:
            parts += [
                f'<line x1="{x(t):.1f}" x2="{x(t):.1f}" y1="{y(mean[t - 1]) - 5:.1f}" y2="{y(mean[t - 1]) + 5:.1f}" '
                f'stroke="{colour}"/>'
                for t in result.ends
            ]
    place = np.inf
    ends = {name: r.curves[:, -1].mean() for name, r in results.items()}
    for name in sorted(ends, key=ends.__getitem__):
        place = min(place - 17, y(ends[name]) + 4)
        colour = dict(zip(results, COLOURS, strict=True))[name]
        parts.append(
            f'<text x="{x(rounds) + 8}" y="{place:.1f}" fill="{colour}" font-weight="bold">{name}: '
            f"{ends[name]:.0f}</text>"
        )
    return "\n".join([*parts, "</svg>"])


def report(results: dict[str, Result], rounds: int, picture: str) -> str:
    rows = "\n".join(
        f"<tr><td>{html.escape(name)}</td><td>{r.curves[:, -1].mean():.0f} ± {r.curves[:, -1].std(ddof=1):.0f}</td>"
        f"<td>{r.versions:.0f}</td><td>{r.seconds:.1f}</td></tr>"
        for name, r in results.items()
    )
    return f"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>rarely: a first look</title>
<style>body{{font:16px/1.5 sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}}
table{{border-collapse:collapse}}td,th{{padding:.3rem .8rem;border-bottom:1px solid #ccc;text-align:right}}
td:first-child,th:first-child{{text-align:left}}svg{{width:100%;height:auto}}</style>
<h1>Decide often, retrain rarely</h1>
<p>The quadratic problem of <em>Batched Neural Bandits</em>: {rounds} rounds, 10 arms, 4 numbers each, reward
xᵀAᵀAx with noise of variance 0.25. Regret is the mean over {SEEDS} seeds ± one standard deviation; neural
policies have 100 hidden units and preset <code>practical</code>, LinUCB an intercept and an update after every round;
a tick is an update of the last seed.</p>
{picture}
<table><tr><th>policy</th><th>regret</th><th>versions</th><th>seconds</th></tr>
{rows}</table>
<p>{html.escape(describe())}</p></html>
"""


def main() -> None:
    """Play, draw, and say where the report is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("out"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    results = run_all(args.rounds)
    picture = figure(results, args.rounds)
    (args.out / "regret.svg").write_text(picture + "\n", encoding="utf-8")
    (args.out / "report.html").write_text(report(results, args.rounds, picture), encoding="utf-8")
    for name, r in results.items():
        print(f"{name:22} regret {r.curves[:, -1].mean():5.0f}   {r.versions:4.0f} versions   {r.seconds:5.1f} s a run")
    print(f"report: {args.out / 'report.html'}")


if __name__ == "__main__":
    main()

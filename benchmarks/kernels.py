"""J steps of full-gradient descent: NumPy's passes, the compiled ones and what else one could write, side by side.

python benchmarks/kernels.py                     # all cases, about 10 minutes on 2 cores
python benchmarks/kernels.py --quick             # the small cases alone

Needs threadpoolctl (it comes with scikit-learn). Numba's rows appear where Numba is installed: best in an
environment of its own, `pip install numba threadpoolctl`, with PYTHONPATH=src. A competitor is one function in
`COMPETITORS`; its weights must agree with the library's after a few steps before it is timed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise

import numpy as np
from threadpoolctl import threadpool_limits

from rarely.bench.yardstick import REST, describe, product_rate
from rarely.core.model.network import Network, Weights
from rarely.core.training.compiled_objective import CompiledObjective
from rarely.core.training.gradient_descent import STABLE
from rarely.core.training.objective import Objective
from rarely.core.types import Floats

try:
    import numba_passes
except ImportError:
    numba_passes = None  # type: ignore[assignment]

CASES = ((2000, 200, 11), (2000, 100, 45), (20000, 200, 50))
"""(n, m, d)"""
AGREES = {np.float32: 1e-3, np.float64: 1e-9}
ROUNDS = 5
WORK = 1e9
"""Operations in one timed call, about; never fewer than 3 steps."""
TILES = (64, 128, 192, 256, 512)

Competitor = Callable[[Objective, float, int, float, int], Weights]
"""(objective, step, steps, hopeless, threads) → weights; BLAS has as many threads."""


def library(objective: Objective, step: float, steps: int, hopeless: float, threads: int) -> Weights:
    """What the library does where its compiled passes are not there, or not made for the network."""
    return Objective.descend(objective, objective.initial, step, steps, hopeless)[0]


def compiled(objective: Objective, step: float, steps: int, hopeless: float, threads: int) -> Weights:
    """What the library does where they are."""
    os.environ["OPENBLAS_NUM_THREADS"] = str(threads)  # where the compiled passes look
    return objective.descend(objective.initial, step, steps, hopeless)[0]


def tuned(objective: Objective, step: float, steps: int, hopeless: float, threads: int) -> Weights:
    """The best of several tile sizes, with BLAS's threads or with our own."""
    network = objective.network
    rows, workers = _best_tiling(network, objective.samples, objective.dtype, threads)
    with threadpool_limits(threads if workers == 1 else 1, "blas"):
        return _tuned(objective, step, steps, hopeless, rows, workers)


@cache
def _best_tiling(network: Network, samples: int, dtype: type, threads: int) -> tuple[int, int]:
    objective, step = problem(network, samples, dtype)
    choices = [(rows, workers) for rows in TILES for workers in {1, threads}]

    def seconds(choice: tuple[int, int]) -> float:
        rows, workers = choice
        with threadpool_limits(threads if workers == 1 else 1, "blas"):
            return best_of(5, lambda: _tuned(objective, step, max(2, steps_for(objective) // 2), np.inf, rows, workers))

    return min(choices, key=seconds)


class _Share:
    """One worker's tiles and buffers: nothing is allocated after it is made."""

    def __init__(self, objective: Objective, start: int, stop: int, rows: int) -> None:
        network, kind = objective.network, objective.dtype
        m, d, layers = network.hidden, network.dim, network.depth - 1
        x, y = objective.contexts, objective.targets
        at = [slice(s, min(s + rows, stop)) for s in range(start, stop, rows)]
        self.tiles = [(x[t], np.ascontiguousarray(x[t].T), y[t]) for t in at]
        self.units = [np.empty((rows, m), kind) for _ in range(layers)]
        self.signal, self.scaled = np.empty((rows, m), kind), np.empty((rows, m), kind)
        self.signal_below = np.empty((rows, m), kind)
        self.active, self.zeros = np.empty((rows, m), bool), np.zeros((rows, m), kind)
        self.residuals, self.scaled_x = np.empty(rows, kind), np.empty(d * rows, kind)
        self.sums = [np.empty((d if layer == 0 else m, m), kind) for layer in range(layers)]
        self.parts = [np.empty_like(s) for s in self.sums]
        self.loss = 0.0

    def run(self, hidden: list[Floats], gained: Floats | None, last: Floats) -> None:
        """Σ_i a_i r_i δ_iᵀ of each layer, the last hidden one without its gain, as (in, out)."""
        self.loss = 0.0
        for s in self.sums:
            s.fill(0)
        for x, xt, y in self.tiles:
            n = len(y)
            below, zeros, active = x, self.zeros[:n], self.active[:n]
            units = [a[:n] for a in self.units]
            for w, a in zip(hidden, units, strict=True):
                np.matmul(below, w, out=a)
                np.maximum(a, zeros, out=a)  # with an array of zeros: twice as fast as with the number 0
                below = a
            r = np.matmul(below, last, out=self.residuals[:n])
            r -= y
            self.loss += float(r @ r) / 2
            signal, spare = self.signal[:n], self.signal_below[:n]
            np.greater(below, 0, out=active)
            np.copyto(signal, active)
            for layer in range(len(hidden) - 1, 0, -1):
                a = units[layer - 1]
                np.einsum("ij,i->ij", a, r, out=self.scaled[:n])
                self.sums[layer] += np.matmul(self.scaled[:n].T, signal, out=self.parts[layer])
                np.matmul(signal, gained if layer == len(hidden) - 1 else hidden[layer].T, out=spare)
                np.greater(a, 0, out=active)
                np.copyto(signal, active)
                signal *= spare
            scaled = self.scaled_x[: xt.size].reshape(xt.shape)
            np.multiply(xt, r, out=scaled)
            self.sums[0] += np.matmul(scaled, signal, out=self.parts[0])


def _tuned(objective: Objective, step: float, steps: int, hopeless: float, rows: int, workers: int) -> Weights:
    """Weights as (in, out); W_L's gradient comes for nothing, Σ_i r_i σ(z_ij) = Σ_k W_kj (Σ_i a_ik r_i 1[z_ij > 0])."""
    kind, ridge = objective.dtype, objective.dtype(objective.ridge)
    scale = kind(step)
    first = [np.ascontiguousarray(w.T) for w in objective.initial[:-1]] + [objective.initial[-1][0]]
    weights = [w.copy() for w in first]
    *hidden, last = weights
    moved, gradients = [np.empty_like(w) for w in first], [np.empty_like(w) for w in first]
    gained = np.empty(hidden[-1].shape[::-1], kind) if len(hidden) > 1 else None
    edges = [objective.samples * k // workers for k in range(workers + 1)]
    shares = [_Share(objective, a, b, rows) for a, b in pairwise(edges)]
    with ThreadPoolExecutor(max(1, workers - 1)) as pool:
        for _ in range(steps):
            if gained is not None:
                np.multiply(hidden[-1].T, last[:, None], out=gained)
            others = [pool.submit(share.run, hidden, gained, last) for share in shares[1:]]
            shares[0].run(hidden, gained, last)
            for other in others:
                other.result()
            loss = sum(share.loss for share in shares)
            for w, w0, gap in zip(weights, first, moved, strict=True):
                np.subtract(w, w0, out=gap)
                loss += objective.ridge / 2 * float(np.vdot(gap, gap))
                gap *= ridge
            if not loss <= hopeless:
                break
            for layer, g in enumerate(gradients[:-1]):
                g[:] = shares[0].sums[layer]
                for share in shares[1:]:
                    g += share.sums[layer]
            np.einsum("kj,kj->j", hidden[-1], gradients[-2], out=gradients[-1])
            gradients[-2] *= last
            for w, g, gap in zip(weights, gradients, moved, strict=True):
                g += gap
                g *= scale
                w -= g
    return (*(w.T for w in hidden), last[None])


COMPETITORS: dict[str, Competitor] = {"numpy": library, "numpy, tuned": tuned, "c": compiled}

if numba_passes is not None:
    COMPETITORS["numba"] = partial(numba_passes.descend, tiles=False)
    COMPETITORS["numba, LLVM vectors"] = partial(numba_passes.descend, tiles=True)


def operations(network: Network, samples: int) -> int:
    """Of one pass: 4nmd, and 6nm² for each layer between."""
    m = network.hidden
    return samples * m * (4 * network.dim + 6 * m * (network.depth - 2))


def steps_for(objective: Objective) -> int:
    return max(3, round(WORK / operations(objective.network, objective.samples)))


def problem(network: Network, samples: int, dtype: type) -> tuple[Objective, float]:
    """Unit contexts, a smooth target, and the step that the library would take."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(samples, network.dim))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    form = CompiledObjective if CompiledObjective.fits(network) else Objective
    objective = form(network, network.initial_weights(generator), x, np.cos(3 * x @ x[0]), 0.01, dtype)
    curvature, _ = objective.top_curvature(None)
    return objective, STABLE / (curvature + objective.ridge)


def best_of(repeats: int, work: Callable[[], object]) -> float:
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def check(name: str, weights: Weights, reference: Weights, dtype: type) -> None:
    for w, expected in zip(weights, reference, strict=True):
        limit = AGREES[dtype]
        np.testing.assert_allclose(w, expected, rtol=limit, atol=limit * np.abs(expected).max(), err_msg=name)


def rows_of(network: Network, samples: int, dtype: type, threads: int) -> None:
    """The table's rows of one case: the competitors and a product take turns, for the machine may be shared."""
    objective, step = problem(network, samples, dtype)
    steps, work = steps_for(objective), operations(network, samples)
    reference = library(objective, step, 4, np.inf, threads)
    for name, competitor in COMPETITORS.items():
        check(name, competitor(objective, step, 4, 1e30, threads), reference, dtype)
    product, seconds = 0.0, dict.fromkeys(COMPETITORS, np.inf)
    for _ in range(ROUNDS):
        product = max(product, product_rate(dtype, repeats=1))
        for name, competitor in COMPETITORS.items():
            time.sleep(REST)
            once = best_of(3, lambda c=competitor: c(objective, step, steps, 1e30, threads)) / steps
            seconds[name] = min(seconds[name], once)
    for name, best in seconds.items():
        print(
            f"| {samples}, {network.hidden}, {network.dim} | {network.depth} | {np.dtype(dtype).name} | {threads} "
            f"| {name} | {1e3 * best:.2f} | {work / best / 1e9:.0f} | {100 * work / best / product:.0f} % "
            f"| {seconds['numpy'] / best:.1f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the small cases alone")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    print(describe() + ("" if numba_passes is not None else "\n\nNumba is not installed: its rows are skipped."))
    print("\n| n, m, d | depth | type | threads | passes | ms a step | GFLOP/s | of a product | times numpy |")
    print("|---|---|---|---|---|---|---|---|---|")
    for threads in arguments.threads:
        with threadpool_limits(threads, "blas"):
            for depth in (2, 3):
                for dtype in AGREES:
                    for samples, m, d in CASES[: 2 if arguments.quick else None]:
                        rows_of(Network(d, m, depth), samples, dtype, threads)


if __name__ == "__main__":
    main()

"""Files of policies with a field that nobody saved, sealed again: a forger's, whom a checksum does not stop.

`forgeries` changes one field of a file, and `consequence` loads the file and uses the policy: each call must end within
bounded time and memory, and with an error of the package's own if with one.
"""

from __future__ import annotations

import copy
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import rarely
from rarely import (
    BatchNeuralUCB,
    Discount,
    EnsemblePolicy,
    FixedGrid,
    LinTS,
    LinUCB,
    Mixture,
    NeuralLinear,
    NeuralTS,
    OnDemand,
    RarelyError,
    SparseRows,
    Training,
    Uniform,
    Window,
)
from rarely._core.saving import archive

SECONDS, BYTES = 2.0, 200 * 2**20
"""What loading a forged file, or a call of its policy, may take."""
ESTIMATORS = find_spec("sklearn") is not None
SPARSE = SparseRows.of(20, 2)
JUNK: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 17, 3.5, -0.5, 1e308, -1e308, 1e-320, float("nan"), float("inf")),
    *(10**7, 10**9, 10**12, 2**53, 2**62, 2**63, 2**64, -(2**63), 10**400, "", "x" * 100, "\ud800", "primal"),
    *([], [1], [[]], [None] * 5, {}, {"kind": "x"}, {"kind": [1]}),
)


def one_hot(rounds: int, seed: int = 0) -> Any:
    """Rounds of the same three arms."""
    return np.broadcast_to(np.eye(3), (rounds, 3, 3))


def dense(rounds: int, seed: int = 0) -> Any:
    """Rounds of three arms, new ones each time."""
    return np.random.default_rng(seed).normal(size=(rounds, 3, 3))


def sparse(rounds: int, seed: int = 0) -> Any:
    """Rounds of three packed arms."""
    rng = np.random.default_rng(seed)
    rows = [SPARSE.pack([{int(rng.integers(20)): 1.0, 3: rng.normal()} for _ in range(3)]) for _ in range(rounds)]
    return np.stack(rows)


small: dict[str, Any] = {"hidden": 4, "seed": 1}
short: dict[str, Any] = small | {"training": Training(steps=3)}
KINDS: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "LinUCB": (lambda: LinUCB(3, FixedGrid(100, 10), exploration=Mixture(0.1), seed=1), dense),
    "LinTS": (lambda: LinTS(3, OnDemand(), forgetting=Discount(0.95), covariance="dual", seed=1), dense),
    "sparse": (lambda: LinUCB(schedule=OnDemand(), seed=1, **SPARSE.settings), sparse),
    "default": (lambda: BatchNeuralUCB(3, FixedGrid(100, 10), **small), dense),
    "returning": (lambda: BatchNeuralUCB(3, OnDemand(horizon=100), **small), one_hot),
    "NeuralTS": (lambda: NeuralTS(3, OnDemand(), covariance="diagonal", **short), dense),
    "NeuralLinear": (lambda: NeuralLinear(3, OnDemand(), forgetting=Window(12), **short), dense),
    "primal": (lambda: BatchNeuralUCB(3, OnDemand(), covariance="primal", within_batch="running", **short), dense),
    "Uniform": (lambda: Uniform(3, OnDemand(), seed=1), dense),
}
if ESTIMATORS:
    from sklearn.linear_model import Ridge

    KINDS["EnsemblePolicy"] = (lambda: EnsemblePolicy(Ridge(), 3, OnDemand(), members=3, seed=1), dense)


def saved(kind: str, path: Path) -> archive.Archive:
    """Return the file of a small policy of this kind that has learned, dropped rounds and waits for rewards."""
    make, contexts = KINDS[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policy = make()
        for seed, count in ((0, 20), (1, 6), (2, 4)):
            decision = policy.select(contexts(count, seed))
            policy.observe(decision[: count - 1], np.random.default_rng(seed).normal(size=count - 1))
            if seed < 2:
                policy.update()
            policy = copy.deepcopy(policy) if seed else policy
        policy.compact(open_for=8)
        policy.save(path)
    return archive.read(path)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where the fields of a header are, parts inside included."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:6]) if isinstance(value, list) else ()
    for name, part in items:
        yield (*path, name)
        yield from places(part, (*path, name))


def forged(found: archive.Archive, random: Random) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return a header and arrays with one change, and what was changed."""
    header, arrays = copy.deepcopy(found.header), dict(found.arrays)
    if random.random() < 0.3:
        name = random.choice(sorted(arrays))
        arrays[name], how = another(arrays[name], random)
        return f"{name}: {how}", header, arrays
    place = random.choice(list(places(header)))
    *outer, last = place
    inside: Any = header
    for step in outer:
        inside = inside[step]
    if random.random() < 0.05:
        del inside[last]
        return f"{place} left out", header, arrays
    inside[last] = copy.deepcopy(random.choice(JUNK))
    return f"{place} = {str(inside[last])[:40]!r}", header, arrays


def another(array: Any, random: Random) -> tuple[Any, str]:
    """Return another array in the place of this one, and how it differs."""
    array, how = array.copy(), random.randrange(6)
    if how == 0 and array.size:
        special = (0.0, np.nan, np.inf, 1e308, -1.0, 1e-320, 1e150) if array.dtype.kind == "f" else (0, 1, -1, 100)
        place, value = random.randrange(array.size), random.choice(special)
        array.flat[place] = value
        return array, f"[{place}] = {value}"
    if how == 1 and array.ndim:
        return array[:-1], "the last row left out"
    if how == 2:
        return array.astype(np.float32), "float32"
    if how == 3:
        return (~array if array.dtype == bool else -array), "negative"
    if how == 4 and array.ndim:
        return np.concatenate((array, array)), "twice"
    return np.zeros((0,) * max(array.ndim, 1), array.dtype), "empty"


def consequence(path: Path, contexts: Callable[..., Any]) -> str:
    """Load a file and use its policy; return what went wrong, "" if nothing did."""
    problems = []

    def bounded(name: str, call: Callable[[], Any]) -> Any:
        tracemalloc.reset_peak()
        before, began = tracemalloc.get_traced_memory()[0], time.process_time()
        try:
            return call()
        except RarelyError:
            return None
        except Exception as error:
            problems.append(f"{name}: {type(error).__name__}: {error}"[:300])
            return None
        finally:
            took, held = time.process_time() - began, tracemalloc.get_traced_memory()[1] - before
            if took > SECONDS or held > BYTES:
                problems.append(f"{name} took {took:.1f} s and {held / 2**20:.0f} MiB")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tracemalloc.start()
        try:
            policy = bounded("load", lambda: rarely.load(path))
            if policy is None or problems:
                return "; ".join(problems)
            bounded("read", lambda: (policy._repr_html_(), repr(policy), policy.settings(), policy.fingerprint()))
            bounded("read", lambda: (policy.exact_rounds, policy.history.rows, policy.history.largest_spread))
            bounded("score", lambda: policy.score(contexts(2, 7)))
            one = bounded("select one", lambda: policy.select(contexts(1, 8)[0]))
            many = bounded("select", lambda: policy.select(contexts(5, 9)))
            for decision in (one, many):
                if decision is not None:
                    bounded("observe", partial(policy.observe, decision, np.ones(np.shape(decision.arm))))
            bounded(
                "update", lambda: policy.update(force=True, seconds=1.0)
            )  # settings may ask for any number of steps
            bounded("compact", policy.compact)
            bounded("select again", lambda: policy.select(contexts(3, 10)))
            bounded("save", lambda: policy.save(path))
        finally:
            tracemalloc.stop()
    return "; ".join(problems)


def search(kind: str, folder: Path, seed: int, count: int) -> list[str]:
    """Return what went wrong with so many forged files of a kind."""
    random, found, path = Random(f"{kind} {seed}"), saved(kind, folder / "saved.rarely"), folder / "forged.rarely"
    problems = []
    for _ in range(count):
        what, header, arrays = forged(found, random)
        try:
            archive.write(path, header, arrays)
        except (ValueError, TypeError):
            continue  # no file can hold that
        if problem := consequence(path, KINDS[kind][1]):
            problems.append(f"{what} → {problem}")
    return problems

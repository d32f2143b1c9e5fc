"""Look for faults for as long as you like: `make fuzz MINUTES=60`, or `python tests/fuzz.py --help`.

    algorithm    random configurations against a dense Algorithm 1, and every form of Z against the dense matrix
    bonuses      running bonuses against exact fractions, in any units
    interrupts   a random life, interrupted at random moments, beside a twin that is not
    forged       files of every kind with a field that nobody wrote, loaded and used: policies, studies, logs, waves
    mutants      one operator of the core changed at random: a mutant that passes the tests is printed

Every line says what was tried and from which seed; the first fault ends the search, a surviving mutant does not.
"""

from __future__ import annotations

import argparse
import ast
import copy
import faulthandler
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from forged import BYTES, KINDS, prepared, search
from interrupts import Interrupt
from rarely import FixedGrid, RarelyError
from worlds import MAKERS, contexts, rewards

ROOT = Path(__file__).parents[1]
PROPERTIES = {
    "algorithm": ("tests/laws", "tests/contracts/test_covariance.py", "tests/core/test_running.py"),
    "bonuses": ("tests/laws/test_exact_bonuses.py",),
}
EXAMPLES = 100
FORGERIES = 100
"""Of each kind in one round of `forged`: 20 rounds are 2000 of each."""
SECONDS_OF_ONE = 60
"""By the clock, in which the use of a forged file must end; `forged.SECONDS` bounds the processor's time of a call."""
LIVES, CALLS = 20, 30
"""Lives of policies in one round of `interrupts`, and calls in each."""
TESTS_OF_A_MUTANT = ("tests/contracts", "tests/laws", "tests/core")
SWAPS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def run_tests(files: tuple[str, ...], seed: int, source: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the properties of some test files with many examples."""
    environment = os.environ | {"EXAMPLES": str(EXAMPLES), "PYTHONPATH": str(source), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow"]
    command += [f"--hypothesis-seed={seed}", *more, *files]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def properties(kind: str, seed: int) -> str:
    done = run_tests(PROPERTIES[kind], seed, ROOT / "src")
    if done.returncode:
        sys.exit(f"{done.stdout}\n{kind}, seed {seed}: a fault")
    return f"{done.stdout.strip().splitlines()[-1]}, {EXAMPLES} examples each"


def interrupts(seed: int) -> str:
    """Interrupt calls of random lives, and compare each with a twin that was not interrupted."""
    chance, cut = random.Random(seed), Counter()
    for _ in range(LIVES):
        name, stream = chance.choice(sorted(MAKERS)), contexts(seed=chance.randrange(10**6), rounds=60)
        policy = MAKERS[name](FixedGrid(60, chance.randint(2, 12)))
        twin, waiting = copy.deepcopy(policy), []
        for _ in range(CALLS):
            call, act = _next_call(chance, policy, stream, waiting)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                before = copy.deepcopy(policy).fingerprint()
                start = time.perf_counter()
                given = act(twin)
                interrupted(partial(act, policy), chance.random() * (time.perf_counter() - start))
                after = copy.deepcopy(policy).fingerprint()
                whole = copy.deepcopy(twin).fingerprint()
                if after == before != whole:
                    act(policy)  # nothing had happened: the call is made again
                elif after != whole:
                    sys.exit(f"interrupts, seed {seed}: {call} of {name} was interrupted halfway")
            if copy.deepcopy(policy).fingerprint() != whole:
                sys.exit(f"interrupts, seed {seed}: {name} is not its twin after {call}")
            waiting += [given] if call == "select" else []
            cut[call] += 1
    return ", ".join(f"{count} {call}" for call, count in sorted(cut.items()))


def interrupted(call, seconds):
    """Make a call, and send this process a signal after so long, as Ctrl-C does."""

    def ring(*_):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, ring)
    with suppress(Interrupt):
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
        call()
        signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def _next_call(chance, policy, stream, waiting):
    """A call that a user might make next, as (name, what it does to a policy)."""
    if policy.round < len(stream) - 4 and (not waiting or chance.random() < 0.5):
        part = stream[policy.round : policy.round + chance.randint(1, 4)]
        return "select", lambda one: one.select(part)
    if waiting and chance.random() < 0.7:
        decision = waiting.pop(chance.randrange(len(waiting)))
        came = rewards(stream[np.atleast_1d(decision.round) - 1, np.atleast_1d(decision.arm)])
        return "observe", lambda one: one.observe(rounds=np.atleast_1d(decision.round), rewards=came)
    return "update", _update


def _update(policy):
    try:
        return policy.update()
    except RarelyError:  # nothing to learn, or the budget is spent
        return None


def forged(seed: int, kinds: str = "", count: int = FORGERIES) -> str:
    """Forge files of every kind, or of some; load and use them within bounded time and memory."""
    chosen = kinds.split(",") if kinds else [*KINDS]
    for kind in chosen:
        with tempfile.TemporaryDirectory() as folder:
            said = Path(folder) / "said"
            child = multiprocessing.get_context("fork").Process(target=_forge, args=(kind, said, seed, count))
            child.start()
            child.join()
            if child.exitcode or said.read_text(encoding="utf-8"):
                last = said.read_text(encoding="utf-8") if said.exists() else ""
                sys.exit(f"{last}\nforged {kind}, seed {seed}: a fault")
    return f"{len(chosen)} kinds, {count} files each"


def _forge(kind: str, said: Path, seed: int, count: int) -> None:
    """Search in a process of its own, which may take no more memory than its imports and what a file may cost."""

    def begin(what: str) -> None:
        said.write_text(f"{what} did not end", encoding="utf-8", errors="replace")
        faulthandler.dump_traceback_later(SECONDS_OF_ONE, exit=True)

    prepared(kind, said.parent)
    taken = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + BYTES, taken + BYTES))
    problems = search(kind, said.parent, seed, count, begin)
    said.write_text("\n".join(problems), encoding="utf-8", errors="replace")


def mutants(seed: int) -> str:
    """Change one operator of the core, and see whether its tests notice."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        path = chance.choice(sorted((source / "rarely" / "_core").rglob("*.py")))
        tree = ast.parse(path.read_text(encoding="utf-8"))
        places = [
            (node, field, i)
            for node in ast.walk(tree)
            for field in ("op", "ops")
            for i, op in enumerate(np.atleast_1d(getattr(node, field, [])))
            if type(op) in SWAPS
        ]
        if not places:
            return f"{path.name} has no operator"
        node, field, i = chance.choice(places)
        old = ast.unparse(node)
        if field == "op":
            node.op = SWAPS[type(node.op)]()
        else:
            node.ops[i] = SWAPS[type(node.ops[i])]()
        path.write_text(ast.unparse(tree), encoding="utf-8")
        where = f"{path.relative_to(source)}:{node.lineno}: {old}  →  {ast.unparse(node)}"
        done = run_tests(TESTS_OF_A_MUTANT, seed, source, "--no-header")
    return f"{'killed' if done.returncode else 'SURVIVED'}: {where}"


def main() -> None:
    """Try the kinds in turn until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    searches = {"interrupts": interrupts, "forged": forged, "mutants": mutants}
    kinds = (*PROPERTIES, *searches)
    parser.add_argument("kinds", nargs="*", default=kinds, help=f"of {', '.join(kinds)}; all without any")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="to try the same again")
    parser.add_argument("--files", default="", help=f"kinds of forged files, of {','.join(KINDS)}; all without any")
    parser.add_argument("--count", type=int, default=FORGERIES, help="forged files of each kind in a round")
    asked = parser.parse_args()
    searches["forged"] = partial(forged, kinds=asked.files, count=asked.count)
    if unknown := set(asked.kinds) - set(kinds):
        parser.error(f"a kind must be one of {', '.join(kinds)}; got {', '.join(unknown)}")
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    end, tried = time.monotonic() + 60 * asked.minutes, Counter()
    while not tried or time.monotonic() < end:
        for kind in asked.kinds:
            found = searches.get(kind)
            said = properties(kind, seed) if found is None else found(seed)
            print(f"{kind}, seed {seed}: {said}", flush=True)
            tried[kind] += 1
        seed += 1
    print("tried " + ", ".join(f"{count} × {kind}" for kind, count in tried.items()))


if __name__ == "__main__":
    main()

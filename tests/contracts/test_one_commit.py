"""A call that raises or is interrupted, at whatever line, has changed nothing."""

import copy
import sys
import threading
import time

import numpy as np
import pytest

import rarely
from effort import MANY
from interrupts import lines_of
from rarely import FixedGrid, PolicyBusy
from worlds import MAKERS, contexts, play, rewards, small

PATIENCE = 300
"""Seconds after which a thread that waits for another takes it for lost."""

POINTS = 40 if MANY else 3
"""Lines at which the longer calls are interrupted, others for each policy."""
APART = 1 if MANY else 20
"""`observe` and a single `select` are interrupted at every twentieth line, which is another one for the next policy."""
ARRAYS = 40 if MANY else 5
"""Arrays of a call at which memory ends, or all of them if they are fewer."""
FEW = ("default", "deep", "sgd", "diagonal", "last_layer", "window", "epsilon_greedy", "random_ties", "neural_linear")
FEW += ("no_intercept", "linear_discount", "kernel", "kernel_steps", "uniform", "tuned")
"""Between them they run every line that any policy runs in these calls, as a slow test finds out."""
NAMES = [*MAKERS] if MANY else [*FEW]
STREAM = contexts(seed=11)


def started(name):
    """A policy in mid-life, in mid-batch, with rewards that are missing."""
    policy = MAKERS[name](FixedGrid(24, 4))
    play(policy, STREAM[:8])
    decision = policy.select(STREAM[8:11])
    policy.observe(decision[1:], rewards(STREAM[[9, 10], decision.arm[1:]]))
    return policy, decision


def spread(lines, index):
    """Lines of a long call, the first and the last ones among them, and others for each policy between."""
    shift = (index / len(NAMES)) % 1
    between = (np.arange(POINTS) + shift) * lines / POINTS
    return sorted({1, *np.clip(between.astype(int), 1, lines).tolist(), lines - 2, lines - 1, lines})


CALLS = {
    "select": lambda policy, decision, folder: policy.select(STREAM[12:15]),
    "select_one": lambda policy, decision, folder: policy.select(STREAM[12]),
    "observe": lambda policy, decision, folder: policy.observe(decision[0], 0.5),
    "update": lambda policy, decision, folder: policy.update(),
    "save": lambda policy, decision, folder: policy.save(folder / "policy.rarely"),
}


# A file that is open at the line of an interrupt is closed with the frame that opened it.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", NAMES)
def test_an_interrupt_at_any_line_changes_nothing(name, call, tmp_path):
    origin, decision = started(name)
    # Z takes accepted rounds in when it is first asked for, by a fingerprint too: every call meets a fresh copy.
    copy.deepcopy(origin).save(tmp_path / "policy.rarely")

    def run(policy):
        return CALLS[call](policy, decision, tmp_path)

    cold, finished = copy.deepcopy(origin), copy.deepcopy(origin)
    # What an interrupted call has worked out, and a later one need not, is not counted.
    lines_of(lambda: run(finished), lines_of(lambda: run(cold)) - 5)
    lines = lines_of(lambda: run(finished))
    before, after = copy.deepcopy(origin).fingerprint(), finished.fingerprint()
    short, index = call in ("select_one", "observe"), NAMES.index(name)
    # The last lines are those of the one assignment that ends a call.
    stops = [*range(1 + index % APART, lines - 4, APART), *range(lines - 4, lines + 1)]
    for stop in stops if short else spread(lines, index):
        policy = copy.deepcopy(origin)
        lines_of(lambda policy=policy: run(policy), stop)
        again = copy.deepcopy(policy) if stop % 7 == index % 7 else None
        reached = policy.fingerprint()
        # The assignment that ends a call is followed by a line or two: an interrupt there finds the call done.
        assert reached == before or (reached == after and stop > lines - 4), f"line {stop} of {lines}"
        if call == "save":
            assert rarely.load(tmp_path / "policy.rarely").fingerprint() == before
        assert [path.name for path in tmp_path.iterdir()] == ["policy.rarely"]
        if again is not None and reached == before:  # what it wrote beyond what is known is not in the way
            run(again)
            assert again.fingerprint() == after, f"again after line {stop} of {lines}"


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_the_policies_that_are_interrupted_run_every_line_that_any_policy_runs(call, tmp_path):
    ran = {}
    MAKERS["linear"]().save(tmp_path / "policy.rarely")
    for name in MAKERS:
        policy, decision = started(name)
        ran[name] = set()
        lines_of(lambda p=policy, d=decision: CALLS[call](p, d, tmp_path), lines=ran[name])
    assert set().union(*ran.values()) == set().union(*(ran[name] for name in FEW))


@pytest.mark.parametrize("name", ["paper", "tuned", "primal", "linear", "kernel", "mixture"])
def test_an_interrupted_policy_has_the_same_future(name):
    undisturbed, _ = started(name)
    policy = copy.deepcopy(undisturbed)
    rng = np.random.default_rng(5)
    for t in range(12, 24):
        for _ in range(3):
            lines_of(lambda t=t: policy.select(STREAM[t]), int(rng.integers(1, 90)))
        for p in (undisturbed, policy):
            one = p.select(STREAM[t])
            assert one.round == t
            p.observe(one, rewards(STREAM[t, one.arm])[0])
            if p.due:
                p.update()
    assert policy.fingerprint() == undisturbed.fingerprint()


ALLOCATING = ("empty", "zeros", "ones", "full", "array", "arange", "append", "concatenate", "vstack", "hstack", "where")
"""Functions of NumPy by which the package makes arrays."""


def allocations_of(call, stop=None):
    """How many arrays a call makes by these functions; memory ends with array number `stop`."""
    count = 0

    def counting(make):
        def counted(*args, **named):
            nonlocal count
            count += 1
            if count == stop:
                raise MemoryError
            return make(*args, **named)

        return counted

    with pytest.MonkeyPatch.context() as patch:
        for name in ALLOCATING:
            patch.setattr(np, name, counting(getattr(np, name)))
        if stop is None:
            call()
        else:
            with pytest.raises(MemoryError):
                call()
    return count


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", NAMES)
def test_memory_that_ends_at_any_array_changes_nothing(name, call, tmp_path):
    origin, decision = started(name)
    copy.deepcopy(origin).save(tmp_path / "policy.rarely")

    def run(policy):
        return CALLS[call](policy, decision, tmp_path)

    run(copy.deepcopy(origin))  # what a process makes once is not counted
    finished = copy.deepcopy(origin)
    arrays = allocations_of(lambda: run(finished))
    if not arrays:
        pytest.skip("this call makes no array")
    before = copy.deepcopy(origin).fingerprint()
    for stop in sorted({*np.linspace(1, arrays, ARRAYS).astype(int).tolist(), arrays}):
        policy = copy.deepcopy(origin)
        allocations_of(lambda policy=policy: run(policy), stop)
        assert policy.fingerprint() == before, f"array {stop} of {arrays}"
    assert [path.name for path in tmp_path.iterdir()] == ["policy.rarely"]
    run(policy)
    assert policy.fingerprint() == finished.fingerprint()


def test_a_second_thread_is_told_at_once_and_may_read():
    entered, release = threading.Event(), threading.Event()

    def beta(round):
        if round > 1:
            entered.set()
            assert release.wait(PATIENCE)
        return 0.5

    policy = small(beta=beta)
    decision = policy.select(STREAM[:3])
    policy.observe(decision[:2], [0.0, 1.0])
    training = threading.Thread(target=policy.update)
    training.start()
    assert entered.wait(PATIENCE)
    try:
        for call in (lambda: policy.select(STREAM[3]), lambda: policy.observe(decision[2], 1.0), policy.update):
            with pytest.raises(PolicyBusy, match="one thread at a time"):
                call()
        assert policy.score(STREAM[3]).means.shape == (3,)
        assert policy.probabilities(STREAM[3]).sum() == 1
        assert (policy.version, policy.round, policy.missing) == (0, 3, 1)
    finally:
        release.set()
        training.join()
    assert policy.version == 1


class Meeting:
    """Contexts that are read, within a call of `select`, only when another call has come meanwhile."""

    def __init__(self, values):
        self.values, self.entered, self.met = values, threading.Event(), threading.Event()

    def __array__(self, dtype=None, copy=None):
        self.entered.set()
        assert self.met.wait(PATIENCE)
        return self.values


def test_threads_that_share_a_policy_never_get_one_round_twice():
    policy, rounds, busy = small(FixedGrid(4000, 2), hidden=4), [], []
    first = Meeting(contexts(seed=0, rounds=1)[0])

    def client(seed):
        streams = contexts(seed=seed, rounds=150)
        if seed:
            assert first.entered.wait(PATIENCE)
        for x in streams if seed else [first, *streams[1:]]:
            while True:
                try:
                    decision = policy.select(x)
                    break
                except PolicyBusy:
                    busy.append(seed)
                    first.met.set()
                    time.sleep(1e-5)  # or those that wait would keep the interpreter from the one that decides
            rounds.append(decision.round)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert busy
    assert sorted(rounds) == list(range(1, 601))
    assert policy._covariance.rounds == policy.round == 600

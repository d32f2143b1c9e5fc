"""Snapshots of policies: whatever a header or an array holds, a policy comes back or a SnapshotError says why not."""

import copy

import numpy as np
import pytest

import rarely
from effort import MANY
from rarely import FixedGrid, LinUCB, NotPositiveDefinite, SnapshotError
from rarely._core.saving import archive
from worlds import MAKERS, contexts, play

JUNK = (None, "x", -1, 10**9, float("nan"), float("inf"), [], {})


def places(value, path=()):
    """Every place inside a header: keys and, of lists, the first."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for name, part in inner:
        yield (*path, name)
        yield from places(part, (*path, name))


def changed(header, path, value):
    """The header with another value at a place, or without it; what is beside that place is shared."""
    name, *deeper = path
    header = copy.copy(header)
    if deeper:
        header[name] = changed(header[name], deeper, value)
    elif value is ...:
        del header[name]
    else:
        header[name] = value
    return header


def opened(case, folder):
    """What the file of a policy in mid-life holds."""
    path = folder / "whole"
    policy = MAKERS[case]()
    play(policy, contexts()[:9])
    policy.save(path)
    return archive.read(path)


@pytest.fixture
def load(monkeypatch):
    """`load` of a file that holds such a header and such arrays, without the file."""

    def load_of(header, arrays):
        held = archive.Archive(header, arrays, rarely.__version__)
        monkeypatch.setattr(archive, "read", lambda path: held)
        return rarely.load("file")

    return load_of


@pytest.mark.parametrize(("case", "only"), [("linear", ""), ("tuned", ""), ("diagonal", "covariance")])
def test_junk_in_the_header_gives_no_other_error(tmp_path, load, case, only):
    """Of a form of its own, in the part of the header that no other policy has."""
    whole = opened(case, tmp_path)
    refused, tried = 0, [place for place in places(whole.header) if not only or place[0] == only]
    junk = (*JUNK, ...)
    for number, place in enumerate(tried):
        for value in junk if MANY else junk[number % 3 :: 3]:
            try:
                load(changed(whole.header, place, value), whole.arrays)
            except SnapshotError:
                refused += 1
            except rarely.InvalidInput:
                assert place == ("settings", "beta")
    assert refused > (4 if MANY else 1) * len(tried) > 0


FORMS = ("linear", "deep", "primal", "diagonal", "last_layer")


@pytest.mark.parametrize("case", ["tuned", "code", "neural_linear", "kernel", *FORMS])
def test_an_array_of_another_shape_or_kind_is_refused(tmp_path, load, case):
    whole = opened(case, tmp_path)
    for name, array in whole.arrays.items():
        longer = np.concatenate([*[np.atleast_1d(array)] * 2, np.ones((1, *array.shape[1:]))])
        others = [np.zeros((3, 3, 3, 3)), array.astype(np.float16), np.zeros(array.shape, np.int32), longer]
        for other in others + [np.full(array.shape, np.inf)] * (array.size > 0):
            with pytest.raises(SnapshotError):
                load(whole.header, whole.arrays | {name: other})
        without = {k: a for k, a in whole.arrays.items() if k != name}
        if name not in ("covariance.frozen", "learner.direction0"):
            with pytest.raises(SnapshotError, match=name.replace(".", "[.]")):
                load(whole.header, without)


@pytest.mark.parametrize("case", FORMS)
def test_a_field_that_no_covariance_has_is_refused(tmp_path, load, case):
    whole = opened(case, tmp_path)
    with pytest.raises(SnapshotError, match=r"holds covariance\.colour, which this version does not know"):
        load(whole.header, whole.arrays | {"covariance.colour": np.zeros(1)})
    with pytest.raises(SnapshotError, match=r"holds covariance\.colour"):
        load(changed(whole.header, ("covariance", "colour"), 1), whole.arrays)


@pytest.mark.parametrize(("name", "value"), [("dim", 10**9), ("hidden", 10**9), ("depth", 10**9), ("hidden", 6)])
def test_settings_that_would_allocate_more_than_the_file_has_are_refused_first(tmp_path, name, value):
    whole, path = opened("tuned", tmp_path), tmp_path / "file"
    archive.write(path, changed(whole.header, ("settings", name), value), whole.arrays)
    with pytest.raises(SnapshotError, match=f"settings.*{name}"):
        rarely.load(path)


def test_an_intercept_is_a_flag(tmp_path):
    whole, path = opened("linear", tmp_path), tmp_path / "file"
    archive.write(path, changed(whole.header, ("settings", "intercept"), 10**9), whole.arrays)
    with pytest.raises(SnapshotError, match="intercept must be True or False; got 1000000000"):
        rarely.load(path)


@pytest.mark.parametrize("form", ["dual", "primal"])
@pytest.mark.filterwarnings("ignore::rarely.JitterWarning", "ignore::rarely.RoundingWarning")
def test_a_policy_comes_back_whatever_rounding_did_to_it(tmp_path, form):
    """Near copies of norm 1e3 under a ridge of 1e-7: log det of the running Z may come out below that of the frozen."""
    jitters = 0
    for seed in (6, 37, 61, 100):
        rng = np.random.default_rng(seed)
        rounds = 1e3 * (rng.normal(size=(3, 5))[rng.integers(3, size=40)] + 1e-5 * rng.normal(size=(40, 5)))
        policy = LinUCB(5, FixedGrid(40, 4), ridge=1e-7, covariance=form, intercept=False)
        for start in range(0, 40, 4):
            try:
                policy.observe(policy.select(rounds[start : start + 4, None]), np.ones(4))
            except NotPositiveDefinite:
                break
            if policy.due:
                policy.update()
            policy.save(tmp_path / "p")
            assert rarely.load(tmp_path / "p").fingerprint() == policy.fingerprint()
        jitters += policy.jitters
    assert jitters or form == "primal"

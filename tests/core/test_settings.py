"""Settings of any kind and misspelt ones: every constructor refuses them by an error of this package."""

import datetime
import decimal
import fractions
import inspect
import json
import math
import warnings

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import rarely
from rarely import (
    Affine,
    ArmBlocks,
    AtRounds,
    BatchNeuralUCB,
    Budget,
    DeterminantTrigger,
    Discount,
    FixedGrid,
    FramePolicy,
    GeometricGrid,
    InvalidInput,
    KernelUCB,
    Limits,
    LinTS,
    LinUCB,
    Mixture,
    NeuralEpsilonGreedy,
    NoiseRadius,
    OnDemand,
    Paced,
    Preset,
    RarelyError,
    Roster,
    TheoremRadius,
    Training,
    Uniform,
    Window,
)
from rarely.study import Client, RewardRule, Stage, StudySettings


class Raises:
    """What raises an error of its own, whatever is asked of it."""

    def __array__(self, *args, **kwargs):
        raise RuntimeError("no array")

    def __repr__(self):
        raise RuntimeError("no repr")


ODD = {
    "None": None,
    "text": "x",
    "empty text": "",
    "bytes": b"x",
    "True": True,
    "zero": 0,
    "negative": -1,
    "a half": 0.5,
    "NaN": math.nan,
    "infinity": math.inf,
    "complex": 1j,
    "10**400": 10**400,
    "-10**400": -(10**400),
    "10**5000": 10**5000,
    "2**63": 2**63,
    "10**18": 10**18,
    "a Decimal": decimal.Decimal("1.5"),
    "a Fraction": fractions.Fraction(1, 3),
    "a date": datetime.date(2020, 1, 1),
    "a NumPy date": np.datetime64("2020-01-01"),
    "a NumPy duration": np.timedelta64(1, "s"),
    "a NumPy number": np.float32(0.5),
    "a long double": np.longdouble("1e4000"),
    "masked": np.ma.masked,
    "a masked array": np.ma.array([1.0, 2.0], mask=[0, 1]),
    "no numbers": np.array([]),
    "numbers": np.array([1.0, 2.0]),
    "one number": np.array([1]),
    "a number without an axis": np.array(1),
    "text in an array": np.array(["a"]),
    "records": np.rec.array([(1, 2.0)], dtype=[("a", int), ("b", float)]),
    "void": np.zeros((2, 2), "V8"),
    "a list": [1, 2],
    "ragged": [[1, 2], [3]],
    "a dict": {"kind": "x"},
    "an empty dict": {},
    "a set": {1},
    "an object": object(),
    "a type": int,
    "an iterator": iter([1]),
    "memory": memoryview(b"abc"),
    "Ellipsis": ...,
    "raises": Raises(),
}
NEURAL = {"dim": 2, "schedule": OnDemand(), "hidden": 4, "seed": 0}
BLOCKS = ArmBlocks(2, Affine.identity(1))
MADE = {
    "BatchNeuralUCB": NEURAL,
    "NeuralTS": NEURAL,
    "NeuralLinear": NEURAL,
    "NeuralUCB": {"dim": 2, "hidden": 4},
    "NeuralEpsilonGreedy": NEURAL | {"epsilon": 0.1},
    "LinUCB": {"dim": 2},
    "LinTS": {"dim": 2},
    "Uniform": {"dim": 2},
    "KernelUCB": {"dim": 2},
    "EnsemblePolicy": {"estimator": LinearRegression(), "dim": 2},
    "Affine": {"center": [0.0], "spread": [1.0]},
    "ArmBlocks": {"arms": 2, "rows": Affine.identity(1)},
    "Roster": {"blocks": BLOCKS},
    "AtRounds": {"rounds": [3]},
    "Budget": {"schedule": OnDemand(), "batches": 3},
    "DeterminantTrigger": {"horizon": 10, "batches": 3, "log_ratio": 1.0},
    "EveryRound": {},
    "FixedGrid": {"horizon": 10, "batches": 3},
    "GeometricGrid": {"horizon": 10, "batches": 3},
    "LogLogGrid": {"horizon": 10, "batches": 3},
    "OnDemand": {},
    "Paced": {"horizon": 10, "batches": 3},
    "Window": {"rounds": 3},
    "Discount": {"factor": 0.5},
    "Mixture": {"epsilon": 0.5},
    "NoiseRadius": {"factor": 1.0},
    "TheoremRadius": {"nu": 1.0, "S": 1.0},
    "Limits": {},
    "Ceiling": {"total": 4.0},
    "Shares": {},
    "Interval": {"low": 0.0, "high": 1.0},
    "Worth": {},
    "Preset": {},
    "Training": {},
}
STUDIES = {
    Stage: {"name": "x"},
    RewardRule: {"wait": 5.0},
    StudySettings: {"arms": ("a", "b")},
    Client: {"url": "http://127.0.0.1:9", "study": "x"},
}
RECORDS = {  # what the package makes and a caller reads, and abstract classes
    *("BuildInfo", "Decision", "Offer", "Policy", "PolicyEvent", "Price", "Schedule", "Scores"),
    *("UpdateJob", "UpdateRecord", "UpdateResult", "ColumnEffect", "ComposedPolicy", "FrameEncoder", "FramePolicy"),
    "SparseRows",
}
CONSTRUCTORS = {getattr(rarely, name): given for name, given in MADE.items()} | STUDIES


def arguments(kind):
    """Names of all arguments, those of the base class among them if some are passed on."""
    names = set()
    for base in kind.__mro__:
        if "__init__" in vars(base):
            found = list(inspect.signature(base.__init__).parameters.values())[1:]
            names |= {each.name for each in found if each.kind is not each.VAR_KEYWORD}
            if all(each.kind is not each.VAR_KEYWORD for each in found):
                break
    return sorted(names)


def test_every_public_constructor_is_tried():
    public = {name for name in rarely.__all__ if isinstance(getattr(rarely, name), type)}
    errors = {name for name in public if issubclass(getattr(rarely, name), Exception)}
    assert public - errors - RECORDS == set(MADE)


def tried(call):
    """Return what a call makes, None if it raises an error of this package; any other error is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return call()
        except RarelyError:
            return None


@pytest.mark.parametrize("kind", CONSTRUCTORS, ids=lambda kind: kind.__name__)
def test_odd_values_are_taken_or_refused_by_an_error_of_the_package(kind):
    def use(**given):
        made = kind(**given)
        if isinstance(made, rarely.Policy):  # what is taken can be used and written
            made.select(np.eye(2))
            json.dumps(made.settings(), default=float)

    failed = []
    for name in arguments(kind):
        for what, value in ODD.items():
            try:
                tried(lambda name=name, value=value: use(**CONSTRUCTORS[kind] | {name: value}))
            except Exception as error:
                failed.append(f"{name}={what}: {type(error).__name__}: {error}")
    assert not failed


CALLS = {
    "select": lambda policy, value: policy.select(value),
    "score": lambda policy, value: policy.score(value),
    "probabilities": lambda policy, value: policy.probabilities(value),
    "mask": lambda policy, value: policy.select(np.eye(2), value),
    "rewards": lambda policy, value: policy.observe(rounds=1, rewards=value),
    "decision": lambda policy, value: policy.observe(value, 1.0),
    "rounds": lambda policy, value: policy.observe(rounds=value, rewards=1.0),
    "ids": lambda policy, value: policy.observe(ids=value, rewards=1.0),
    "late": lambda policy, value: policy.observe(rounds=1, rewards=1.0, late=value),
    "seconds": lambda policy, value: policy.update(seconds=value, force=True),
    "open_for": lambda policy, value: policy.compact(open_for=value),
    "versions": lambda policy, value: policy.extend_budget(value, reason="x"),
    "adopt": lambda policy, value: policy.adopt(value),
    "with_covariance": lambda policy, value: policy.with_covariance(value),
    "memory_limit": lambda policy, value: policy.with_covariance(memory_limit=value),
    "load": lambda policy, value: rarely.load(value) if not isinstance(value, str | bytes) else None,
    "save": lambda policy, value: policy.save(value) if not isinstance(value, str | bytes) else None,
    "from_log": lambda policy, value: LinUCB.from_log(value, [1.0]),
    "rewards of a log": lambda policy, value: LinUCB.from_log([[1.0, 2.0]], value),
    "fit": lambda policy, value: ArmBlocks.fit(value, 2),
    "blocks": lambda policy, value: BLOCKS(value),
    "roster": lambda policy, value: Roster(BLOCKS).open(value),
}


@pytest.mark.parametrize("name", CALLS)
def test_odd_arguments_of_calls_too_and_then_nothing_has_changed(name):
    failed = []
    for what, value in ODD.items():
        policy = LinUCB(dim=2, schedule=OnDemand(batches=5), seed=0)
        policy.select(np.eye(2))
        before = policy.fingerprint()
        try:
            refused = tried(lambda value=value, policy=policy: (CALLS[name](policy, value),)) is None
        except Exception as error:
            failed.append(f"{what}: {type(error).__name__}: {error}")
        else:
            assert not refused or policy.fingerprint() == before, what
    assert not failed


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: rarely.BatchNeuralUCB(dim=3, schedul=OnDemand()),
            "'schedul' for BatchNeuralUCB. Did you mean 'sch",
        ),
        (
            lambda: NeuralEpsilonGreedy(2, OnDemand(), epsilom=0.1),
            "'epsilom' for NeuralEpsilonGreedy. Did you mean 'ep",
        ),
        (
            lambda: NeuralEpsilonGreedy(2, schedul=OnDemand()),
            "'schedul' for NeuralEpsilonGreedy. Did you mean 's",
        ),
        (lambda: LinUCB.from_log([[1.0]], [1.0], rigde=1.0), "'rigde' for LinUCB. Did you mean 'ridge'"),
        (lambda: LinTS(2, rigde=1.0), "'rigde' for LinTS. Did you mean 'ridge'"),
        (lambda: KernelUCB(2, colour=1), "unknown argument 'colour' for KernelUCB. It has beta, "),
        (lambda: LinUCB(2, schedule={"kind": "Paced", "horizn": 9}), "'horizn' for Paced. Did you mean 'horizon'"),
        (lambda: FixedGrid(horizn=3, batches=2), "'horizn' for FixedGrid. Did you mean 'horizon'"),
        (lambda: Preset.named("paper", precison="float32"), "'precison' for Preset. Did you mean 'precision'"),
        (lambda: ArmBlocks(2, layuot="hybrid"), "'layuot' for ArmBlocks. Did you mean 'layout'"),
        (lambda: Stage("x", leest=0.1), "'leest' for Stage. Did you mean 'least'"),
        (lambda: BatchNeuralUCB(2, OnDemand(), n_arms=3), "Each round brings its own contexts, (K, d)"),
        (lambda: LinUCB(2, alpha=1.0), "'alpha' for LinUCB. It is beta here."),
        (lambda: BatchNeuralUCB(2, OnDemand(), epsilon=0.1), "It is exploration=Mixture(epsilon) here"),
        (lambda: BatchNeuralUCB(2, horizon=9), "belongs to a schedule here, as in Paced(horizon, batches)"),
        (lambda: BatchNeuralUCB(2), "Paced(horizon, batches) does for a budget of updates"),
        (lambda: Paced(20, 1000), "takes the number of rounds first, and at most as many versions"),
        (lambda: FramePolicy(BatchNeuralUCB), "FramePolicy.fit(BatchNeuralUCB, users, items, schedule=OnDemand())"),
        (lambda: Uniform(), "Uniform: missing a required argument: 'dim'"),
        (lambda: Paced(1, 2, 3), "Paced: too many positional arguments"),
    ],
)
def test_a_misspelt_argument_is_named_with_the_nearest_one(call, says):
    with pytest.raises(InvalidInput) as error:
        call()
    assert says in str(error.value)


@pytest.mark.parametrize(("call", "says"), [("fit", "update() learns"), ("predict", "select(contexts) decides")])
def test_calls_of_other_libraries_say_what_they_are_here(call, says):
    with pytest.raises(AttributeError, match=f"no attribute {call!r}") as error:
        getattr(LinUCB(2), call)
    assert says in str(error.value)
    assert not hasattr(LinUCB(2), "_no_such_thing")


def test_signatures_are_those_that_were_written():
    assert list(inspect.signature(Window).parameters) == ["rounds"]
    assert list(inspect.signature(LinUCB).parameters)[:2] == ["dim", "schedule"]


def test_rounds_may_come_from_any_iterable():
    assert AtRounds(iter([3, 5])).points == AtRounds(np.array([3, 5])).points == (3, 5)


def test_words_stand_beside_numbers():
    assert Limits(history=None, operations="auto").history is None
    with pytest.raises(InvalidInput, match="history must be a whole number of at least 1 or 'auto' or None; got 'x'"):
        Limits(history="x")
    with pytest.raises(InvalidInput, match="rows must be a whole number of at least 2 or 'all' or None; got an array"):
        Training(rows=np.array([3, 4]))


@pytest.mark.parametrize("kind", [Mixture, Discount, NoiseRadius, lambda value: TheoremRadius(value, 1.0)])
def test_numbers_are_those_of_python_and_numpy(kind):
    for value in (1, np.int64(1), np.float32(0.5), np.float64(0.5)):
        kind(value)
    with pytest.raises(InvalidInput, match=r"got Fraction\(1, 2\)"):  # no array computes with it
        kind(fractions.Fraction(1, 2))


@pytest.mark.parametrize("schedule", [lambda n: FixedGrid(n, n), lambda n: GeometricGrid(10 * n, n)])
def test_a_grid_lists_only_as_many_points_as_take_no_time(schedule):
    """A saved policy of 7 kB would otherwise keep `load` busy for a minute."""
    assert schedule(10**5).batches == 10**5
    with pytest.raises(InvalidInput, match=r"batches must be at most 100,000"):
        schedule(10**5 + 1)


def test_budgets_and_triggers_refuse_what_is_no_number():
    with pytest.raises(InvalidInput, match="log_ratio must be given"):
        DeterminantTrigger(10, 3, "x")
    with pytest.raises(InvalidInput, match=r"Budget\.extra"):
        Budget(OnDemand(), 3, extra=-1)


def test_scikit_learn_clones_a_policy():
    base = pytest.importorskip("sklearn.base")
    policy = rarely.LinTS(2, rarely.Paced(30, 3), beta=0.5, seed=4)
    policy.select([[0.0, 1.0], [1.0, 0.0]])
    again = base.clone(policy)
    assert (again.round, again.settings()) == (0, policy.settings())
    assert policy.get_params() == policy.settings()
    framed = rarely.FramePolicy.fit(rarely.LinUCB, {"age": [1.0, 2.0]}, arms=["a", "b"])
    assert base.clone(framed).tables is framed.tables

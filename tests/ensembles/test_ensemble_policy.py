"""Regressors as policies: right probabilities, honest refusals, files without pickle."""

import copy
import importlib
import inspect
import os
import pickle
import re
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rarely
from interrupts import lines_of
from rarely import (
    Affine,
    ArmBlocks,
    AtRounds,
    Budget,
    DeterminantTrigger,
    Discount,
    EnsemblePolicy,
    EveryRound,
    FixedGrid,
    FramePolicy,
    InvalidContexts,
    InvalidInput,
    InvalidSchedule,
    Limits,
    Mixture,
    OnDemand,
    Paced,
    RejectedWarning,
    Roster,
    SnapshotError,
    SnapshotWarning,
    SparseRows,
    TrainingRejected,
    Window,
)
from rarely.ensembles import FROM_FILES, HARMLESS, MemberVotes, described, made
from rarely.extend import ArmScores
from rarely.study import Study
from rarely.testing import POLICY_PROMISES, check_policy
from worlds import contexts, play

pytest.importorskip("sklearn", reason="EnsemblePolicy needs scikit-learn: pip install '.[ensembles]'")

from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, StackingRegressor, VotingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import BayesianRidge, LinearRegression, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from sklearn.tree import DecisionTreeRegressor

TREE = DecisionTreeRegressor(min_samples_leaf=2)
MAKERS = {
    "bootstrap": lambda schedule, **s: EnsemblePolicy(TREE, 2, schedule, **{"members": 3, "seed": 0} | s),
    "std": lambda schedule, **s: EnsemblePolicy(BayesianRidge(), 2, schedule, members=None, seed=0, **s),
    "greedy": lambda schedule, **s: EnsemblePolicy(
        make_pipeline(StandardScaler(), Ridge()), 2, schedule, members=1, exploration=Mixture(0.2), seed=0, **s
    ),
    "discount": lambda schedule, **s: EnsemblePolicy(
        TREE, 2, schedule, members=3, beta=2.0, forgetting=Discount(0.9), seed=0, **s
    ),
}
WITHOUT_Z = {"log_det_grows_with_every_round": "there is no Z", "the_budget_is_kept": "it asks for det Z"}


def taught(estimator=TREE, rounds=20, **settings):
    """A policy after one update."""
    policy = EnsemblePolicy(estimator, 2, AtRounds([rounds]), **{"members": 4, "seed": 1} | settings)
    play(policy, contexts(rounds=rounds))
    return policy


class Odd(RegressorMixin, BaseEstimator):
    """Predicts whatever it is told to; a module-level class, so that a file may name it."""

    def __init__(self, answer="mean", random_state=None):
        self.answer, self.random_state = answer, random_state

    def fit(self, x, y):
        if self.answer == "raise":
            raise OSError("the disk is full")
        self.mean_ = y.mean()
        return self

    def predict(self, x):
        shapes = {"column": (len(x), 1), "short": (len(x) - 1,), "two": (len(x), 2)}
        value = {"nan": np.nan, "later": np.inf if len(x) == 3 else 0.0}.get(self.answer, self.mean_)
        return np.full(shapes.get(self.answer, (len(x),)), value)


class Drawn(Odd):
    """Trains otherwise each time."""

    def fit(self, x, y):
        self.mean_ = y.mean() + np.random.default_rng().random()
        return self


@pytest.mark.parametrize("promise", POLICY_PROMISES)
@pytest.mark.parametrize("name", MAKERS)
def test_it_keeps_the_promises_of_a_policy(name, promise):
    if promise in WITHOUT_Z:
        pytest.skip(WITHOUT_Z[promise])
    check_policy(lambda schedule: MAKERS[name](schedule, missing=False), only=promise)


# --- probabilities


def oracle(policy, row, beta=1.0):
    """Votes of the members, arm by arm and member by member."""
    votes, models = np.zeros(len(row)), policy._learner.models
    values = np.array([model.predict(row) for model in models])
    for value in values.mean(axis=0) + beta * (values - values.mean(axis=0)):
        best = np.flatnonzero(value >= value.max() - 1e-9)
        votes[best] += 1 / (len(best) * len(models))
    return votes


@pytest.mark.parametrize("beta", [0.0, 1.0, 2.5])
def test_an_arm_is_chosen_as_often_as_members_prefer_it(beta):
    policy = taught(members=7, beta=beta)
    several = 0
    for row in contexts(seed=5):
        chances = policy.probabilities(row)
        assert chances == pytest.approx(oracle(policy, row, beta), abs=1e-12)
        several += np.count_nonzero(chances) > 1
    assert several > 3 or not beta
    assert np.isin(policy.probabilities([row[0]] * 4), 0.25).all()  # the same context four times is a tie


def test_means_and_bonuses_are_those_of_the_members():
    policy, row = taught(members=5, beta=2.0), contexts(seed=5)[0]
    values = np.array([model.predict(row) for model in policy._learner.models])
    means, bonuses = policy.score(row)
    assert means == pytest.approx(values.mean(axis=0))
    assert bonuses == pytest.approx(2 * values.std(axis=0, ddof=1))
    mixed = taught(members=5, beta=2.0, exploration=Mixture(0.3)).probabilities(row)
    assert mixed.min() >= 0.1
    assert mixed.sum() == 1


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_votes_are_counted_as_a_plain_loop_counts_them(rounds, arms, members, seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 3, (rounds, arms, members)).astype(float)
    present = rng.random((rounds, arms)) < 0.7
    present[:, 0] = True
    values[~present] = np.nan
    means = values.mean(axis=2)
    joint = (values - means[:, :, None]) / np.sqrt(max(members - 1, 1))
    votes = MemberVotes().probabilities(ArmScores(means, np.zeros_like(means), np.full(rounds, 1e-9), joint))
    for i in range(rounds):
        expected = np.zeros(arms)
        for m in range(members):
            best = [k for k in range(arms) if present[i, k] and values[i, k, m] == np.nanmax(values[i, :, m])]
            expected[best] += 1 / len(best) / members
        assert votes[i] == pytest.approx(expected)


def test_before_any_reward_all_arms_are_alike():
    for name, make in MAKERS.items():
        assert make(OnDemand()).probabilities(contexts()[0]) == pytest.approx([1 / 3] * 3), name


def test_an_arm_without_data_is_explored_with_artificial_rows_and_not_without():
    row, found = np.array([[0.0], [1.0], [2.0]]), {}
    for prior in (0, 10):
        policy = EnsemblePolicy(TREE, 1, OnDemand(), members=30, prior=prior, seed=0)
        for t in range(20):
            decision = policy.select(row, [t % 2 == 0, t % 2 == 1, False])
            policy.observe(decision, [0.5, 0.4][decision.arm] + 0.02 * (-1) ** (t // 2))
        policy.select([row] * 30)  # the third arm is offered, and no reward of it arrives
        policy.update()
        found[prior] = policy.probabilities(row)[2]
    assert found[0] == 0
    assert found[10] > 0.05


def test_deviations_of_one_model_are_the_bonuses():
    row = contexts(seed=5)[0]
    policy = taught(GaussianProcessRegressor(RBF() + WhiteKernel(), normalize_y=True), members=None, beta=0.5)
    mean, deviation = policy._learner.models[0].predict(row, return_std=True)
    assert policy.score(row).means == pytest.approx(mean)
    assert policy.score(row).bonuses == pytest.approx(0.5 * deviation)
    assert policy.updates[0].noise is policy.updates[0].unexplored is None


def test_one_model_is_trained_on_all_rows_and_with_their_weights():
    for forgetting in (None, Window(8), Discount(0.7)):
        policy = taught(LinearRegression(), members=1, forgetting=forgetting)
        _, x, y, weights = policy.history.samples()
        plain = LinearRegression().fit(x, y, sample_weight=weights)
        row = contexts(seed=5)[0]
        assert policy.score(row).means == pytest.approx(plain.predict(row))
        assert policy.score(row).bonuses == pytest.approx(0)
        assert np.isin(policy.probabilities(row), (0, 1)).all()


def test_resamples_follow_the_weights():
    forgetful = taught(Odd(), rounds=24, members=60, prior=0, forgetting=Discount(0.5))
    _, _, y, weights = forgetful.history.samples()
    means = [model.mean_ for model in forgetful._learner.models]
    assert np.mean(means) == pytest.approx(np.average(y, weights=weights), abs=3 * np.std(means) / np.sqrt(60) + 1e-9)
    window = taught(Odd(), rounds=24, members=30, prior=0, forgetting=Window(1))
    assert {model.mean_ for model in window._learner.models} == {window.history.rewards[-1]}


def test_noise_is_judged_by_members_that_were_not_trained_on_the_row():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    tree = EnsemblePolicy.from_log(x, rng.normal(size=400), estimator=DecisionTreeRegressor(), seed=0)
    assert tree.updates[0].noise > 0.9  # on their own rows such trees are right to the last digit
    assert tree.dim == 2


# --- schedules and lives


@pytest.mark.parametrize("schedule", [FixedGrid(24, 4), Paced(24, 6), Budget(EveryRound(), 5), AtRounds([3, 9])])
def test_it_plays_under_schedules(schedule):
    policy = EnsemblePolicy(TREE, 2, schedule, members=3, seed=0)
    play(policy, contexts())
    assert policy.version == (schedule.batches or 3) - 1


def test_a_trigger_by_det_z_is_refused():
    for schedule in (DeterminantTrigger(24, 4, 1.0), Budget(DeterminantTrigger(24, 4, 1.0), 3)):
        with pytest.raises(InvalidSchedule, match="no det Z that could trigger updates; use Paced"):
            EnsemblePolicy(TREE, 2, schedule)
    assert EnsemblePolicy(TREE, 2).schedule.schedule == EveryRound()


def test_a_seed_gives_the_same_members_and_others_give_others():
    row = contexts(seed=5)
    forest = ExtraTreesRegressor(3, random_state=0)
    one, again, other = (taught(forest, seed=seed) for seed in (1, 1, 2))
    assert one.fingerprint() == again.fingerprint()
    assert np.array_equal(one.score(row).means, again.score(row).means)
    assert not np.array_equal(one.score(row).means, other.score(row).means)
    seeds = [model.random_state for model in one._learner.models]
    assert len(set(seeds)) == len(seeds)
    nested = taught(make_pipeline(StandardScaler(), forest))
    assert len({model[-1].random_state for model in nested._learner.models}) == 4


@pytest.mark.parametrize("call", ["update", "select"])
def test_an_interrupt_changes_nothing(call):
    origin = taught()
    origin.observe(origin.select(contexts(seed=2)[0]), 0.5)

    def run(policy):
        return policy.update() if call == "update" else policy.select(contexts(seed=3)[0])

    origin.extend_budget(3, reason="to be interrupted")
    finished, before = copy.deepcopy(origin), origin.fingerprint()
    lines = lines_of(lambda: run(finished))
    for stop in range(1, lines - 4, max(1, lines // 12)):
        policy = copy.deepcopy(origin)
        lines_of(lambda policy=policy: run(policy), stop)
        assert policy.fingerprint() == before, stop


@pytest.mark.parametrize("layout", ["shared", "bilinear"])
def test_a_roster_of_content_arms_changes_between_rounds(layout):
    roster = Roster(ArmBlocks(None, Affine.identity(1), layout, features=Affine.identity(2)))
    for i in range(2):
        roster.open(f"article {i}", features=[i, 1.0])
    policy = EnsemblePolicy(TREE, schedule=OnDemand(), members=3, seed=0, **roster.settings)
    for day in range(3):
        decision = policy.select(*roster(contexts(seed=day)[:6, 0, :1]))
        policy.observe(decision, [float(roster.name_of(one) == "article 1") for one in decision])
        policy.update()
        roster.open(f"article {day + 2}", features=[day + 2, 1.0])
        roster.close(f"article {day}")
    assert policy.version == 3
    assert roster.name_of(policy.select(*roster([0.5]))) in roster.names


def test_a_frame_policy_holds_it(tmp_path):
    users = {"age": [20, 30, 40, 50], "town": ["Ulm", "Bonn", "Ulm", "Bonn"]}
    items = [{"name": "tea", "price": 3.0}, {"name": "rum", "price": 9.0}]
    for layout in ("shared", "bilinear"):
        policy = FramePolicy.fit(
            EnsemblePolicy, users, items, layout=layout, estimator=TREE, schedule=OnDemand(), members=3, seed=0
        )
        policy.observe(policy.select(users, items), [0, 1, 0, 1])
        assert policy.update().accepted
        policy.save(tmp_path / "policy.rarely")
        assert rarely.load(tmp_path / "policy.rarely").fingerprint() == policy.fingerprint()


def test_a_study_replays_it(tmp_path):
    policy = MAKERS["bootstrap"](FixedGrid(24, 4))
    with Study.create(f"sqlite:///{tmp_path}/study.db", "colours", policy=policy, arms=list("abc")) as study:
        for i in range(12):
            answer = study.ask(contexts(seed=9)[i], id=f"visit-{i}")
            study.tell(answer.id, float(answer.index))
            if study.due:
                study.update()
    with Study.open(f"sqlite:///{tmp_path}/study.db", "colours") as study:
        again = study.replay()
        assert again.equal
        assert [training.equal for training in again.trainings] == [True] * 2
        assert study.verify().whole


# --- gaps and categories


def gappy(seed=0, rounds=20):
    stream = contexts(seed=seed, rounds=rounds)
    stream[np.random.default_rng(seed).random(stream.shape) < 0.3] = np.nan
    return stream


@pytest.mark.parametrize(
    "estimator",
    [HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=2), make_pipeline(SimpleImputer(), Ridge())],
    ids=["boosting", "pipeline"],
)
def test_missing_numbers_are_the_estimators_own_affair(estimator, tmp_path):
    missing = None if isinstance(estimator, HistGradientBoostingRegressor) else True
    policy = EnsemblePolicy(estimator, 2, AtRounds([20]), members=3, missing=missing, seed=0)
    decision = policy.select(gappy())
    policy.observe(decision, np.arange(20.0))
    assert policy.update().accepted
    assert np.isfinite(policy.select(gappy(3)).means).all()
    policy.save(tmp_path / "policy.rarely")
    again = rarely.load(tmp_path / "policy.rarely")
    assert again.fingerprint() == policy.fingerprint()
    assert np.array_equal(again.select(gappy(4)).arm, policy.select(gappy(4)).arm)
    with pytest.raises(InvalidContexts, match="must be finite; arm 1 of round 0 of the call has inf in column 0"):
        policy.select([[0.0, np.nan], [np.inf, 0.0]])
    x = gappy()[:, 0]
    assert EnsemblePolicy.from_log(x, np.arange(20.0), estimator=estimator, missing=missing, members=2).version == 0


def test_missing_numbers_are_refused_where_the_estimator_does_not_take_them():
    with pytest.raises(InvalidContexts, match="fill in missing numbers before"):
        taught(LinearRegression()).select(gappy())
    with pytest.raises(InvalidContexts, match="logged contexts must be finite"):
        EnsemblePolicy.from_log(gappy()[:, 0], np.arange(20.0), estimator=LinearRegression())
    with pytest.raises(InvalidContexts, match="logged contexts must be finite"):
        EnsemblePolicy.from_log([[np.inf]], [1.0], estimator=TREE)


def test_categories_are_columns_of_codes():
    codes = np.array([[[k, 0.0] for k in range(4)]] * 80, float)
    boosting = HistGradientBoostingRegressor(max_iter=30, min_samples_leaf=2, categorical_features=[0])
    policy = EnsemblePolicy(boosting, 2, AtRounds([80]), members=4, seed=0)
    decision = policy.select(codes)
    policy.observe(decision, (decision.arm == 2).astype(float))
    policy.update()
    assert policy.probabilities(codes[0])[2] == 1


# --- refusals


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"estimator": TREE.__class__}, "must be what sklearn.base.clone copies"),
        ({"estimator": object()}, "must be what sklearn.base.clone copies"),
        ({"estimator": StandardScaler()}, "must be a regressor, with fit and predict"),
        ({"estimator": LogisticRegression()}, "must be a regressor"),
        ({"members": 0}, "members must be a whole number of at least 1"),
        ({"members": None}, r"a single DecisionTreeRegressor must have predict\(…, return_std=…\)"),
        ({"estimator": KNeighborsRegressor(), "members": 1, "forgetting": Discount(0.9)}, "sample_weight"),
        ({"beta": -1.0}, "beta must be, or return, a finite number"),
        ({"prior": -1}, "prior must be a whole number"),
        ({"context_scale": SparseRows.of(columns=9, nonzeros=1)}, "needs dense contexts"),
        ({"limits": Limits(arms=3)}, "limits.arms must be left out"),
        ({"exploration": 0.1}, "exploration must be a Mixture"),
        ({"member": 3}, "unknown argument 'member'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        EnsemblePolicy(**{"estimator": TREE, "dim": 2} | arguments)


def test_a_covariance_is_refused():
    with pytest.raises(InvalidInput, match="no covariance whose form could change"):
        taught().with_covariance("diagonal")


class Duck:
    """A regressor that knows nothing of scikit-learn: its `fit` returns nothing, and writes into what it is given."""

    def __init__(self, power=1):
        self.power = power

    def get_params(self, deep=True):
        return {"power": self.power}

    def set_params(self, **params):
        self.__dict__ |= params
        return self

    def fit(self, x, y):
        self.weights = np.linalg.lstsq(x**self.power, y, rcond=None)[0]
        x *= 0
        y *= 0

    def predict(self, x):
        return list(x**self.power @ self.weights)


@pytest.mark.parametrize("members", [1, 3])
def test_a_regressor_that_knows_nothing_of_scikit_learn(members, tmp_path):
    policy = taught(Duck(), members=members)
    learner = policy._state.current.learner
    assert policy.version == 1
    np.testing.assert_array_equal(learner.rewards, policy.history.rewards)
    policy.save(tmp_path / "p")
    with pytest.raises(SnapshotError, match=r"got Duck\. Give the estimator: load\(path, model=estimator\)"):
        rarely.load(tmp_path / "p")
    again = rarely.load(tmp_path / "p", model=Duck())
    np.testing.assert_array_equal(again.score(contexts()[:3]).means, policy.score(contexts()[:3]).means)


@pytest.mark.parametrize("answer", ["column", "short", "two"])
def test_predictions_of_another_shape_are_refused(answer):
    policy = EnsemblePolicy(Odd(answer), 2, AtRounds([4]), seed=0)
    policy.observe(policy.select(contexts()[:4]), np.arange(4.0))
    before = policy.fingerprint()
    with pytest.raises(InvalidInput, match=r"Odd must predict one number a row, an array of shape \(4,\); got"):
        policy.update()
    assert policy.fingerprint() == before


def test_predictions_that_are_not_finite_reject_a_training_and_refuse_a_decision():
    policy = EnsemblePolicy(Odd("nan"), 2, AtRounds([4]), seed=0)
    policy.observe(policy.select(contexts()[:4]), np.arange(4.0))
    with pytest.warns(RejectedWarning, match="Odd could not be trained on 4 rewards: it predicts numbers that are not"):
        assert not policy.update().accepted
    assert policy.version == 0
    later = taught(Odd("later"))
    before = later.fingerprint()
    with pytest.raises(InvalidInput, match="Odd must predict finite numbers; got inf"):
        later.select(contexts()[0])
    assert later.fingerprint() == before


def test_an_exception_in_fit_leaves_the_policy_as_it_was():
    policy = EnsemblePolicy(Odd("raise"), 2, AtRounds([4]), seed=0)
    policy.observe(policy.select(contexts()[:4]), np.arange(4.0))
    before = policy.fingerprint()
    with pytest.raises(OSError, match="the disk is full"):
        policy.update()
    assert policy.fingerprint() == before


def test_too_few_rows_reject_an_update_and_the_next_one_succeeds():
    policy = EnsemblePolicy(KNeighborsRegressor(5), 2, AtRounds([2, 20]), members=2, prior=0, seed=0)
    with pytest.warns(RejectedWarning, match="KNeighborsRegressor could not be trained on 2 rewards"):
        play(policy, contexts(rounds=20))
    assert [record.accepted for record in policy.updates] == [False, True]
    with pytest.raises(TrainingRejected, match="KNeighborsRegressor could not be trained on 3"):
        EnsemblePolicy.from_log(np.ones((3, 1)), np.ones(3), estimator=KNeighborsRegressor(5), prior=0)


# --- files


COMPOSED = VotingRegressor([("near", KNeighborsRegressor(2)), ("line", make_pipeline(StandardScaler(), Ridge(0.5)))])


@pytest.mark.parametrize(
    "estimator",
    [
        TREE,
        COMPOSED,
        make_pipeline(SimpleImputer(), Ridge()),
        GaussianProcessRegressor(RBF(0.5, (0.1, 10.0)) + WhiteKernel()),
        StackingRegressor([("ridge", Ridge())], cv=2),
        make_pipeline(MinMaxScaler((-1, 1)), RobustScaler(quantile_range=(10.0, 90.0)), Ridge()),
        ColumnTransformer([("first", StandardScaler(), [0])], remainder="passthrough"),
    ],
    ids=["tree", "composed", "imputer", "gaussian", "stacked", "tuples", "columns"],
)
def test_a_file_makes_the_same_estimator_and_the_same_members(estimator, tmp_path):
    estimator = estimator if hasattr(estimator, "predict") else make_pipeline(estimator, Ridge())
    policy = taught(estimator)
    policy.save(tmp_path / "policy.rarely")
    again = rarely.load(tmp_path / "policy.rarely")
    assert described(made(described(estimator))) == described(estimator)
    assert again.settings()["estimator"] == policy.settings()["estimator"]
    row = contexts(seed=5)
    assert np.array_equal(again.score(row).means, policy.score(row).means)
    assert again.updates[0].noise == policy.updates[0].noise == again._learner.noise
    assert pickle.loads(pickle.dumps(policy)).fingerprint() == again.fingerprint() == policy.fingerprint()


def test_an_estimator_that_no_file_may_make_is_given(tmp_path):
    estimator = TransformedTargetRegressor(Ridge(), func=np.arcsinh, inverse_func=np.sinh, check_inverse=False)
    policy, path = taught(estimator), tmp_path / "policy.rarely"
    policy.save(path)
    with pytest.raises(SnapshotError, match=r"got TransformedTargetRegressor\(func=…\)\. Give the estimator"):
        rarely.load(path)
    assert rarely.load(path, model=estimator).fingerprint() == policy.fingerprint()
    with pytest.raises(SnapshotError, match=r"holds a policy whose estimator is .* got .*Ridge"):
        rarely.load(path, model=Ridge())
    with pytest.raises(SnapshotError, match=r"must be what sklearn\.base\.clone copies"):
        rarely.load(path, model="Ridge")


PIPELINE = {"class": "sklearn.pipeline:Pipeline", "steps": [["r", {"class": "sklearn.linear_model._ridge:Ridge"}]]}
LIGHTGBM = {"class": "lightgbm.sklearn:LGBMRegressor", "n_estimators": 2}


@pytest.mark.parametrize(
    ("description", "named"),
    [
        *(({"class": name}, "got") for name in ("os:system", "nowhere:Tree", "sklearn.base:clone", "", 3)),
        ({"class": f"{Odd.__module__}:Odd"}, "got Odd"),
        ({"class": "sklearn.feature_extraction.text:CountVectorizer", "input": "filename"}, "got CountVectorizer"),
        (PIPELINE | {"memory": "cache"}, r"got Pipeline\(memory"),
        (LIGHTGBM | {"machines": "127.0.0.1:12400", "num_machines": 2}, r"got LGBMRegressor\(machines"),
        (LIGHTGBM | {"forcedsplits_filename": "x"}, r"got LGBMRegressor\(forcedsplits_filename"),
        (LIGHTGBM | {"objective": "regression machines=127.0.0.1:12400"}, "got objective = 'regression machines"),
        (LIGHTGBM | {"callbacks": [PIPELINE]}, r"got LGBMRegressor\(callbacks"),
        ({"class": "sklearn.linear_model._ridge:Ridge", "alpha": {"text": "ufunc"}}, "got alpha = ufunc"),
        ({"class": "sklearn.ensemble._forest:RandomForestRegressor", "n_estimators": 10**9}, "got n_estimators = 1000"),
        ({"class": "sklearn.neural_network:MLPRegressor", "hidden_layer_sizes": {"tuple": [5000]}}, "sizes = 5000"),
    ],
)
def test_a_file_makes_none_but_harmless_estimators(description, named):
    with pytest.raises(InvalidInput, match=f"a file alone makes estimators .*{named}"):
        EnsemblePolicy(description, 2)


def test_a_file_neither_unpickles_nor_writes(tmp_path, monkeypatch):
    """A pipeline with a folder for a cache, which would write into it and unpickle what lies there."""
    monkeypatch.chdir(tmp_path)
    policy = taught(make_pipeline(StandardScaler(), Ridge(), memory="cache"), members=1)
    shutil.rmtree("cache")
    policy.save("policy.rarely")
    with pytest.raises(SnapshotError, match=r"Pipeline\(memory=…\)"):
        rarely.load("policy.rarely")
    assert os.listdir() == ["policy.rarely"]


def test_no_harmless_parameter_names_a_place_or_a_function():
    """Of scikit-learn's classes that a file may have made, these parameters are left out."""
    left_out = set()
    for module, kinds in FROM_FILES.items():
        if module.startswith("sklearn"):
            signatures = [inspect.signature(getattr(importlib.import_module(module), kind)) for kind in kinds.split()]
            left_out |= {name for each in signatures for name in each.parameters} - set(HARMLESS.split())
    functions = {"func", "inverse_func", "dtype", "feature_name_combiner", "init", "scoring"}
    dicts = {"metric_params", "kernel_params", "solver_options", "transformer_weights"}
    assert left_out <= functions | dicts | {"memory", "transform_input"}
    effects = r"file|path$|dir|machine|_port|call|func$|memory|^input|^output_(model|result)|snapshot|^nodes|^data"
    assert not [word for word in HARMLESS.split() if re.search(effects, word)]


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("prior", 10**9, "must hold 10 in learner.prior, as in its settings, not 1000000000"),
        ("prior", 10.0, "must hold 10 in learner.prior"),
        ("members", 10**6, "must hold 4 in learner.members"),
        ("dim", 3, "must hold 2 in learner.dim"),
        ("takes_missing", False, "must hold True in learner.takes_missing"),
        ("entropy", -1, "a whole number from 0 to 2⁶³ in learner.entropy"),
        ("fits", "1", "must hold a number in learner.fits"),
        ("fits", 0, "must hold rows of one length and width"),
        ("reward_spread", 0.0, "a positive learner.reward_spread"),
        ("reward_spread", "a", "must hold a number in learner.reward_spread"),
        ("weights", np.full(20, 1e12), "weights in (0, 1]"),
        ("rewards", np.zeros(3), "rows of one length and width"),
        ("errors", np.zeros(3), "rows of one length and width"),
        ("contexts", np.zeros((20, 3)), "rows of one length and width"),
        ("seen", np.zeros((4, 3)), "rows of one length and width"),
        ("offered", np.zeros((513, 2)), "rows of one length and width"),
    ],
)
def test_a_forged_field_is_refused_before_anything_is_trained(field, value, sentence, tmp_path, monkeypatch):
    from rarely._core.saving import archive

    header, arrays = taught()._content()
    if isinstance(value, np.ndarray):
        arrays |= {f"learner.{field}": value}
    else:
        header["learner"] |= {field: value}
    archive.write(tmp_path / "policy.rarely", header, arrays)
    monkeypatch.setattr(DecisionTreeRegressor, "fit", lambda *_: pytest.fail("something was trained"))
    with pytest.raises(SnapshotError, match=re.escape(sentence)):
        rarely.load(tmp_path / "policy.rarely")


def test_an_estimator_that_does_not_train_is_a_damaged_file(tmp_path, monkeypatch):
    taught().save(tmp_path / "policy.rarely")

    def failing(*_, **__):
        raise MemoryError("too large")

    monkeypatch.setattr(DecisionTreeRegressor, "fit", failing)
    with pytest.raises(SnapshotError, match="DecisionTreeRegressor that could not be trained again: MemoryError"):
        rarely.load(tmp_path / "policy.rarely")


def test_a_training_that_turns_out_otherwise_is_announced(tmp_path):
    policy = taught(Drawn())
    policy.save(tmp_path / "policy.rarely")
    with pytest.warns(SnapshotWarning, match=r"Drawn was trained again, and predicts up to 0\.\d+"):
        rarely.load(tmp_path / "policy.rarely", model=Drawn())


def test_scikit_learn_that_is_missing_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(InvalidInput, match=r"EnsemblePolicy needs scikit-learn: pip install '\.\[ensembles\]'"):
        EnsemblePolicy(TREE, 2)

"""Any regressor with `fit` and `predict` as a policy, unsure where members trained on resamples disagree.

    f_m   (n, M)   what member m predicts      f̄       (n,)   the mean of the members
    φ     (n, M)   (f_m − f̄)/√(M−1)            bonus   (n,)   β·‖φ‖, β times the deviation among the members

Thompson sampling draws one member for all arms of a round: an arm's probability is the share of the members by whose
f̄ + β(f_m − f̄) it is the best. Where the model itself predicts deviations, there is one member, and φ is its deviation.

Resamples say nothing of arms that were never chosen: members agree about them. So each also gets a few artificial
rows, contexts that were offered lately with rewards drawn from those that came (Osband and Van Roy, 2015).
"""

from __future__ import annotations

import inspect
import math
import re
import tomllib
import warnings
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from rarely.extend import (
    DEFAULT_HISTORY,
    UNWATCHED,
    ArmScores,
    Array,
    Arrays,
    Beta,
    ChoiceRule,
    ContextMap,
    ContextScale,
    DeterminantTrigger,
    Discount,
    EveryRound,
    Factors,
    Fields,
    FitResult,
    Forgetting,
    History,
    Learner,
    Limits,
    Mixture,
    NoCovarianceFactory,
    Policy,
    Schedule,
    Seed,
    SparseRows,
    Thompson,
    Watch,
    Widths,
    limits_from,
    seeded,
)
from rarely.extend.checks import (
    InvalidInput,
    InvalidSchedule,
    SnapshotError,
    SnapshotWarning,
    check_flag,
    check_whole,
    shown,
)
from rarely.extend.provisional import MODELS, forwarded, saved_fields

OFFERED = 512  # contexts that artificial rows are drawn from, the latest ones of all arms
MOST = 10_000  # members, artificial rows of each, and what a whole number of an estimator in a file may be, at most
_ALLOWED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
FROM_FILES: dict[str, str] = _ALLOWED["from_files"]
"""Classes that a file may have made, by their modules: training them writes nothing and connects to nothing."""
HARMLESS: str = _ALLOWED["harmless"]
"""Parameters that a file may give them: none names a file, a folder, a machine or a function."""
LARGEST: dict[str, int] = _ALLOWED["largest"]
"""Whole numbers that a parameter in a file may be, at most, where that is not `MOST`."""


@dataclass(frozen=True, slots=True)
class MemberVotes(ChoiceRule):
    """Each arm as often as it is the best for a member of the ensemble; a member's tie is shared equally."""

    draws: bool = True
    joint: bool = True

    def probabilities(self, scores: ArmScores) -> Array:
        assert scores.joint is not None
        values = scores.means[:, :, None] + np.sqrt(max(scores.joint.shape[2] - 1, 1)) * scores.joint
        best = values >= (np.fmax.reduce(values, axis=1) - scores.tolerance[:, None])[:, None]
        return np.asarray((best / best.sum(axis=1, keepdims=True)).mean(axis=2))


@dataclass(frozen=True, eq=False)
class EnsembleLearner(Learner):
    """Clones of an estimator, each trained on a resample; or one that predicts deviations, if `members` is None.

    A file holds what they were trained on, and `errors`, (n,): each reward less what the members predict that were not
    trained on it, or all of them if all were. `seen` are the latest contexts of all arms, and `offered` those of them
    that artificial rows were drawn from.
    """

    estimator: Any
    scale: ContextMap
    members: int | None
    prior: int
    entropy: int
    contexts: Array
    offered: Array
    seen: Array
    rewards: Array
    weights: Array
    errors: Array
    takes_missing: bool = False
    models: tuple[Any, ...] = ()
    """The trained members; none before the first update, where every arm is as good as another."""
    fits: int = 0
    dim: int = 0
    widths: Widths = ()
    reward_spread: float = 1.0
    rebuilds: bool = False

    @property
    def _name(self) -> str:
        return type(self.estimator).__name__

    @property
    def noise(self) -> float | None:
        judged = len(self.errors) and (self.members or 0) > 1
        return float(np.sqrt(np.mean(np.square(self.errors)))) if judged else None

    def observe_contexts(self, contexts: Array, rounds: int) -> EnsembleLearner:
        return replace(self, seen=np.concatenate((self.seen, contexts))[-OFFERED:])

    def merge_scale(self, other: Learner) -> EnsembleLearner:
        assert isinstance(other, EnsembleLearner)
        return replace(self, seen=other.seen)

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        values = self._predictions(contexts) if self.models else np.zeros((len(contexts), self.members or 2))
        if not np.isfinite(values).all():
            bad = values[~np.isfinite(values)][0]
            raise InvalidInput(f"{self._name} must predict finite numbers; got {bad}. Scale contexts or rewards.")
        means, features = values[:, 0], values[:, 1:]
        if self.members is not None:
            means = values.mean(axis=1)
            features = (values - means[:, None]) / np.sqrt(max(self.members - 1, 1))
        return means, Factors((features,), (np.ones((len(values), 1)),))

    def _predictions(self, contexts: Array) -> Array:
        """Return f_m of every context, (n, M); or mean and deviation, (n, 2)."""
        how, rows, columns = {"return_std": True} if self.members is None else {}, self.scale(contexts), []
        for model in self.models:
            predicted = model.predict(rows, **how)
            columns += [np.asarray(each, np.float64) for each in (predicted if how else (predicted,))]
        if any(each.shape != (len(rows),) for each in columns):
            right, got = f"an array of shape ({len(rows)},)", columns[-1].shape
            raise InvalidInput(f"{self._name} must predict one number a row, {right}; got {got}.")
        return np.stack(columns, axis=1)

    def learn(self, history: History, watch: Watch = UNWATCHED) -> FitResult:
        _, contexts, rewards, weights = history.samples()
        if not len(rewards):
            return FitResult(self)
        weights = np.ones(len(rewards)) if weights is None else weights
        ready = replace(self, contexts=contexts, rewards=rewards, weights=weights, offered=self.seen)
        ready = replace(ready, fits=self.fits + 1, reward_spread=float(np.std(rewards)) or 1.0)
        try:
            return FitResult(ready._trained(watch))
        except InvalidInput:
            raise
        except ValueError as error:  # how estimators say that rows are too few for them
            return FitResult(self, f"{self._name} could not be trained on {len(rewards)} rewards: {error}")

    def _trained(self, watch: Watch = UNWATCHED) -> EnsembleLearner:
        """Return the learner with members trained on its rows."""
        models, count, size = [], len(self.rewards), max(1, round(self.weights.sum()))
        judges = np.zeros((count, self.members or 1), np.bool_)  # which members were not trained on a row
        for member in range(judges.shape[1]):
            rng = np.random.default_rng((self.entropy, self.fits, member))
            x, y = self.contexts, self.rewards
            weighing = {} if (self.weights == 1).all() else {"sample_weight": self.weights}
            if judges.shape[1] > 1:
                more = self.prior if len(self.offered) else 0
                rows = rng.choice(count, size + more, p=self.weights / self.weights.sum())
                artificial = self.offered[rng.integers(max(len(self.offered), 1), size=more)]
                x, y, weighing = np.concatenate((x[rows[:size]], artificial)), y[rows], {}
                judges[:, member] = np.bincount(rows[:size], minlength=count) == 0
            models.append(clone(self.estimator, rng))
            models[-1].fit(self.scale(x), y.copy(), **weighing)  # which may return another thing, or change y
            watch.step()
        trained = replace(self, models=tuple(models))
        values = trained._predictions(self.contexts)
        if not np.isfinite(values).all():
            raise ValueError("it predicts numbers that are not finite")
        judges |= ~judges.any(axis=1, keepdims=True)
        return replace(trained, errors=self.rewards - np.average(values[:, : judges.shape[1]], axis=1, weights=judges))

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return saved_fields(self)  # the others are its policy's settings

    def restored(self, saved: Fields) -> EnsembleLearner:
        other = super().restored(saved)
        other._check_fields(self)
        try:
            trained = other._trained() if other.fits else other
        except Exception as error:  # whatever a package raises for parameters that did not train these rows
            text = f"holds a {self._name} that could not be trained again: {type(error).__name__}: {error}."
            raise SnapshotError(text) from error
        off = np.abs(trained.errors - other.errors).max(initial=0)
        if off <= 1e-9 * other.reward_spread:  # threads may add in another order
            return replace(trained, errors=other.errors)
        why = "its package has another version, or its training is not deterministic"
        text = f"{self._name} was trained again, and predicts up to {off:.3g} otherwise: {why}."
        warnings.warn(text, SnapshotWarning, stacklevel=2)
        return trained

    def _check_fields(self, made: EnsembleLearner) -> None:
        """Raise SnapshotError unless the fields of a file fit `made`, which has its settings, and one another."""
        for name in ("members", "prior", "dim", "takes_missing", "rebuilds"):
            if (saved := getattr(self, name)) != (wanted := getattr(made, name)) or type(saved) is not type(wanted):
                raise SnapshotError(f"must hold {wanted!r} in learner.{name}, as in its settings, not {shown(saved)}.")
        for name in ("entropy", "fits"):
            if not isinstance(value := getattr(self, name), int) or not 0 <= value < 2**63:
                raise SnapshotError(f"must hold a whole number from 0 to 2⁶³ in learner.{name}, not {shown(value)}.")
        count, offered = len(self.rewards), (self.offered, self.seen)
        fits = self.contexts.shape == (count, made.dim) and len(self.weights) == len(self.errors) == count
        fits &= all(len(rows) <= OFFERED and rows.shape[1] == made.dim for rows in offered)
        if not fits or bool(self.fits) != bool(count):
            raise SnapshotError("must hold rows of one length and width in learner.*, those that it was trained on.")
        finite = np.isfinite(self.rewards).all() and np.isfinite(self.errors).all()
        if not (finite and 0 < self.reward_spread < math.inf and ((self.weights > 0) & (self.weights <= 1)).all()):
            raise SnapshotError(
                "must hold finite rewards and errors, weights in (0, 1] and a positive learner.reward_spread."
            )


class EnsemblePolicy(Policy):
    """A regressor of scikit-learn, LightGBM, XGBoost or your own, under any schedule but a `DeterminantTrigger`.

    Before the first update all arms have the same probability. A training that raises ValueError, as with too few rows,
    is rejected. The deviation among members is no confidence bound: it shows how much the training depends on the rows,
    not what all members get wrong alike. `UpdateRecord.coverage` says how often rewards lay in the intervals. A file
    holds rows, parameters and seed, without pickle: `load` trains the same members again. Alone it makes estimators of
    scikit-learn, LightGBM and XGBoost with harmless parameters; any other is given, `load(path, model=estimator)`.

    Parameters
    ----------
    estimator
        What `sklearn.base.clone` can copy. Every `random_state` in it is set from the policy's seed.
    members
        M models trained on resamples. 1 is one model of all rows. None is one that has `predict(x, return_std=True)`,
        such as a Gaussian process or `BayesianRidge`; its deviation may include the noise.
    beta
        β, the factor of the deviations. 0 is greedy, and with `exploration=Mixture(0.1)` ε-greedy.
    prior
        Artificial rows of each member, by which it explores arms that are hardly known.
    missing
        Whether contexts may have NaN. None asks the estimator; a `Pipeline` that fills in gaps needs True.
    dim, schedule, context_scale, exploration, forgetting, seed, limits
        As in `LinUCB`. A `Discount` weights the resamples; of one model, `fit` must take `sample_weight`.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from rarely import EnsemblePolicy, FixedGrid
    >>> policy = EnsemblePolicy(Ridge(), dim=1, schedule=FixedGrid(horizon=20, batches=2), seed=0)
    >>> decision = policy.select([[[0.0], [1.0]]] * 10)
    >>> policy.observe(decision, decision.arm)
    >>> policy.update().accepted, policy.probabilities([[0.0], [1.0]])
    (True, array([0., 1.]))
    """

    def __init__(
        self,
        estimator: Any,
        dim: int,
        schedule: Schedule | None = None,
        *,
        members: int | None = 10,
        beta: Beta = 1.0,
        prior: int = 10,
        missing: bool | None = None,
        context_scale: ContextMap | None = None,
        exploration: Mixture | ChoiceRule | None = None,
        forgetting: Forgetting | None = None,
        seed: Seed = None,
        limits: Limits | None = None,
    ) -> None:
        check_whole("dim", dim, 1)
        check_whole("members", members, 1, besides=(None,))
        check_whole("prior", prior, 0)
        if max(members or 1, prior) > MOST:
            raise InvalidInput(f"members and prior must be at most {MOST}; got {members} and {prior}.")
        model = clone(made(estimator) if isinstance(estimator, dict) else estimator)
        schedule = EveryRound() if schedule is None else schedule
        if isinstance(getattr(schedule, "schedule", schedule), DeterminantTrigger):
            raise InvalidSchedule("a regressor has no det Z that could trigger updates; use Paced or another schedule.")
        if isinstance(context_scale, SparseRows):
            raise InvalidInput("a regressor needs dense contexts; got the settings of SparseRows.")
        if members is None:
            check_takes(model, "predict", "return_std")
        if isinstance(forgetting, Discount) and members in (None, 1):
            check_takes(model, "fit", "sample_weight")
        if missing is None:
            missing = hasattr(model, "__sklearn_tags__") and bool(model.__sklearn_tags__().input_tags.allow_nan)
        check_flag("missing", missing)
        scale = ContextScale.start(dim, context_scale, constant=False, fitted=False).map
        settings = {
            "estimator": described(model), "dim": dim, "schedule": schedule, "members": members, "beta": beta,
            "prior": prior, "missing": missing, "context_scale": context_scale, "exploration": exploration,
            "forgetting": forgetting,
        }  # fmt: skip
        seeds, table, column = seeded(seed), np.empty((0, dim)), np.empty(0)
        parts = (model, scale, members, prior, int(seeds.generator.integers(2**63)), *(table,) * 3, *(column,) * 3)
        super().__init__(
            EnsembleLearner(*parts, missing, dim=dim, widths=((1, members or 1),)),
            settings,
            Thompson(lowest=False) if members is None else MemberVotes(),
            limits=limits_from(limits, self, ("operations", "arms"), DEFAULT_HISTORY),
            seed=seeds,
            factory=NoCovarianceFactory,
        )

    model = forwarded("_learner.estimator", "The estimator, as `load(path, model=…)` takes it.")


# --- regressors from outside


def clone(estimator: Any, rng: np.random.Generator | None = None) -> Any:
    """Return an unfitted copy of a regressor; with a generator, every seed in it and in its parts is drawn."""
    try:
        base: Any = import_module("sklearn.base")
    except ImportError:
        raise InvalidInput("EnsemblePolicy needs scikit-learn: pip install '.[ensembles]' in the checkout.") from None
    try:
        copy = base.clone(estimator)
        names = [name for name in sorted(copy.get_params()) if name.endswith(("random_state", "random_seed"))]
        copy.set_params(**{name: int(rng.integers(2**31 - 1)) for name in names if rng is not None})
    except (TypeError, RuntimeError, AttributeError, ValueError) as error:
        raise InvalidInput(f"estimator must be what sklearn.base.clone copies; it failed: {error}") from error
    if not hasattr(type(copy), "predict") or (hasattr(copy, "__sklearn_tags__") and base.is_classifier(copy)):
        raise InvalidInput(f"estimator must be a regressor, with fit and predict; got {type(copy).__name__}.")
    return copy


def check_takes(estimator: Any, method: str, argument: str) -> None:
    """Raise InvalidInput unless a method has an argument of that name, or hands on any."""
    taken = inspect.signature(getattr(estimator, method)).parameters
    if argument not in taken and all(each.kind is not each.VAR_KEYWORD for each in taken.values()):
        name = type(estimator).__name__
        raise InvalidInput(f"a single {name} must have {method}(…, {argument}=…), and has not. Use several members.")


def described(value: Any) -> Any:
    """Return a parameter as JSON; of an object with `get_params`, its class and what is not as usual."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, list | tuple):
        parts = [described(part) for part in value]
        return {"tuple": parts} if isinstance(value, tuple) else parts
    if not hasattr(value, "get_params") or isinstance(value, type):
        return value if isinstance(value, bool | int | float | str | None) else {"text": type(value).__name__}
    usual = {name: repr(each.default) for name, each in inspect.signature(type(value)).parameters.items()}
    unusual = {name: part for name, part in value.get_params(deep=False).items() if repr(part) != usual.get(name)}
    kind = {"class": f"{type(value).__module__}:{type(value).__qualname__}"}
    return kind | {name: described(part) for name, part in sorted(unusual.items())}


def made(description: Any, name: str = "estimator") -> Any:
    """Return the value of a parameter that `described` described, if a file may have it made."""
    if isinstance(description, list):
        return [made(part, name) for part in description]
    if not isinstance(description, dict):
        return _plain(description, name)
    if description.keys() == {"tuple"}:
        return tuple(made(description["tuple"], name))
    package, _, kind = str(description.get("class", "")).partition(":")
    module = next((module for module, kinds in FROM_FILES.items() if kind in kinds.split()), "")
    if not module or package.partition(".")[0] != module.partition(".")[0]:
        raise _refused(kind or f"{name} = {description.get('text')}")
    if wrong := sorted(description.keys() - {"class", *HARMLESS.split()}):
        raise _refused(f"{kind}({wrong[0]}=…)")
    parts = {each: made(part, each) for each, part in description.items() if each != "class"}
    try:
        return getattr(import_module(module), kind)(**parts)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"{kind} must be installed to load a policy of it: {error}.") from error


def _plain(value: Any, name: str) -> Any:
    """Return a number or a text of a file, if it is a size that may be trained, or a word."""
    most = LARGEST.get(name, MOST)
    if isinstance(value, str) and re.fullmatch(r"[\w:.-]*", value):
        return value
    if isinstance(value, float | None) or (isinstance(value, int) and abs(value) <= most):
        return value
    raise _refused(f"{name} = {shown(value)}")


def _refused(what: str) -> InvalidInput:
    return InvalidInput(
        "a file alone makes estimators of scikit-learn, LightGBM and XGBoost with harmless parameters "
        f"(rarely.ensembles.HARMLESS); got {what}. Give the estimator: load(path, model=estimator)."
    )


def given_estimator(given: Any, saved: Any, arrays: Any) -> Any:
    """Return the estimator of a saved policy: the one given, if it is as the file says, or else what the file says."""
    try:
        estimator = made(saved) if given is None else clone(given)
    except InvalidInput as error:
        raise SnapshotError(f"holds the description of an estimator: {error}") from error
    if given is not None and described(estimator) != saved:
        raise SnapshotError(f"holds a policy whose estimator is {shown(saved)}; got {shown(described(estimator))}.")
    return estimator


MODELS["rarely.ensembles"] = given_estimator

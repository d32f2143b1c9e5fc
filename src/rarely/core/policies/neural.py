"""BatchNeuralUCB (Algorithm 1), and NeuralUCB, which is the same with an update after every round."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from rarely.core.choice.confidence_radius import Beta, NoiseRadius, VersionStats
from rarely.core.choice.random_stream import Seed, seeded
from rarely.core.choice.rules import ChoiceRule, Mixture, UpperConfidence, with_exploration
from rarely.core.covariance import DEFAULT_LIMIT, Covariance, Kind, Sketch, Widths, in_bytes
from rarely.core.errors import InvalidInput, TooExpensive, check_choice, check_flag, check_whole
from rarely.core.inputs.forgetting import Discount, Forgetting
from rarely.core.inputs.history import History
from rarely.core.inputs.scaling import Affine, ContextScale, RewardScale
from rarely.core.model.features import Factors
from rarely.core.model.network import Initial, Network, Scaling, Weights
from rarely.core.policies.base import Policy, Ties, WithinBatch
from rarely.core.policies.learner import FitResult, ScaledLearner, TrainingSet
from rarely.core.policies.settings import decoded, encoded
from rarely.core.saving.fields import DType, Fields
from rarely.core.schedules import EveryRound, Schedule
from rarely.core.training.gradient_descent import Optimiser, Precision, TrainingPlan, train
from rarely.core.training.sgd import train_singly
from rarely.core.training.tuning import SKIP_GRID, STEP_GRID, Tuning, Validation, tune
from rarely.core.types import Array, Arrays

PresetName = Literal["practical", "paper", "code"]
PLAIN_HIDDEN, PLAIN_STEPS, PLAIN_BETA = 100, 200, 0.01
"""m, J and β where a policy does not tune itself."""
TUNED_HIDDEN = 200
TUNED_BETA = NoiseRadius(0.02, norm_factor=0.02, exploit_last=True, relative=0.1, spread_factor=0.1, untried=3.0)
"""m and β where it does."""
_NOT_SETTINGS = ("self", "seed", "__class__")


@dataclass(frozen=True)
class Preset:
    """One way to read the paper's experiments: what a preset sets where the user does not."""

    standardise_rewards: bool = False
    biases: bool = False
    scaling: Scaling = "ntk"
    initial: Initial = "paired"
    optimiser: Optimiser = "gradient_descent"
    precision: Precision = "float64"

    def given(self, **knobs: Any) -> Preset:
        """The same with the user's own choices, where they are not None."""
        return replace(self, **{name: value for name, value in knobs.items() if value is not None})


PRESET_SETTINGS: dict[PresetName, Preset] = {
    "practical": Preset(standardise_rewards=True, precision="float32"),
    "paper": Preset(),
    "code": Preset(biases=True, scaling="standard", initial="uniform", optimiser="sgd"),
}


@dataclass(frozen=True)
class NeuralLearner(ScaledLearner):
    """A network, its weights, and the scales around it."""

    network: Network
    initial: tuple[Array, ...]
    weights: Weights
    scale: ContextScale
    rewards: RewardScale
    plan: TrainingPlan
    standardise_rewards: bool
    direction: Weights | None = None
    used_step: float | None = None
    tuning: Tuning | None = None
    """Where it chooses path and steps itself."""
    shuffle_seed: int = 0
    """From which descent on single samples derives their order."""

    @property
    def widths(self) -> Widths:
        return self.network.shapes

    @property
    def noise(self) -> float | None:
        return None if self.tuning is None else self.tuning.noise

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        values, factors = self.network.values_and_factors(self.weights, self.scale(contexts))
        return self.rewards.center + self.rewards.spread * values, factors

    def learn(self, history: History) -> FitResult:
        ready = self.scaled()
        samples = TrainingSet.of(history, ready.scale, rewards=self.standardise_rewards)
        if samples.overflow:
            return FitResult(self, samples.overflow)
        rows, x, y, weights, scale = samples
        if weights is not None:
            # Without biases u(cx) = c·u(x) for c > 0: scaled samples are weighted ones.
            x, y = x * np.sqrt(weights)[:, None], y * np.sqrt(weights)
        tuning, network = self.tuning, self.network
        if tuning is not None:
            outcome, tuning = tune(network, self.initial, x, y, rows, self.plan, tuning, scale, weights)
            network = replace(network, skip=tuning.skip)
        elif self.plan.optimiser == "sgd":
            outcome = train_singly(self.network, self.weights, x, y, self.plan, self.shuffle_seed)
        else:
            start = self.weights if self.plan.warm_start else None
            outcome = train(self.network, self.initial, x, y, self.plan, self.direction, start)
        learner = replace(
            ready,
            weights=outcome.weights,
            network=network,
            rewards=scale,
            tuning=tuning,
            direction=outcome.direction,
            used_step=outcome.step_size,
        )
        rescaled = self.scale.changed_columns(ready.scale)
        return FitResult(
            learner,
            outcome.reason,
            self._basis(learner) if rescaled or self._first else None,
            outcome.step_size,
            outcome.attempts,
            outcome.initial_loss,
            outcome.final_loss,
            self.plan.steps if tuning is None else STEP_GRID[tuning.rung],
            network.skip,
            "" if tuning is None else tuning.explain(),
            rescaled,
            outcome.loops,
        )

    @property
    def _first(self) -> bool:
        """Whether this is the first tuned training: earlier rounds were seen without the path that it chooses."""
        return self.tuning is not None and not self.tuning.turn

    def _basis(self, learner: NeuralLearner) -> NeuralLearner:
        """With whose features Z is built again: θ_0's while no other weights have decided, else the new ones."""
        return replace(learner, weights=self.initial) if self.untrained else learner

    @property
    def untrained(self) -> bool:
        """Whether the weights are the initial ones."""
        return all(np.array_equal(w, v) for w, v in zip(self.weights, self.initial, strict=True))

    def version_stats(self, round: int, covariance: Covariance) -> VersionStats:
        step = self.used_step if self.used_step is not None else self.plan.step_size
        return VersionStats(
            round=round,
            features=covariance.rounds,
            log_det=covariance.frozen_log_det,
            ridge=self.plan.ridge,
            depth=self.network.depth,
            steps=self.plan.steps if self.tuning is None else STEP_GRID[self.tuning.rung],
            step=None if step is None else step * self.network.output_scale**2,
            # Until enough was held out, all that is known is the rewards' spread, of which noise is some part.
            noise=self.rewards.spread / 4 if self.noise is None and self.tuning is not None else self.noise,
            norm=self.network.output_scale * self.rewards.spread * _distance(self.weights, self.initial),
        )

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers, arrays = self.scale.state()
        numbers |= {
            "reward_center": self.rewards.center,
            "reward_spread": self.rewards.spread,
            "shuffle_seed": self.shuffle_seed,
        }
        arrays |= {f"initial{i}": w for i, w in enumerate(self.initial)}
        arrays |= {f"weights{i}": w for i, w in enumerate(self.weights)}
        if self.direction is not None:
            arrays |= {f"direction{i}": w for i, w in enumerate(self.direction)}
        if self.tuning is not None:
            chosen, tried = self.tuning.state()
            numbers |= {"tuning": chosen, "skip": self.network.skip}
            arrays |= {f"tuning.{name}": array for name, array in tried.items()}
        return numbers, arrays

    def restored(self, saved: Fields, history: History, *, trained: bool) -> Self:
        def layers(name: str, dtype: DType = "float") -> tuple[Array, ...]:
            return tuple(saved.array(f"{name}{i}", shape, dtype) for i, shape in enumerate(self.network.shapes))

        with saved:
            network, tuning = self._restored_path(saved, history, trained=trained)
            rewards = RewardScale.restored(saved, fitted=trained and self.standardise_rewards)
            seed = saved.whole("shuffle_seed", most=2**32 - 1) if saved.since(2, "shuffle_seed") else 0
            saved.require(seed == 0 or self.plan.optimiser == "sgd", "shuffle_seed must be 0 where nothing is shuffled")
            precision: DType = "single" if self.plan.precision == "float32" else "float"
            learner = replace(
                self,
                network=network,
                tuning=tuning,
                initial=layers("initial"),
                weights=layers("weights"),
                scale=self.scale.restored(saved, len(history), trained=trained),
                rewards=rewards,
                shuffle_seed=seed,
                direction=layers("direction", precision) if "direction0" in saved else None,
            )
            fresh = learner.untrained and learner.direction is None
            saved.require(trained or fresh, "weights must be the initial ones before anything is learned")
        return learner

    def _restored_path(self, saved: Fields, history: History, *, trained: bool) -> tuple[Network, Tuning | None]:
        """The network with the strength of its saved skip path, and what chose it."""
        if self.tuning is None:
            return self.network, None
        tuning, old = Tuning.restored(saved.inner("tuning"), history, trained=trained)
        # Format 1 does not tell the path's strength; with errors in it, it was there from the first round on.
        skip = SKIP_GRID[tuning.path] if old else tuning.skip
        if saved.since(2, "skip"):
            skip = saved.number("skip")
            saved.require(skip in (tuning.skip, SKIP_GRID[tuning.path]), "skip must be the strength of the path in use")
        return replace(self.network, skip=skip), tuning


def _distance(weights: Weights, others: Weights) -> float:
    """‖θ − θ'‖."""
    return math.sqrt(sum(float(np.square(w - v).sum()) for w, v in zip(weights, others, strict=True)))


class BatchNeuralUCB(Policy):
    """A neural network with upper confidence bounds, and at most B versions of it.

        dim, schedule     d numbers in a context; when updates are due, and how many there may be
        hidden, depth     m units (even) in each of L − 1 hidden layers; None is 200 of them where the policy tunes
                          itself and 100 elsewhere
        skip              the strength s of a linear path beside them, which adds s·c·x; None for none (or, where the
                          policy tunes itself, for its own choice)
        ridge, beta       λ of Z_1 = λI and of the training's penalty; the radius β in bonus = β·√(φᵀZ⁻¹φ):
                          a number, a function of the round, a `TheoremRadius` or a `NoiseRadius`
        steps, step_size  J gradient steps per update, of size η; None takes η from the curvature
        covariance        "auto" (the cheaper exact one), "dual" (t×t), "primal" (p×p), or one of the
                          approximations "sketched" (r×r; a `Sketch` sets r), "diagonal" and "last_layer"
        preset            "practical": contexts scaled (from the first round on, and again at an update when the
                          data have left their scale), a constant appended, rewards standardised, training in
                          float32.
                          "paper": the printed algorithm, contexts and rewards as they come, float64.
                          "code": as the public NeuralUCB program (biases, no √m, uniform initial weights,
                          descent on single samples that goes on from the last weights); its bonus
                          √(λν·gᵀZ⁻¹g) is beta = √(λν)
        seed              of the initial weights and of random ties; a number or a NumPy Generator
        within_batch      "frozen": bonuses from Z as it was at the batch's start, so that the policy is one fixed
                          function between updates, as in the paper. "running": bonuses from Z with every round so
                          far, which needs no rewards (Desautels et al., 2014); means stay frozen, and the rounds of
                          a batch spread. None is "running" where the policy tunes itself, "frozen" elsewhere
        exploration       a `Mixture`, which gives every arm a part of all rounds, and so a probability above 0
        forgetting        a `Window` or a `Discount`, for worlds that change
        ties              "lowest" arm, or "random"
        memory_limit      bytes that the covariance may take; what needs more is refused with the alternatives

    Without `steps`, `skip` and `step_size` the practical policy tunes itself: each update chooses J and s by rewards
    that were held out (`rarely.core.training.tuning`), and its record says why and how well calibrated the version
    before was; `policy.tuning` has the losses. β is then a `NoiseRadius`: a small part of the noise and norm that were
    estimated, more where the policy repeats a few arms, and 0 for the last version, which nothing can learn from.
    Otherwise, and in the other presets, J is 200 and β is 0.01 unless given.

    One by one, over the preset: `context_scale` (an `Affine`; `**blocks.settings` has it for contexts made of blocks),
    `standardise_rewards`, `precision` ("float32", "float64"), `optimiser` ("gradient_descent", "sgd"),
    `biases`, `scaling` ("ntk": f = √m·u as printed; "standard": f = u), `initial` weights ("paired":
    f(·; θ_0) = 0; "uniform"). And one deviation from the paper: `warm_start`, which starts each training at the
    last version's weights and not at θ_0, so that fewer steps do; docs/decisions/0011 says what it does to regret.

    >>> from rarely import BatchNeuralUCB, FixedGrid
    >>> policy = BatchNeuralUCB(dim=2, hidden=8, schedule=FixedGrid(horizon=20, batches=2), seed=0)
    >>> decision = policy.select(np.random.default_rng(0).random((10, 3, 2)))
    >>> policy.observe(decision, np.linspace(0, 1, 10))
    >>> policy.due, policy.update().accepted, policy.version
    (True, True, 1)
    """

    def __init__(
        self,
        dim: int,
        schedule: Schedule,
        *,
        hidden: int | None = None,
        depth: int = 2,
        skip: float | None = None,
        ridge: float = 0.01,
        beta: Beta | None = None,
        steps: int | None = None,
        step_size: float | None = None,
        covariance: Kind | Sketch = "auto",
        preset: PresetName = "practical",
        context_scale: Affine | None = None,
        standardise_rewards: bool | None = None,
        biases: bool | None = None,
        scaling: Scaling | None = None,
        initial: Initial | None = None,
        optimiser: Optimiser | None = None,
        precision: Precision | None = None,
        warm_start: bool = False,
        exploration: Mixture | None = None,
        forgetting: Forgetting | None = None,
        within_batch: WithinBatch | None = None,
        ties: Ties = "lowest",
        seed: Seed = None,
        memory_limit: int = DEFAULT_LIMIT,
    ) -> None:
        schedule, covariance, beta = decoded(schedule=schedule, covariance=covariance, beta=beta)
        context_scale, exploration, forgetting = decoded(
            context_scale=context_scale, exploration=exploration, forgetting=forgetting
        )
        # Everything that makes the policy again; the seed follows when it is drawn.
        self._settings = {name: value for name, value in locals().items() if name not in _NOT_SETTINGS}
        check_choice("preset", preset, PresetName)
        check_choice("ties", ties, Ties)
        check_flag("warm_start", warm_start)
        for name, flag in (("standardise_rewards", standardise_rewards), ("biases", biases)):
            if flag is not None:
                check_flag(name, flag)
        check_whole("memory_limit", memory_limit, 1)
        practical = preset == "practical"
        reading = PRESET_SETTINGS[preset].given(
            standardise_rewards=standardise_rewards,
            biases=biases,
            scaling=scaling,
            initial=initial,
            optimiser=optimiser,
            precision=precision,
        )
        if isinstance(forgetting, Discount) and (reading.biases or reading.optimiser == "sgd"):
            raise InvalidInput(
                "a Discount needs a network without biases and optimiser 'gradient_descent', because samples are "
                "weighted through u(cx) = c·u(x); use a Window, or another preset."
            )
        scale = ContextScale.start(dim, context_scale, constant=practical, fitted=practical)
        plain = reading.optimiser == "gradient_descent" and not reading.biases
        tuned = practical and plain and not warm_start and steps is skip is step_size is None
        if hidden is None:
            hidden = TUNED_HIDDEN if tuned else PLAIN_HIDDEN
        tuning = Tuning() if tuned else None
        strength = skip if tuning is None else tuning.skip
        network = Network(
            scale.affine.scaled_dim, hidden, depth, reading.biases, reading.scaling, reading.initial, strength
        )
        if beta is None:
            beta = self._tuned_beta if tuned else PLAIN_BETA
        if within_batch is None:
            within_batch = self._tuned_within_batch if tuned else "frozen"
        self._settings |= {"beta": beta, "hidden": hidden, "within_batch": within_batch}
        if 8 * network.parameters > memory_limit:
            raise TooExpensive(
                f"the weights alone must fit memory_limit = {in_bytes(memory_limit)}, but {network.parameters:,} "
                f"parameters need {in_bytes(8 * network.parameters)}. Use fewer hidden units, or raise memory_limit."
            )
        source = seeded(seed)
        weights = network.initial_weights(source.generator)
        learner = self._learner_kind(
            network=network,
            initial=weights,
            weights=weights,
            scale=scale,
            rewards=RewardScale(),
            tuning=tuning,
            plan=TrainingPlan(
                ridge,
                PLAIN_STEPS if steps is None else steps,
                step_size,
                reading.optimiser,
                reading.precision,
                warm_start,
            ),
            standardise_rewards=reading.standardise_rewards,
            shuffle_seed=int(source.generator.integers(2**32)) if reading.optimiser == "sgd" else 0,
        )
        super().__init__(
            learner,
            schedule=schedule,
            covariance=covariance,
            ridge=ridge,
            beta=beta,
            chooser=with_exploration(self._rule(ties), exploration),
            seed=source,
            memory_limit=memory_limit,
            forgetting=forgetting,
            within_batch=within_batch,
        )

    _learner_kind: type[NeuralLearner] = NeuralLearner
    _tuned_beta: NoiseRadius = TUNED_BETA
    _tuned_within_batch: WithinBatch = "running"

    def _rule(self, ties: Ties) -> ChoiceRule:
        return UpperConfidence(draws=ties == "random")

    @property
    def network(self) -> Network:
        """The shape of the network."""
        return self._neural.network

    @property
    def weights(self) -> list[Array]:
        """W_1 … W_L of the version in use; with biases the last column of each is the bias."""
        return [np.array(w, np.float64) for w in self._neural.weights]

    @property
    def initial_weights(self) -> list[Array]:
        """θ_0, where every training starts."""
        return [w.copy() for w in self._neural.initial]

    @property
    def context_scale(self) -> Affine:
        """The map from contexts to what the network sees."""
        return self._neural.scale.affine

    @property
    def tuning(self) -> Validation | None:
        """How every length of training and strength of the skip path fares on held-out rewards; None if not tuned."""
        return None if self._neural.tuning is None else self._neural.tuning.validation()

    @property
    def _neural(self) -> NeuralLearner:
        assert isinstance(self._learner, NeuralLearner)
        return self._learner

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as JSON."""
        return encoded(self._settings | {"seed": self._seed})


class NeuralUCB(BatchNeuralUCB):
    """BatchNeuralUCB with an update due after every round (Zhou et al., 2020), Z in full."""

    def __init__(self, dim: int, **settings: Any) -> None:
        super().__init__(dim, EveryRound(), **settings)

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as JSON."""
        return {name: value for name, value in super().settings().items() if name != "schedule"}

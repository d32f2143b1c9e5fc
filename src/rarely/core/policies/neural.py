"""BatchNeuralUCB (Algorithm 1), and NeuralUCB, which is the same with an update after every round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from rarely.core.choice.confidence_radius import Beta, NoiseRadius
from rarely.core.choice.random_stream import Seed, seeded
from rarely.core.choice.rules import ChoiceRule, Mixture, UpperConfidence, with_exploration
from rarely.core.covariance import Kind, Sketch, in_bytes
from rarely.core.errors import InvalidInput, TooExpensive, check_choice
from rarely.core.inputs.forgetting import Discount, Forgetting
from rarely.core.inputs.scaling import Affine, ContextScale, RewardScale
from rarely.core.model.network import Network
from rarely.core.policies.base import Policy, Ties, WithinBatch
from rarely.core.policies.limits import DEFAULT_HISTORY, DEFAULT_LATENCY, Limits
from rarely.core.policies.neural_learner import NeuralLearner
from rarely.core.policies.presets import Preset, PresetName, Training
from rarely.core.policies.renamed import grouped
from rarely.core.policies.settings import decoded, encoded
from rarely.core.schedules import EveryRound, Schedule
from rarely.core.training.gradient_descent import TrainingPlan
from rarely.core.training.tuning import Tuning, Validation
from rarely.core.types import Array

TRAINING_ROWS = 10_000
"""Samples that an update of a policy that tunes itself trains on, at most (docs/decisions/0029)."""
PLAIN_HIDDEN, PLAIN_STEPS, PLAIN_BETA = 100, 200, 0.01
"""m, J and β where a policy does not tune itself."""
TUNED_HIDDEN = 200
TUNED_BETA = NoiseRadius(0.02, norm_factor=0.02, exploit_last=True, relative=0.1, spread_factor=0.1, untried=3.0)
"""m and β where it does."""


class BatchNeuralUCB(Policy):
    """A neural network with upper confidence bounds, and at most B versions of it.

    Parameters
    ----------
    dim
        d, numbers in a context.
    schedule
        When updates are due, and how many there may be.
    hidden, depth
        m units (an even number) in each of L − 1 hidden layers. `hidden=None` is 200 where the policy tunes itself and
        100 elsewhere.
    ridge
        λ of Z_1 = λI and of the penalty in training.
    beta
        The radius β in bonus = β·√(φᵀZ⁻¹φ): a number, a function of the round, a `TheoremRadius` or a `NoiseRadius`.
    training
        A `Training`: steps, step size, a linear path beside the network, warm start, rows; or a number of steps.
    covariance
        "auto" (the cheaper of the exact forms while it keeps to `Limits.latency`), "exact" (the cheaper of them
        always), "dual" (t×t), "primal" (p×p), or one of the approximations "last_layer" and "diagonal"; "sketched",
        or a `Sketch`, is deprecated.
    preset
        "practical" scales contexts from the first round on, and again at an update when the data have left their
        scale; it appends a constant, standardises rewards and trains in float32. "paper" is the printed algorithm:
        contexts and rewards as they come, float64. "code" follows the public NeuralUCB program: biases, no √m, uniform
        initial weights, descent on single samples that continues from the last weights; its bonus √(λν·gᵀZ⁻¹g) is
        beta = √(λν). A `Preset` changes single choices: `Preset.named("practical", precision="float64")`.
    context_scale
        An `Affine` map of contexts, instead of a scale that the policy fits; `**blocks.settings` has it for contexts
        made of blocks.
    seed
        Of the initial weights and of random ties; a number or a NumPy Generator.
    within_batch
        "frozen" takes bonuses from Z as it was when the batch began, so that the policy is one fixed function between
        updates, as in the paper. "running" takes them from Z with every round so far, which needs no rewards (Desautels
        et al., 2014); means stay frozen, and the rounds of a batch spread. None is "running" where the policy tunes
        itself and "frozen" elsewhere.
    exploration
        A `Mixture`, which gives every arm a share of all rounds and therefore a probability above 0.
    forgetting
        A `Window` or a `Discount`, for worlds that change.
    ties
        "lowest" arm, or "random".
    limits
        A `Limits`: bytes that Z and past rounds may take, and seconds that a decision may take.

    Notes
    -----
    Without a `training` the practical policy tunes itself: each update chooses J and s by rewards
    that were held out (`rarely.core.training.tuning`), and its record says why and how well calibrated the version
    before was; `policy.tuning` has the losses. β is then a `NoiseRadius`: a small part of the noise and norm that were
    estimated, more where the policy repeats a few arms, and 0 for the last version, which nothing can learn from. No
    mean is below the smallest reward so far. Otherwise, and in the other presets, J is 200 and β is 0.01 unless given.

    Examples
    --------
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
        ridge: float = 0.01,
        beta: Beta | None = None,
        training: Training | int | None = None,
        covariance: Kind | Sketch = "auto",
        preset: PresetName | Preset = "practical",
        context_scale: Affine | None = None,
        exploration: Mixture | None = None,
        forgetting: Forgetting | None = None,
        within_batch: WithinBatch | None = None,
        ties: Ties = "lowest",
        seed: Seed = None,
        limits: Limits | None = None,
        **renamed: Any,
    ) -> None:
        schedule, covariance, beta = decoded(schedule=schedule, covariance=covariance, beta=beta)
        context_scale, exploration, forgetting = decoded(
            context_scale=context_scale, exploration=exploration, forgetting=forgetting
        )
        preset, training, limits = decoded(preset=preset, training=training, limits=limits)
        preset, training, limits = grouped(type(self).__name__, preset, training, limits, renamed)
        check_choice("ties", ties, Ties)
        if isinstance(forgetting, Discount) and (preset.biases or preset.optimiser == "sgd"):
            raise InvalidInput(
                "a Discount needs a network without biases and optimiser 'gradient_descent', because samples are "
                "weighted through u(cx) = c·u(x); use a Window, or another preset."
            )
        practical = preset.scale_contexts
        scale = ContextScale.start(dim, context_scale, constant=practical, fitted=practical)
        plain = preset.optimiser == "gradient_descent" and not preset.biases
        tuned = practical and plain and training.tunes
        if hidden is None:
            hidden = TUNED_HIDDEN if tuned else PLAIN_HIDDEN
        tuning = Tuning() if tuned else None
        strength = training.skip if tuning is None else tuning.skip
        network = Network(
            scale.affine.scaled_dim, hidden, depth, preset.biases, preset.scaling, preset.initial, strength
        )
        if beta is None:
            beta = self._tuned_beta if tuned else PLAIN_BETA
        if within_batch is None:
            within_batch = self._tuned_within_batch if tuned else "frozen"
        if training.rows is None:
            training = replace(training, rows=self._tuned_rows if tuned else "all")
        limits = limits.settled(
            history=DEFAULT_HISTORY if tuned else None,
            latency=DEFAULT_LATENCY if practical else None,
            arms=scale.affine.arms,
        )
        # Everything that makes the policy again, except what may change in its life and the seed, drawn below.
        self._settings = {
            "dim": dim,
            "schedule": schedule,
            "hidden": hidden,
            "depth": depth,
            "ridge": ridge,
            "beta": beta,
            "training": training,
            "preset": preset,
            "context_scale": context_scale,
            "exploration": exploration,
            "forgetting": forgetting,
            "within_batch": within_batch,
            "ties": ties,
        }
        if 8 * network.parameters > limits.memory:
            raise TooExpensive(
                f"the weights alone must fit limits.memory = {in_bytes(limits.memory)}, but {network.parameters:,} "
                f"parameters need {in_bytes(8 * network.parameters)}. Use fewer hidden units, or raise limits.memory."
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
                PLAIN_STEPS if training.steps is None else training.steps,
                training.step_size,
                preset.optimiser,
                preset.precision,
                training.warm_start,
            ),
            standardise_rewards=preset.standardise_rewards,
            shuffle_seed=int(source.generator.integers(2**32)) if preset.optimiser == "sgd" else 0,
            training_rows=None if training.rows == "all" else training.rows,
        )
        super().__init__(
            learner,
            schedule=schedule,
            covariance=covariance,
            ridge=ridge,
            beta=beta,
            chooser=with_exploration(self._rule(ties), exploration),
            seed=source,
            limits=limits,
            forgetting=forgetting,
            within_batch=within_batch,
        )

    _learner_kind: type[NeuralLearner] = NeuralLearner
    _tuned_beta: NoiseRadius = TUNED_BETA
    _tuned_within_batch: WithinBatch = "running"
    _tuned_rows: int | Literal["all"] = TRAINING_ROWS

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
        changing = {"covariance": self._maker.form, "limits": self._limits, "seed": self._seed}
        return encoded(self._settings | changing)


class NeuralUCB(BatchNeuralUCB):
    """BatchNeuralUCB with an update due after every round (Zhou et al., 2020), Z in full.

    Examples
    --------
    >>> from rarely import NeuralUCB
    >>> policy = NeuralUCB(dim=1, hidden=8, seed=0)
    >>> policy.observe(policy.select([[1.0], [2.0]]), 0.5)
    >>> policy.due, policy.update().version
    (True, 1)
    """

    def __init__(self, dim: int, **settings: Any) -> None:
        super().__init__(dim, EveryRound(), **settings)

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as JSON."""
        return {name: value for name, value in super().settings().items() if name != "schedule"}

"""BatchNeuralUCB (Algorithm 1), and its relatives: NeuralUCB, NeuralTS and NeuralEpsilonGreedy.

NeuralUCB is the same with an update after every round. Thompson sampling plays each arm as often as it would be the
best, given what is known of it:

    r̃ ~ N(mean, bonus²), independent from arm to arm; the arm of the highest is played

The probability of every arm is integrated, not simulated, and the arm is drawn from it: so a decision's
probabilities are exact, as off-policy estimates need them. With K = 1000 arms that takes some milliseconds.
`ties` matters where bonuses are 0: arms of one mean and one bonus above 0 are alike in any case.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal, cast

import numpy as np

from rarely._core.choice.confidence_radius import Beta, NoiseRadius
from rarely._core.choice.random_stream import Seed, seeded
from rarely._core.choice.rules import ChoiceRule, Mixture, Thompson, UpperConfidence
from rarely._core.covariance import CovarianceFactory, DualFactory, Kind, in_bytes
from rarely._core.errors import InvalidInput, TooExpensive, check_choice, check_flag, check_positive, is_whole, shown
from rarely._core.inputs.forgetting import Discount, Forgetting, is_automatic
from rarely._core.inputs.scaling import ContextMap, ContextScale, RewardScale
from rarely._core.inputs.sparse_rows import SparseRows
from rarely._core.model.network import Network
from rarely._core.model.sparse_features import sparse_gram
from rarely._core.policies import options
from rarely._core.policies.evidence import EvidenceFactory, EvidenceLearner
from rarely._core.policies.learner import Learner, ScoreOverride
from rarely._core.policies.network_learner import LastLayerLearner, NetworkLearner
from rarely._core.policies.options import TUNED_ROWS, Limits, Preset, PresetName, Training
from rarely._core.policies.policy import Policy, Ties
from rarely._core.policies.state import WithinBatch
from rarely._core.schedules import EveryRound, Schedule
from rarely._core.training.gradient_descent import Precision, TrainingPlan
from rarely._core.types import Array, forwarded

PLAIN_HIDDEN, PLAIN_STEPS, PLAIN_BETA = 100, 200, 0.01  # m, J and β where a policy does not tune itself
TUNED_HIDDEN = 200  # m and β where it does: one standard deviation of what is not known yet
TUNED_BETA = NoiseRadius(1.0, exploit_last=True)
EVIDENCE_BETA = NoiseRadius(0.7, exploit_last=True)  # β where evidence chooses kernels
KERNEL_FORMS = ("auto", "exact", "dual")  # the forms of Z that kernels have


class BatchNeuralUCB(Policy):
    """A neural network with upper confidence bounds, and at most B versions of it.

    Parameters
    ----------
    dim, schedule
        d, numbers in a context; when updates are due, and how many there may be.
    model
        A network of your own, `rarely.torch.Module(net)`, in place of the perceptron; it knows `dim`. Its contexts are
        not scaled, its output stands for the reward, standardised in preset "practical", and forgetting="auto" never
        forgets.
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
        "auto" (the cheaper of the exact forms while it keeps to `Limits.operations`), "exact" (the cheaper of them
        always), "dual" (t×t), "primal" (p×p), or one of the approximations "last_layer" and "diagonal".
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
        Of the initial weights and of random ties; a number or a NumPy Generator. In a simulation the world needs
        another one: `default_rng(seed)` of the same number draws the same luck.
    within_batch
        "frozen" takes bonuses from Z as it was when the batch began, so that the policy is one fixed function between
        updates, as in the paper. "running" takes them from Z with every round so far, which needs no rewards (Desautels
        et al., 2014); means stay frozen, and the rounds of a batch spread. None is "running" where the policy tunes
        itself and "frozen" elsewhere; in `NeuralTS` and `NeuralLinear` None is always "frozen".
    exploration
        A `Mixture`, which gives every arm a share of all rounds and therefore a probability above 0; or a
        `rarely.extend.ChoiceRule` of your own in the place of the policy's rule.
    forgetting
        For worlds that change: a `Window` or a `Discount`; None never forgets. With "auto", a policy that tunes itself
        asks at each update whether old rounds still predict the newest rewards, and records what it remembers and why;
        other policies do not forget.
    ties
        "lowest" arm, or "random".
    limits
        A `Limits`: bytes that Z and past rounds may take, and multiplications that a decision may take.
    returning_arms
        Whether a policy that tunes itself judges arms whose contexts come back by their own rewards, where these
        predict better or arms share nothing.

    Notes
    -----
    What is named says what learns. With a `training`, or in another preset than "practical", it is the paper's learner:
    J is 200 and β is 0.01 unless given. With a network alone (`hidden`, `depth`, `model`, sparse contexts, another form
    of Z) that network is trained at each update, its penalty, skip path, noise and memory chosen by the likelihood of
    the rewards. With neither, the likelihood weighs kernels, that of the network at infinite width among them. In both
    of these cases the policy tunes itself: records say what was chosen and how well calibrated the version before was,
    and β is a `NoiseRadius` of one standard deviation, 0 for the last version, which nothing can learn from.

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
        dim: int | None = None,
        schedule: Schedule | None = None,
        *,
        model: Any = None,
        hidden: int | None = None,
        depth: int = 2,
        ridge: float = 0.01,
        beta: Beta | None = None,
        training: Training | int | None = None,
        covariance: Kind = "auto",
        preset: PresetName | Preset = "practical",
        context_scale: ContextMap | None = None,
        exploration: Mixture | ChoiceRule | None = None,
        forgetting: Forgetting | Literal["auto"] | None = "auto",
        within_batch: WithinBatch | None = None,
        ties: Ties = "lowest",
        seed: Seed = None,
        limits: Limits | None = None,
        returning_arms: bool = True,
    ) -> None:
        preset, training = options.preset_from(preset), options.training_from(training)
        check_positive("ridge", ridge, "because Z_1 = ridge·I is inverted")
        check_choice("ties", ties, Ties)
        check_flag("returning_arms", returning_arms)
        deep = None if is_whole(depth) and depth == 2 else depth
        dim = self._dim_of(
            model, dim, preset, hidden=hidden, depth=deep, context_scale=context_scale, skip=training.skip
        )
        fitted = preset.scale_contexts and model is None
        scale = ContextScale.start(dim, context_scale, constant=fitted or model is not None, fitted=fitted)
        sparse = scale.map if isinstance(scale.map, SparseRows) else None
        self._tunes = preset.can_tune and training.tunes
        network = not self._takes_models or any(each is not None for each in (model, hidden, deep, sparse))
        self._by_evidence = self._tunes and not network and training == Training() and covariance in KERNEL_FORMS
        training = training if self._by_evidence else training.with_rows(TUNED_ROWS if self._tunes else "all")
        settings = self._settings = {
            "dim": dim, "schedule": schedule, "depth": depth, "ridge": ridge, "training": training,
            "covariance": covariance, "preset": preset, "context_scale": context_scale, "exploration": exploration,
            "forgetting": forgetting, "ties": ties, "returning_arms": returning_arms,
        } | self._defaults(hidden, beta, within_batch)  # fmt: skip
        if model is not None:  # in the place of sizes
            del settings["hidden"], settings["depth"]
            settings["model"], self._packed = model, model.contexts
        self._check(preset, training, forgetting, depth=None if sparse is None else depth)
        limits, source = self._limits_of(limits, preset, scale), seeded(seed)
        window = None if is_automatic(forgetting) else forgetting
        super().__init__(
            self._learner_of(scale, limits.memory, source.generator),
            settings,
            self._rule(ties),
            limits=limits,
            seed=source,
            factory=self._factory_of(model, scale),
            override=self._returning_arms(dim, sparse) if window is None and returning_arms else None,
            ridge=1.0 if self._by_evidence else ridge,
            forgetting=window,
        )

    def _dim_of(self, model: Any, dim: int | None, preset: Preset, **others: Any) -> int:
        """Return `dim`, or the model's; raise InvalidInput for arguments that do not go with a model of the user's."""
        if model is None:
            if dim is None:
                raise InvalidInput("dim must be given, the numbers in a context, or a model, which knows it.")
            return dim
        taken = [name for name, value in others.items() if value is not None]
        plain = self._takes_models and not preset.biases and preset.optimiser != "sgd"
        if not hasattr(model, "factory") or taken or not plain or dim not in (None, model.dim):
            raise InvalidInput(
                "model must be a rarely.torch.Module(net), for BatchNeuralUCB, NeuralUCB, NeuralTS or "
                "NeuralEpsilonGreedy, in preset 'practical' or 'paper', with its own dim if any, and without hidden, "
                f"depth, context_scale and skip; got {shown(model)} with {', '.join(taken) or type(self).__name__}."
            )
        return int(model.dim)

    def _check(self, preset: Preset, training: Training, forgetting: Any, depth: int | None) -> None:
        """Refuse settings that do not go together; `depth` is that of a network of sparse contexts, else None."""
        sgd = preset.optimiser == "sgd"
        if isinstance(forgetting, Discount) and (preset.biases or sgd):
            raise InvalidInput(
                "a Discount needs a network without biases and optimiser 'gradient_descent', because samples are "
                "weighted through u(cx) = c·u(x); use a Window, or another preset."
            )
        sparse = depth is not None
        if sparse and (depth != 2 or preset.biases or training.warm_start or sgd or not self._takes_models):
            raise InvalidInput(
                "SparseRows need BatchNeuralUCB, NeuralUCB or NeuralTS, of depth 2 without biases, whose trainings "
                "start from the initial weights."
            )

    def _defaults(self, hidden: int | None, beta: Beta | None, within_batch: WithinBatch | None) -> dict[str, Any]:
        """Return these settings, those that are None chosen."""
        plain = {"hidden": PLAIN_HIDDEN, "beta": PLAIN_BETA, "within_batch": "frozen"}
        tuned = {"hidden": TUNED_HIDDEN, "beta": self._tuned_beta, "within_batch": self._tuned_within_batch}
        kernels = tuned | {"hidden": None, "beta": self._evidence_beta}
        usual: dict[str, Any] = (kernels if self._by_evidence else tuned) if self._tunes else plain
        chosen = {"hidden": hidden, "beta": beta, "within_batch": within_batch}
        return {name: usual[name] if value is None else value for name, value in chosen.items()}

    # What tunes a network is imported where it is used: a policy that names its training needs none of it.

    def _learner_of(self, scale: ContextScale, memory: int, generator: np.random.Generator) -> Learner:
        """Return what learns before any reward: kernels, a network that tunes itself, or the paper's."""
        forgets = is_automatic(self._settings["forgetting"])
        if self._by_evidence:
            return EvidenceLearner(scale, forgets)
        if not self._tunes:
            return self._network_learner(self._learns_by, scale, memory, generator, self._settings["preset"].precision)
        from rarely._core.policies.tuned_network import STEPS, TUNED

        # 330 steps multiply rounding by 10⁵: in single precision a processor with other instructions would train
        # another network.
        precision: Precision = "float64" if "model" not in self._settings else self._settings["preset"].precision
        learner: Any = self._network_learner(TUNED[self._learns_by], scale, memory, generator, precision)
        plan = replace(learner.plan, steps=STEPS, momentum=True)
        return cast(Learner, replace(learner, plan=plan, forgets=forgets and "model" not in self._settings))

    def _network_learner(
        self,
        kind: type[NetworkLearner],
        scale: ContextScale,
        memory: int,
        generator: np.random.Generator,
        precision: Precision,
    ) -> NetworkLearner:
        """Return a learner of this kind before any reward, with weights that the generator draws."""
        chosen = self._settings
        preset, training, model = chosen["preset"], chosen["training"], chosen.get("model")
        if model is None:
            sizes, reading = (chosen["hidden"], chosen["depth"]), (preset.biases, preset.scaling, preset.initial)
            network = Network(scale.map.scaled_dim, *sizes, *reading, training.skip)
        else:
            network = model.network(preset.scaling)
        network = network.tuned(network.skips[0]) if self._tunes else network
        if 8 * network.parameters > memory:
            raise TooExpensive(
                f"the weights alone must fit limits.memory = {in_bytes(memory)}, but {network.parameters:,} "
                f"parameters need {in_bytes(8 * network.parameters)}. Use fewer hidden units, or raise limits.memory."
            )
        weights = network.initial_weights(generator)
        steps = PLAIN_STEPS if training.steps is None else training.steps
        drawn = int(generator.integers(2**32)) if preset.optimiser == "sgd" or model is not None else 0
        plan = TrainingPlan(
            *(chosen["ridge"], steps, training.step_size), *(preset.optimiser, precision, training.warm_start), drawn
        )
        return kind(
            network=network,
            initial=weights,
            weights=weights,
            scale=scale,
            rewards=RewardScale(),
            plan=plan,
            standardise_rewards=preset.standardise_rewards,
            training_rows=None if training.rows == "all" else training.rows,
            clip=training.clip,
        )

    def _factory_of(self, model: Any, scale: ContextScale) -> Any:
        """Return what makes Z: of kernels, of sparse contexts by their products, of a user's model as it says."""
        if self._by_evidence:
            return EvidenceFactory
        if isinstance(scale.map, SparseRows):
            return partial(DualFactory, inner=sparse_gram, columns=scale.map.scaled_dim)
        return getattr(model, "factory", CovarianceFactory)

    def _limits_of(self, limits: Limits | None, preset: Preset, scale: ContextScale) -> Limits:
        """Return the limits, with what this policy has where they leave it open."""
        return options.limits_from(limits).with_defaults(
            history=options.DEFAULT_HISTORY if self._tunes else None,
            operations=options.DEFAULT_OPERATIONS if preset.scale_contexts else None,
            arms=scale.map.arms,
        )

    def _returning_arms(self, dim: int, sparse: SparseRows | None) -> ScoreOverride | None:
        """Return where the rewards of arms that return are kept apart; None where the learner alone judges."""
        if not isinstance(self._settings["beta"], NoiseRadius) or not isinstance(self._rule("lowest"), UpperConfidence):
            return None
        from rarely._core.policies.returning_arms import ReturningArms

        return ReturningArms.start(dim, None if sparse is None else sparse.columns)

    _tuned_beta: NoiseRadius = TUNED_BETA
    _evidence_beta: NoiseRadius = EVIDENCE_BETA
    _tuned_within_batch: WithinBatch = "running"
    _learns_by: type[NetworkLearner] = NetworkLearner
    _takes_models = True  # whether the network may be one of the user's, one of sparse contexts, or a kernel

    def _rule(self, ties: Ties) -> ChoiceRule:
        return UpperConfidence(draws=ties == "random")

    @property
    def model(self) -> Any:
        """The model that was given, with the weights of the version in use; None for the perceptron."""
        model: Any = self._settings.get("model")
        return None if model is None else model.at(self._network.weights)

    network: Network = forwarded("_network.network", "The shape of the network.")

    @property
    def weights(self) -> list[Array]:
        """W_1 … W_L of the version in use; with biases the last column of each is the bias."""
        return [np.array(w, np.float64) for w in self._network.weights]

    @property
    def initial_weights(self) -> list[Array]:
        """θ_0, where every training starts."""
        return [w.copy() for w in self._network.initial]

    @property
    def context_scale(self) -> ContextMap:
        """The map from contexts to what the network sees."""
        scale = self._learner.context_scale
        assert scale is not None
        return scale.map

    tunes: bool = forwarded("_tunes", "Whether the likelihood of the rewards chooses what the settings leave open.")

    @property
    def _network(self) -> NetworkLearner:
        """The learner, where that is a network."""
        assert isinstance(self._learner, NetworkLearner)
        return self._learner


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

    _fixed = ("schedule",)

    def __init__(self, dim: int | None = None, **settings: Any) -> None:
        super().__init__(dim, EveryRound(), **settings)


class NeuralTS(BatchNeuralUCB):
    """Neural Thompson sampling (Zhang, Zhou, Li and Gu, 2021) under any schedule.

    Its σ² = λ·gᵀU⁻¹g/m is the bonus² of `beta` = ν√λ, ν being the paper's. The arguments are those of
    `BatchNeuralUCB`; without bonuses (`beta=0`) it is greedy, and `ties` says which of equal means it takes.

    Examples
    --------
    >>> from rarely import FixedGrid, NeuralTS
    >>> policy = NeuralTS(dim=2, hidden=8, schedule=FixedGrid(horizon=20, batches=2), seed=0)
    >>> policy.select([[1.0, 0.0], [1.0, 0.0]]).probabilities
    array([0.5, 0.5])
    """

    # It is chosen for its probabilities, and keeps them above 0 to the end.
    _tuned_beta, _evidence_beta = (replace(beta, exploit_last=False) for beta in (TUNED_BETA, EVIDENCE_BETA))
    _tuned_within_batch = "frozen"

    def _rule(self, ties: Ties) -> ChoiceRule:
        return Thompson(lowest=ties == "lowest")


class NeuralEpsilonGreedy(BatchNeuralUCB):
    """The network's best arm, and with probability ε an arm at random (Sutton and Barto, chapter 2).

    The other arguments are those of `BatchNeuralUCB`, which with `beta=0` and `exploration=Mixture(ε)` is this policy.

    Examples
    --------
    >>> from rarely import FixedGrid, NeuralEpsilonGreedy
    >>> policy = NeuralEpsilonGreedy(dim=2, hidden=8, schedule=FixedGrid(20, 2), epsilon=0.1, seed=0)
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).probabilities
    array([0.95, 0.05])
    """

    _fixed = ("beta", "exploration")

    def __init__(
        self, dim: int | None = None, schedule: Schedule | None = None, *, epsilon: float = 0.1, **settings: Any
    ) -> None:
        if taken := {"beta", "exploration"} & settings.keys():
            raise InvalidInput(
                f"{', '.join(sorted(taken))} cannot be set: this policy has no bonuses, and epsilon is its "
                "exploration. Use BatchNeuralUCB for more."
            )
        super().__init__(dim, schedule, beta=0.0, exploration=Mixture(epsilon), **settings)
        self._settings["epsilon"] = epsilon


class NeuralLinear(NeuralTS):
    """Thompson sampling on the last layer (Riquelme, Tucker and Snoek, 2018) under any schedule.

    At each update the network is trained as `BatchNeuralUCB`'s; then the mean is the ridge regression on its
    last layer's input, and Z is rebuilt from all rounds as that layer sees them now. The arguments are those of
    `BatchNeuralUCB`: λ is the ridge of the regression too, and an arm's deviation is β·√(aᵀZ⁻¹a).

    Examples
    --------
    >>> from rarely import FixedGrid, NeuralLinear
    >>> policy = NeuralLinear(dim=2, hidden=8, schedule=FixedGrid(horizon=20, batches=2), seed=0)
    >>> policy.select([[1.0, 0.0], [1.0, 0.0]]).probabilities
    array([0.5, 0.5])
    """

    _takes_models, _learns_by = False, LastLayerLearner

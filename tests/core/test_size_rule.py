"""A default that copes: exact while decisions are small, then an approximation that is announced and on record."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytest

import rarely
from rarely import (
    Affine,
    ApproximationWarning,
    ArmBlocks,
    BatchNeuralUCB,
    DeterminantTrigger,
    InvalidInput,
    Limits,
    LinUCB,
    OnDemand,
    Roster,
    Training,
)
from rarely._core.covariance import (
    RECENT,
    CovarianceFactory,
    Diagonal,
    Dual,
    LastLayer,
    Limit,
    Primal,
    factory,
    parameters_of,
)
from rarely._core.covariance.factory import UNLIMITED, size_rule
from rarely._core.model.features import Factors
from worlds import contexts, rewards

STREAM = contexts(seed=41, rounds=120)
OPERATIONS = 32_000
"""With 3 arms and p = 160 it keeps the dual form for about 30 rounds, and never allows the primal one."""
LIMITS = Limits(operations=OPERATIONS)
WIDTHS = ((40, 3), (1, 40))


@pytest.fixture
def large(monkeypatch):
    """Let a small network stand for a large one, which starts dual."""
    monkeypatch.setattr(factory, "SMALL_PRIMAL", 8)


def small(**own):
    settings = {"hidden": 40, "training": 5, "seed": 3, "limits": LIMITS, "within_batch": "running"}
    return BatchNeuralUCB(2, **({"schedule": OnDemand()} | settings | own))


def decide(policy, start, count, *, singly=False):
    if singly:
        for t in range(start, start + count):
            decide(policy, t, 1)
        return
    decision = policy.select(STREAM[start : start + count])
    policy.observe(decision, rewards(STREAM[start + np.arange(count), decision.arm]))


def threshold():
    return size_rule(WIDTHS, Limits().memory, OPERATIONS, 3).dual_rounds


def converted(form, kind):
    """The same matrices in another form."""
    return CovarianceFactory(kind, form.ridge, Limits().memory, None).converted(form, 3, same_form=False)


def factors(seed, count):
    rng = np.random.default_rng(seed)
    inputs = tuple(rng.normal(size=(count, i)) for _, i in WIDTHS)
    return Factors(inputs, tuple(rng.normal(size=(count, o)) for o, _ in WIDTHS))


@pytest.mark.usefixtures("large")
class TestSwitch:
    def test_it_is_exact_until_it_would_be_large_and_says_when_it_is_not(self, tmp_path):
        policy, rounds = small(), threshold()
        assert 16 < rounds < 100
        assert policy.exact_rounds is None  # nobody has said how many arms there are
        decide(policy, 0, 1)
        assert policy.exact_rounds == rounds
        decide(policy, 1, rounds - 2)
        assert policy.covariance == "dual"
        assert not policy.events
        with pytest.warns(
            ApproximationWarning, match=r"3 arms with an exact Z of p = 160 .* limits.operations = 32,000"
        ):
            decide(policy, rounds - 1, 1)
        assert policy.covariance == "diagonal"
        (event,) = policy.events
        assert (event.kind, event.round) == ("covariance", rounds)
        assert "bonuses are now approximate" in event.detail
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            decide(policy, rounds, 10)
            assert policy.update().covariance == "diagonal"
            decide(policy, rounds + 10, 5)
        policy.save(tmp_path / "policy.rarely")
        assert rarely.load(tmp_path / "policy.rarely").fingerprint() == policy.fingerprint()
        assert len(policy.events) == 1
        assert policy.exact_rounds == 0

    def test_blocks_are_single_rounds(self):
        together, singly = small(), small()
        with pytest.warns(ApproximationWarning):
            one = together.select(STREAM[:80])
        with pytest.warns(ApproximationWarning):
            other = [singly.select(STREAM[t]) for t in range(80)]
        np.testing.assert_array_equal(one.arm, [each.arm for each in other])
        np.testing.assert_allclose(one.bonuses, [each.bonuses for each in other], rtol=1e-6)
        assert together.events == singly.events
        assert together.log_det == pytest.approx(singly.log_det, rel=1e-9)

    @pytest.mark.parametrize("within", ["frozen", "running"])
    @pytest.mark.filterwarnings("ignore::rarely.ApproximationWarning")
    def test_it_is_the_diagonal_of_what_was_exact(self, within):
        policy = small(within_batch=within)
        exact = small(within_batch=within, covariance="exact")
        for each in (policy, exact):
            decide(each, 0, 20)
            each.update()
        decide(policy, 20, threshold() - 20)
        decide(exact, 20, threshold() - 20)
        np.testing.assert_array_equal(policy.history.arms, exact.history.arms)
        assert (policy.covariance, exact.covariance) == ("diagonal", "dual")
        expected = converted(exact._covariance, "diagonal")
        probes = exact._learner.features(STREAM[100])
        for running in (False, True):
            np.testing.assert_allclose(
                policy._covariance.measure(probes, running=running).variances,
                expected.measure(probes, running=running).variances,
                rtol=1e-12,
            )

    @pytest.mark.parametrize("within", ["frozen", "running"])
    @pytest.mark.parametrize("chosen", [False, True], ids=["by the rule", "with_covariance"])
    @pytest.mark.filterwarnings("ignore::rarely.ApproximationWarning")
    def test_bonuses_keep_their_size(self, within, chosen, tmp_path):
        """The diagonal form measures √v on a scale of its own, many times larger where arms come again and again."""
        policy = small(within_batch=within, limits=Limits(operations=None) if chosen else LIMITS)
        exact = small(within_batch=within, covariance="exact")
        repeated = np.tile(STREAM[:4], (30, 1, 1))
        for each in (policy, exact):
            for part in (slice(0, 20), slice(20, threshold())):
                decision = each.select(repeated[part])
                each.observe(decision, rewards(repeated[part][np.arange(len(decision.arm)), decision.arm]))
                if part.start == 0:
                    each.update()
        if chosen:
            policy = policy.with_covariance("diagonal", reason="to be faster")
        assert (policy.covariance, exact.covariance) == ("diagonal", "dual")
        latest = exact.history.contexts[-RECENT:]
        sizes = [np.log(each.score(latest).bonuses).mean() for each in (policy, exact)]
        assert sizes[0] == pytest.approx(sizes[1], abs=1e-9)
        assert policy._state.current.unit != 1
        policy.save(tmp_path / "policy.rarely")
        np.testing.assert_array_equal(
            rarely.load(tmp_path / "policy.rarely").score(latest).bonuses, policy.score(latest).bonuses
        )

    @pytest.mark.filterwarnings("ignore::rarely.ApproximationWarning")
    @pytest.mark.parametrize("settings", [{}, {"forgetting": rarely.Window(25)}, {"within_batch": "frozen"}])
    def test_a_loaded_copy_goes_on_alike_after_an_update_from_elsewhere(self, settings, tmp_path):
        """Prepared before the change of form, adopted after it."""
        policy = small(**settings)
        decide(policy, 0, 10)
        policy.update()
        decide(policy, 10, 10)
        job = policy.prepare_update()
        decide(policy, 20, threshold() - 15)
        assert policy.covariance == "diagonal"
        unit = policy._covariance.running_unit
        policy.adopt(job.run())
        policy.save(tmp_path / "policy.rarely")
        loaded = rarely.load(tmp_path / "policy.rarely")
        for each in (policy, loaded):
            decide(each, 60, 40)
            assert each._state.current.unit == unit
        np.testing.assert_array_equal(loaded.history.bonuses, policy.history.bonuses)
        assert loaded.fingerprint() == policy.fingerprint()

    def test_what_is_unexplored_has_no_unit(self, tmp_path):
        """A file is read back whatever the unit is, and new arms look new."""
        policy = LinUCB(3, OnDemand(), within_batch="frozen")
        for arm, count in (([1.0, 1.0, 0.0], 100), ([1.0, -1.0, 0.0], 64)):
            policy.observe(policy.select(np.tile([arm, arm], (count, 1, 1))), np.sin(np.arange(count)))
            if count == 100:
                policy.update()
        policy = policy.with_covariance("diagonal", reason="to be faster")
        policy.observe(policy.select(np.tile([0.0, 0.0, 1.0], (20, 2, 1))), np.ones(20))
        assert policy._state.current.unit > 1
        assert policy._state.arm_stats.share <= 1
        policy.save(tmp_path / "policy.rarely")
        assert rarely.load(tmp_path / "policy.rarely").update().unexplored <= 1

    @pytest.mark.parametrize("within", ["frozen", "running"])
    @pytest.mark.filterwarnings("ignore::rarely.ApproximationWarning")
    def test_bonuses_keep_their_size_over_the_next_update(self, within):
        """Where updates are rare, the frozen matrix lacks most rounds, and its scale says nothing about the next."""
        sizes = []
        for limit in (LIMITS, Limits(operations=None)):
            policy = small(within_batch=within, limits=limit)
            for rounds in (4, threshold() + 20):
                decision = policy.select(np.tile(np.eye(2), (rounds, 1, 1)))
                policy.observe(decision, decision.arm + 0.1 * np.sin(np.arange(rounds)))
                policy.update()
            sizes.append(np.log(policy.score(np.eye(2)).bonuses).mean() - np.log(policy.beta))
        assert sizes[0] == pytest.approx(sizes[1], abs=0.7)

    @pytest.mark.filterwarnings("ignore::rarely.ApproximationWarning")
    def test_what_is_known_is_on_record_in_one_unit(self):
        """Deviations of chosen arms fall from batch to batch, also from the exact to the approximate ones."""
        policy = small(training=None, schedule=OnDemand())
        one_hot = np.tile(np.eye(2), (120, 1, 1))
        forms = []
        for start in range(0, 120, 20):
            decision = policy.select(one_hot[start : start + 20])
            policy.observe(decision, decision.arm + 0.1 * np.sin(np.arange(20)))
            forms.append(policy.update().covariance)
        found = [record.chosen for record in policy.updates]
        assert set(forms[:1] + forms[-1:]) == {"dual", "diagonal"}
        place = forms.index("diagonal")
        assert found[place] < 2 * found[place - 1]
        assert found[place + 1] < 2 * found[place]

    def test_exact_forms_and_other_presets_are_left_alone(self):
        for policy in (
            small(covariance="exact"),
            small(limits=Limits(operations=None)),
            small(covariance="dual"),
            small(preset="paper", limits=Limits(operations="auto")),
            small(preset="code", limits=Limits(operations="auto"), training=Training(5, 0.01)),
        ):
            decide(policy, 0, 100)
            assert policy.covariance in ("dual", "primal")
            assert not policy.events
        assert BatchNeuralUCB(2, OnDemand(), preset="paper").settings()["limits"]["operations"] is None
        assert BatchNeuralUCB(2, OnDemand(), preset="code").settings()["limits"]["operations"] is None
        assert BatchNeuralUCB(2, OnDemand()).settings()["limits"]["operations"] == 37_800_000

    @pytest.mark.filterwarnings("ignore::rarely.ApproximationWarning")
    def test_a_trigger_does_not_fire_because_of_the_change(self):
        policy = small(schedule=DeterminantTrigger(log_ratio=1e9))
        decide(policy, 0, 10)
        policy.update()
        before = policy.log_det - policy._state.clock.base_log_det
        decide(policy, 10, threshold() - 10, singly=True)
        assert policy.covariance == "diagonal"
        clock, covariance = policy._state.clock, policy._covariance
        assert clock.base_log_det == pytest.approx(covariance.frozen_log_det, rel=1e-9)
        assert before == pytest.approx(0.0, abs=1e-9)

    @pytest.mark.filterwarnings("ignore::rarely.ApproximationWarning")
    def test_more_arms_take_more_work(self):
        policy = small()
        decide(policy, 0, 20)
        assert policy.covariance == "dual"
        policy.select(np.random.default_rng(0).normal(size=(200, 2)))
        assert policy.covariance == "diagonal"
        assert policy._state.most_arms == 200

    @pytest.mark.filterwarnings("ignore::rarely.ApproximationWarning")
    @pytest.mark.parametrize("settings", [{"training": None}, {"forgetting": rarely.Window(60)}, {"training": 5}])
    def test_updates_elsewhere_go_across_it(self, settings, tmp_path):
        policy = small(**settings)
        decide(policy, 0, 20)
        for night in range(4):
            job = policy.prepare_update()
            decide(policy, 20 + 20 * night, 20)
            policy.adopt(job.run())
            policy.save(tmp_path / "policy.rarely")
            assert rarely.load(tmp_path / "policy.rarely").fingerprint() == policy.fingerprint()
        assert policy.covariance == "diagonal"


class TestRule:
    def test_it_is_known_at_construction(self):
        policy = BatchNeuralUCB(188, OnDemand(horizon=500_000), limits=Limits(arms=50), hidden=200, seed=0)
        assert parameters_of(policy._learner.widths) == 38_189
        assert 100 < policy.exact_rounds < 2000
        exact = BatchNeuralUCB(188, OnDemand(), limits=Limits(arms=50), hidden=200, seed=0, covariance="exact")
        assert exact.exact_rounds is None

    def test_a_small_problem_is_exact_for_life(self):
        policy = BatchNeuralUCB(3, OnDemand(horizon=10**6), limits=Limits(arms=5), hidden=20, seed=0)
        assert policy.exact_rounds is None

    def test_every_policy_says_how_long_it_stays_exact(self):
        assert LinUCB(4, OnDemand(horizon=1000)).exact_rounds is None
        assert rarely.KernelUCB(2).exact_rounds is None
        assert small(covariance="last_layer").exact_rounds == 0

    def test_blocks_say_how_many_arms_there_are(self):
        fixed = ArmBlocks(7, Affine.identity(3))
        policy = BatchNeuralUCB(schedule=OnDemand(horizon=10_000), seed=0, **fixed.settings)
        assert policy.settings()["limits"]["arms"] == 7
        again = BatchNeuralUCB(**policy.settings())
        assert (again.settings()["limits"], again.exact_rounds) == (
            policy.settings()["limits"],
            policy.exact_rounds,
        )
        assert LinUCB(schedule=OnDemand(), **fixed.settings).settings()["limits"]["arms"] is None  # exact in any case

    def test_a_roster_says_how_many_arms_are_open(self):
        roster = Roster(ArmBlocks(None, Affine.identity(2), "bilinear", features=Affine.identity(2)))
        assert roster.settings["context_scale"].arms is None
        for i in range(50):
            roster.open(f"article {i}", [i, 1.0])
        roster.close("article 0")
        policy = BatchNeuralUCB(schedule=OnDemand(horizon=500_000), hidden=200, seed=0, **roster.settings)
        assert policy.settings()["limits"]["arms"] == 49
        assert policy.exact_rounds is not None
        given = BatchNeuralUCB(schedule=OnDemand(), hidden=200, limits=Limits(arms=3), seed=0, **roster.settings)
        assert given.settings()["limits"]["arms"] == 3

    def test_decisions_are_the_same_whether_arms_are_known_or_seen(self, large):
        blocks = ArmBlocks(4, Affine.identity(3))
        known = blocks.settings
        seen = known | {"context_scale": replace(known["context_scale"], arms=None)}
        rows = np.random.default_rng(0).normal(size=(60, 3))
        lives = []
        for settings in (known, seen):
            policy = BatchNeuralUCB(schedule=OnDemand(horizon=200), hidden=8, limits=LIMITS, seed=0, **settings)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ApproximationWarning)
                lives.append([policy.select(blocks(row)).arm for row in rows] + [policy.covariance])
            assert policy.covariance == "diagonal"
        assert lives[0] == lives[1]

    @pytest.mark.parametrize("limit", [{"operations": 0}, {"operations": 0.5}, {"operations": "few"}, {"arms": 0}])
    def test_limits_are_checked(self, limit):
        with pytest.raises(InvalidInput, match=rf"limits\.{next(iter(limit))} must be"):
            Limits(**limit)

    def test_the_form_is_checked(self):
        with pytest.raises(InvalidInput, match="covariance must be one of"):
            small(covariance="quick")

    @pytest.mark.parametrize("arms", [1, 5, 50, 1000])
    @pytest.mark.parametrize("operations", [OPERATIONS, 4 * 10**6, 7 * 10**7])
    def test_the_threshold_is_the_last_round_allowed_rounded_down(self, arms, operations):
        """The printed formula: (K + 4)·t²/2 + (K + 2)·2ct multiplications in the t×t form."""
        c = sum(o + i for o, i in WIDTHS)

        def work(t):
            return (arms + 4) * t * t / 2 + (arms + 2) * 2 * c * t

        rounds = size_rule(WIDTHS, Limits().memory, operations, arms).dual_rounds
        limited = rounds < 4 * parameters_of(WIDTHS)  # beyond which a primal form that is allowed takes over
        assert rounds == 1 or work(rounds) <= operations
        assert not limited or work(int(1.5 * rounds) + 1) > operations

    @pytest.mark.parametrize("arms", [1, 50])
    def test_the_primal_form_is_allowed_by_the_printed_formula(self, arms):
        p = parameters_of(WIDTHS)
        work = (arms + 4) * p * p // 2 + arms * p
        assert size_rule(WIDTHS, Limits().memory, work, arms).primal
        assert not size_rule(WIDTHS, Limits().memory, work - 1, arms).primal
        assert not size_rule(WIDTHS, 44 * p * p - 1, work, arms).primal

    def test_the_better_approximation_that_is_allowed_is_taken(self):
        widths = ((200, 30), (1, 200))
        assert size_rule(widths, Limits().memory, 10**6, 5).approximation == "diagonal"
        narrow = ((2, 3000), (1, 2))
        assert size_rule(narrow, Limits().memory, 10**4, 5).approximation == "last_layer"

    def test_the_exact_form_that_is_allowed_comes_before_an_approximation(self):
        """A matrix that is rebuilt from many rounds at once is primal where that is allowed."""
        widths = ((20, 30), (1, 20))
        made = CovarianceFactory("auto", 0.1, Limits().memory, None, 37_800_000, 20)
        rounds = size_rule(widths, Limits().memory, 37_800_000, 20).dual_rounds
        assert size_rule(widths, Limits().memory, 37_800_000, 20).primal
        assert made.empty(widths, ahead=rounds + 100, rows=rounds + 1).kind == "primal"

    def test_without_arms_nothing_is_known(self):
        assert size_rule(((200, 300), (1, 200)), 10**6, OPERATIONS, 0).dual_rounds == UNLIMITED


class TestConversion:
    @pytest.mark.parametrize("kind", [Diagonal, LastLayer])
    @pytest.mark.parametrize("frozen", [0, 7, 30])
    def test_the_parts_of_a_matrix_are_those_of_its_rounds(self, kind, frozen):
        limit, past, probes = Limit(WIDTHS), factors(0, 30), factors(1, 4)
        dual, primal, plain = Dual(WIDTHS, 0.5, limit), Primal(WIDTHS, 0.5, limit), kind(WIDTHS, 0.5, limit)
        for form in (dual, primal, plain):
            for rows in (past[:frozen], past[frozen:]):
                form.accept(form.propose(form.measure(rows)), len(rows))
                if form.rounds == frozen:
                    form.freeze()
        for made in (converted(dual, kind.kind), converted(primal, kind.kind)):
            assert made.rounds == 30
            assert made.log_det == pytest.approx(plain.log_det, rel=1e-9)
            assert made.frozen_log_det == pytest.approx(plain.frozen_log_det, rel=1e-9, abs=1e-9)
            for running in (False, True):
                np.testing.assert_allclose(
                    made.measure(probes, running=running).variances,
                    plain.measure(probes, running=running).variances,
                    rtol=1e-8,
                )

    def test_the_original_is_untouched(self):
        dual = Dual(WIDTHS, 0.5, Limit(WIDTHS))
        dual.accept(dual.propose(dual.measure(factors(0, 9))), 9)
        before = copy.deepcopy(dual.state())
        converted(dual, "diagonal")
        after = dual.state()
        assert before[0] == after[0]
        for name, array in before[1].items():
            np.testing.assert_array_equal(array, after[1][name])


def test_prices_order_forms_as_clocks_do():
    """The order that `benchmarks/prices.py` measures, where forms differ by more than a factor of 1.2."""

    def order(widths, rounds):
        costs = rarely.prices(widths, rounds)
        return sorted((name for name in costs if costs[name].bytes < 2**28), key=lambda name: costs[name].seconds)

    assert order(((8, 6), (1, 8)), 400) == ["diagonal", "last_layer", "primal", "dual"]
    large = ((300, 20), (300, 300), (1, 300))
    assert order(large, 100) == ["last_layer", "dual", "diagonal"]
    assert order(large, 400) == ["last_layer", "diagonal", "dual"]


def test_where_no_approximation_is_small_enough_the_quickest_is_taken():
    assert size_rule(((8, 6), (1, 8)), 2**30, 1.0, 3, forms=len(factory.FORMS)).approximation == "diagonal"
    assert size_rule(((300, 300), (1, 300)), 2**30, 1.0, 3, forms=len(factory.FORMS)).approximation == "last_layer"

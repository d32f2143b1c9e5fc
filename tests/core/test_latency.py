"""A default that copes: exact while decisions are fast, then an approximation that is announced and on record."""

import copy
import time
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
from rarely.core.covariance import FAR, NOMINAL, Auto, Diagonal, LastLayer, Limit, auto, latency
from rarely.core.covariance.conversion import from_dual, from_primal
from rarely.core.covariance.dual import Dual
from rarely.core.covariance.latency import OVERHEAD, Latency, Rates
from rarely.core.covariance.primal import Primal
from rarely.core.model.features import Factors
from rarely.core.policies import limits
from rarely.core.policies.form_change import RECENT
from worlds import contexts, rewards

STREAM = contexts(seed=41, rounds=120)
SLOW = Rates(2.0**23, 2.0**40)
"""With 3 arms and p = 160 it keeps the dual form fast for about 30 rounds, and the primal one never."""
LIMITS = Limits(latency=OVERHEAD + 0.002)
WIDTHS = ((40, 3), (1, 40))


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setattr(auto, "SMALL", 8)
    monkeypatch.setattr(limits, "NOMINAL", SLOW)


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
    return Latency(OVERHEAD + 0.002, 3, SLOW).dual_rounds(WIDTHS)


def factors(seed, count):
    rng = np.random.default_rng(seed)
    inputs = tuple(rng.normal(size=(count, i)) for _, i in WIDTHS)
    return Factors(inputs, tuple(rng.normal(size=(count, o)) for o, _ in WIDTHS))


@pytest.mark.usefixtures("slow")
class TestSwitch:
    def test_it_is_exact_until_it_would_be_slow_and_says_when_it_is_not(self, tmp_path):
        policy, rounds = small(), threshold()
        assert 16 < rounds < 100
        assert policy.cost.exact_rounds is None  # nobody has said how many arms there are
        decide(policy, 0, 1)
        assert policy.cost.exact_rounds == rounds
        decide(policy, 1, rounds - 2)
        assert policy.covariance == "dual"
        assert not policy.events
        with pytest.warns(ApproximationWarning, match=r"limits.latency = 2.6 ms .* 3 arms with p = 160"):
            decide(policy, rounds - 1, 1)
        assert policy.covariance == "diagonal"
        (event,) = policy.events
        assert (event.kind, event.round) == ("covariance", rounds)
        assert "no bound" in event.detail
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            decide(policy, rounds, 10)
            assert policy.update().covariance == "diagonal"
            decide(policy, rounds + 10, 5)
        policy.save(tmp_path / "policy.rarely")
        assert rarely.load(tmp_path / "policy.rarely").fingerprint() == policy.fingerprint()
        assert len(policy.events) == 1
        assert not policy.cost.exact
        assert "approximate" in str(policy.cost)

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
        expected = from_dual(exact._covariance._inner, Diagonal(WIDTHS, 0.01, Limit(WIDTHS)))
        probes = exact._learner.features(STREAM[100])
        for running in (False, True):
            np.testing.assert_allclose(
                policy._covariance.measure(probes, running=running).variances,
                expected.measure(probes, running=running).variances,
                rtol=1e-12,
            )

    @pytest.mark.parametrize("within", ["frozen", "running"])
    @pytest.mark.parametrize("chosen", [False, True], ids=["by the clock", "with_covariance"])
    @pytest.mark.filterwarnings("ignore::rarely.ApproximationWarning")
    def test_bonuses_keep_their_size(self, within, chosen, tmp_path):
        """The diagonal form measures √v on a scale of its own, many times larger where arms come again and again."""
        policy = small(within_batch=within, limits=Limits(latency=None) if chosen else LIMITS)
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
        assert policy._state.frozen.unit != 1
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
        unit = policy._state.frozen.next_unit
        policy.adopt(job.run())
        policy.save(tmp_path / "policy.rarely")
        loaded = rarely.load(tmp_path / "policy.rarely")
        for each in (policy, loaded):
            decide(each, 60, 40)
            assert each._state.frozen.unit == unit
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
        assert policy._state.frozen.unit > 1
        assert policy._state.offered.share <= 1
        policy.save(tmp_path / "policy.rarely")
        assert rarely.load(tmp_path / "policy.rarely").update().unexplored <= 1

    @pytest.mark.parametrize("within", ["frozen", "running"])
    @pytest.mark.filterwarnings("ignore::rarely.ApproximationWarning")
    def test_bonuses_keep_their_size_over_the_next_update(self, within):
        """Where updates are rare, the frozen matrix lacks most rounds, and its scale says nothing about the next."""
        sizes = []
        for limit in (LIMITS, Limits(latency=None)):
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

    def test_a_file_keeps_the_rates_that_it_was_made_with(self, tmp_path, monkeypatch):
        policy = small()
        decide(policy, 0, 20)
        policy.save(tmp_path / "policy.rarely")
        monkeypatch.setattr(limits, "NOMINAL", Rates(2.0**40, 2.0**50))
        loaded = rarely.load(tmp_path / "policy.rarely")
        for each in (policy, loaded):
            with pytest.warns(ApproximationWarning):
                decide(each, 20, 60)
        assert loaded.events == policy.events
        assert loaded.fingerprint() == policy.fingerprint()

    def test_exact_forms_and_other_presets_are_left_alone(self):
        for policy in (
            small(covariance="exact"),
            small(limits=Limits(latency=None)),
            small(covariance="dual"),
            small(preset="paper", limits=Limits(latency="auto")),
            small(preset="code", limits=Limits(latency="auto"), training=Training(5, 0.01)),
        ):
            decide(policy, 0, 100)
            assert policy.covariance in ("dual", "primal")
            assert not policy.events
        assert BatchNeuralUCB(2, OnDemand(), preset="paper").settings()["limits"]["latency"] is None
        assert BatchNeuralUCB(2, OnDemand(), preset="code").settings()["limits"]["latency"] is None
        assert BatchNeuralUCB(2, OnDemand()).settings()["limits"]["latency"] == 0.005

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
    def test_more_arms_take_longer(self):
        policy = small()
        decide(policy, 0, 20)
        assert policy.covariance == "dual"
        policy.select(np.random.default_rng(0).normal(size=(200, 2)))
        assert policy.covariance == "diagonal"
        assert policy.cost.arms == 200

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


class TestCost:
    def test_it_is_known_at_construction(self, monkeypatch):
        monkeypatch.setattr(limits, "NOMINAL", Rates(2.0**32, 2.0**33))
        policy = BatchNeuralUCB(188, OnDemand(horizon=500_000), limits=Limits(arms=50), seed=0)
        cost = policy.cost
        assert (cost.parameters, cost.arms, cost.rounds, cost.latency) == (38_189, 50, 500_000, 0.005)
        assert not cost.exact
        assert 100 < cost.exact_rounds < 2000
        assert cost.seconds < 0.005
        assert cost.bytes < 10_000_000
        said = str(cost)
        assert "at round 500,000 a decision among 50 arms takes about" in said
        assert "within 5 ms" in said
        exact = BatchNeuralUCB(188, OnDemand(), limits=Limits(arms=50), seed=0, covariance="exact").cost
        assert exact.exact
        assert "bonuses are exact" in str(exact)

    def test_a_small_problem_is_exact_for_life(self):
        cost = BatchNeuralUCB(3, OnDemand(horizon=10**6), limits=Limits(arms=5), hidden=20, seed=0).cost
        assert cost.exact
        assert cost.exact_rounds is None
        assert cost.seconds < 0.005

    def test_every_policy_has_one(self):
        assert LinUCB(4, OnDemand(horizon=1000)).cost.bytes < 10_000
        assert rarely.KernelUCB(2).cost.exact
        assert not small(covariance="last_layer").cost.exact
        assert small(covariance=rarely.Sketch(20), limits=replace(LIMITS, arms=4)).cost.seconds > 0

    def test_blocks_say_how_many_arms_there_are(self):
        fixed = ArmBlocks(7, Affine.identity(3))
        policy = BatchNeuralUCB(schedule=OnDemand(horizon=10_000), seed=0, **fixed.settings)
        assert policy.cost.arms == 7
        assert policy.cost.seconds > 0
        assert BatchNeuralUCB(**policy.settings()).cost == policy.cost
        assert LinUCB(schedule=OnDemand(), **fixed.settings).cost.arms is None  # exact in any case

    def test_a_roster_says_how_many_arms_are_open(self):
        roster = Roster(ArmBlocks(None, Affine.identity(2), "bilinear", features=Affine.identity(2)))
        assert roster.settings["context_scale"].arms is None
        for i in range(50):
            roster.open(f"article {i}", [i, 1.0])
        roster.close("article 0")
        policy = BatchNeuralUCB(schedule=OnDemand(horizon=500_000), seed=0, **roster.settings)
        assert policy.cost.arms == 49
        assert not policy.cost.exact
        assert BatchNeuralUCB(schedule=OnDemand(), limits=Limits(arms=3), seed=0, **roster.settings).cost.arms == 3

    def test_decisions_are_the_same_whether_arms_are_known_or_seen(self, slow):
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

    @pytest.mark.parametrize("limit", [{"latency": 0.0}, {"latency": "fast"}, {"arms": 0}])
    def test_limits_are_checked(self, limit):
        with pytest.raises(InvalidInput, match=rf"limits\.{next(iter(limit))} must be"):
            Limits(**limit)

    def test_the_form_is_checked(self):
        with pytest.raises(InvalidInput, match="covariance must be one of"):
            small(covariance="quick")


class TestModel:
    def test_rates_are_measured_once_and_fast(self):
        latency.rates.cache_clear()
        start = time.process_time()
        found = latency.rates()
        assert time.process_time() - start < 0.5
        assert latency.rates() is found
        assert all(np.log2(rate) == int(np.log2(rate)) for rate in (found.operations, found.reads))

    @pytest.mark.parametrize("arms", [1, 5, 50, 1000])
    @pytest.mark.parametrize("rates", [Rates(2.0**30, 2.0**33), Rates(2.0**34, 2.0**35), SLOW])
    def test_the_threshold_is_the_last_round_in_time_rounded_down(self, arms, rates):
        allowed = Latency(0.005, arms, rates)
        rounds = allowed.dual_rounds(WIDTHS)
        assert rounds == 1 or allowed.allows("dual", WIDTHS, rounds)
        assert not allowed.allows("dual", WIDTHS, int(1.5 * rounds) + 1)

    def test_the_exact_form_that_fits_comes_before_an_approximation(self):
        """A matrix that is built again from many rounds at once is primal where that keeps to the latency."""
        widths = ((20, 30), (1, 20))
        allowed = Latency(0.005, 20, NOMINAL)
        rounds = allowed.dual_rounds(widths)
        assert allowed.allows("primal", widths, 0)
        made = Auto(widths, 0.1, Limit(widths), rounds + 100, rows=rounds + 1, latency=allowed)
        assert made.kind == "primal"

    def test_without_arms_nothing_is_known(self):
        assert Latency(0.005, None, SLOW).dual_rounds(WIDTHS) == FAR


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
        for made in (from_dual(dual, kind(WIDTHS, 0.5, limit)), from_primal(primal, kind(WIDTHS, 0.5, limit))):
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
        from_dual(dual, Diagonal(WIDTHS, 0.5, Limit(WIDTHS)))
        after = dual.state()
        assert before[0] == after[0]
        for name, array in before[1].items():
            np.testing.assert_array_equal(array, after[1][name])

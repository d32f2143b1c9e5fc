"""Train elsewhere, go on deciding: a job, its result, and what the policy is after it has adopted it."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rarely
from interrupts import lines_of
from rarely import (
    AtRounds,
    BatchNeuralUCB,
    BudgetSpent,
    DeterminantTrigger,
    InvalidInput,
    NothingToLearn,
    OnDemand,
    OutlierWarning,
    Paced,
    PolicyBusy,
    RejectedWarning,
    StaleUpdate,
    UpdateJob,
    WrongUpdate,
)
from worlds import MAKERS, contexts, play, rewards

STREAM = contexts(seed=21, rounds=60)
SCHEDULES = {
    "on demand": lambda: OnDemand(),
    "limited": lambda: OnDemand(batches=9),
    "grid": lambda: AtRounds([5, 11, 14, 30]),
    "trigger": lambda: DeterminantTrigger(log_ratio=2.0),
    "paced": lambda: Paced(60, 8),
}
FIXED = ("paper", "deep", "primal", "diagonal", "last_layer", "running", "random_ties", "sgd", "linear")
FIXED += ("thompson", "mixture", "linear_thompson", "uniform")
"""Makers whose features depend on no scale that contexts change, and that forget nothing."""


def told(decision, start, skipped=()):
    """Rounds and rewards of a decision that started at a row of the stream."""
    rows = np.array([i for i in range(len(decision)) if i not in skipped], int)
    return decision[rows], rewards(STREAM[start + rows, decision.arm[rows]])


def decide(policy, start, count, skipped=()):
    """So many single rounds, most of them rewarded; log det after each."""
    log_dets = []
    for t in range(start, start + count):
        decision = policy.select(STREAM[t])
        log_dets.append(policy.log_det)
        if t - start not in skipped:
            policy.observe(decision, rewards(STREAM[t, decision.arm])[0])
    return np.array(log_dets)


def prepared(name, schedule=None, before=12):
    """A policy in mid-life that has made one update, and rewards that are new."""
    policy = MAKERS[name](schedule or OnDemand())
    decide(policy, 0, before - 4, skipped=(2,))
    policy.update(force=True)
    decide(policy, before - 4, 4, skipped=(1,))
    return policy


def numbers_of(learner):
    """All of a learner but the contexts that it has seen."""
    numbers, arrays = learner.state()
    moving = ("zeros", "offered", "seen", "seen_rounds", "seen_mean", "seen_squares")
    return {k: v for k, v in numbers.items() if k not in moving}, {k: v for k, v in arrays.items() if k not in moving}


def assert_same_learner(one, other):
    (numbers, arrays), (others, other_arrays) = numbers_of(one), numbers_of(other)
    assert numbers == others
    assert arrays.keys() == other_arrays.keys()
    for key, array in arrays.items():
        np.testing.assert_array_equal(array, other_arrays[key])


def expected_variances(origin, now, fit, probes):
    """φᵀZ⁻¹φ as an update at the cut and a replay of the rounds since would have it."""
    learner, factory, history = origin._learner, origin._factory, origin.history
    basis = fit.learner if history.forgetting is not None else fit.basis
    if basis is None and learner.follows:
        basis = learner.with_scale(fit.learner.scale)
    features = fit.learner.features(probes)
    if basis is None:
        running = now._covariance.fork()
        running.freeze()
        return running.measure(features).variances
    covariance = factory.build(basis.features, basis.widths, *history.remembered()[1:])
    factory.add(covariance, basis.features, now.history.contexts_since(history.rounds))
    covariance.freeze()
    return covariance.measure(features).variances


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=max(3, settings.default.max_examples // 5))
@given(
    schedule=st.sampled_from(list(SCHEDULES)),
    before=st.integers(1, 20),
    meanwhile=st.integers(0, 20),
    skipped=st.sets(st.integers(0, 19)),
    restarts=st.booleans(),
)
def test_adoption_is_an_update_at_the_cut_and_a_replay_of_the_rounds_since(
    name, schedule, before, meanwhile, skipped, restarts
):
    policy = MAKERS[name](SCHEDULES[schedule]())
    decide(policy, 0, before, skipped)
    assume(policy.history.arrived)
    if before > 8 and not policy.schedule.spent(0):
        policy.update()
        decide(policy, before, 3)
    origin = copy.deepcopy(policy)
    assume(not policy.schedule.spent(policy.version))
    job = policy.prepare_update()
    assert policy.fingerprint() == origin.fingerprint()
    fit = origin._learner.learn(origin.history)
    result = pickle.loads(pickle.dumps(job)).run()
    start, log_det = policy.round, policy.log_det
    log_dets = decide(policy, start, meanwhile, skipped)
    now = copy.deepcopy(policy)
    if restarts:
        policy = copy.deepcopy(policy)
    record = policy.adopt(pickle.loads(pickle.dumps(result)))

    assert (record.round, record.adopted, record.accepted) == (start, start + meanwhile, not fit.reason)
    assert (record.samples, record.missing) == (origin.history.counted, origin.missing)
    assert policy.version == origin.version + (not fit.reason)
    assert_same_learner(policy._learner, fit.learner)
    if policy._learner.fits_scale:
        for name_, moment in vars(now._learner.moments).items():
            np.testing.assert_array_equal(moment, getattr(policy._learner.moments, name_))
    places, kept = now.history._kept.positions(policy.history.rows)
    assert kept.all()
    for column in ("contexts", "rewards", "arms", "versions", "means", "bonuses", "propensities"):
        np.testing.assert_array_equal(getattr(policy.history, column), getattr(now.history, column)[places])
    assert policy.missing + policy.history.abandoned == now.missing + now.history.abandoned
    assert record.dropped == policy.history.dropped - now.history.dropped
    probes = STREAM[55, :, :]
    np.testing.assert_allclose(
        policy._covariance.measure(policy._learner.features(probes)).variances,
        expected_variances(origin, now, fit, probes),
        rtol=1e-6,
        atol=1e-12,
    )
    clock = policy._state.clock
    assert clock.base_round == start
    rebuilt = result.covariance is not None
    if not rebuilt and not origin._learner.follows:
        first = clock.first_due(start, np.append(log_dets, []) if meanwhile else np.empty(0))
        assert policy.due == (first is not None)
        assert clock.base_log_det == pytest.approx(log_det, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", FIXED)
def test_it_is_the_policy_whose_rewards_since_the_cut_come_late(name):
    policy = prepared(name)
    late = copy.deepcopy(policy)
    job = policy.prepare_update()
    one, other = policy.select(STREAM[12:20]), late.select(STREAM[12:20])
    np.testing.assert_array_equal(one.arm, other.arm)
    policy.observe(*told(one, 12, skipped=(3,)))
    policy.adopt(job.run())
    late.update()
    late.observe(*told(other, 12, skipped=(3,)))
    for t in range(20, 40):
        a, b = policy.select(STREAM[t]), late.select(STREAM[t])
        assert (a.arm, a.version, a.round) == (b.arm, b.version, b.round)
        np.testing.assert_array_equal(a.means, b.means)
        np.testing.assert_array_equal(a.bonuses, b.bonuses)
        for each, decision in ((policy, a), (late, b)):
            each.observe(decision, rewards(STREAM[t, decision.arm])[0])
        if t == 30:
            assert policy.update().samples == late.update().samples
    assert policy.log_det == late.log_det


@pytest.mark.parametrize("name", MAKERS)
def test_without_rounds_in_between_it_is_an_update(name):
    policy = prepared(name)
    other = copy.deepcopy(policy)
    policy.adopt(policy.prepare_update().run())
    other.update()
    assert policy.fingerprint() == other.fingerprint()


@pytest.mark.parametrize("name", ["tuned", "linear", "window", "kernel", "neural_linear"])
def test_a_policy_may_be_saved_and_loaded_in_between(name, tmp_path):
    policy = prepared(name)
    policy.save(tmp_path / "policy.rarely")
    job = policy.prepare_update()
    decide(policy, 12, 5)
    policy.save(tmp_path / "policy.rarely")
    loaded = rarely.load(tmp_path / "policy.rarely")
    result = job.run()
    assert policy.adopt(result).version == 2
    loaded.adopt(result)
    assert loaded.fingerprint() == policy.fingerprint()
    loaded.save(tmp_path / "policy.rarely")
    again = rarely.load(tmp_path / "policy.rarely")
    assert again.fingerprint() == policy.fingerprint()
    assert again.updates[-1].adopted == 17


def test_ids_never_repeat_and_decisions_of_the_old_version_are_rewarded_later():
    policy = prepared("tuned")
    job = policy.prepare_update()
    meanwhile = policy.select(STREAM[12:16])
    policy.adopt(job.run())
    after = policy.select(STREAM[16:20])
    assert not set(meanwhile.id) & set(after.id)
    assert (set(meanwhile.version), set(after.version)) == ({1}, {2})
    policy.observe(ids=meanwhile.id, rewards=[1.0, 2.0, 3.0, 4.0])
    assert policy.update().samples == 14


def test_a_job_runs_in_another_process(tmp_path):
    policy = prepared("tuned")
    (tmp_path / "job").write_bytes(pickle.dumps(policy.prepare_update()))
    program = "import pickle, sys; print(pickle.loads(open(sys.argv[1], 'rb').read()).run().accepted)"
    found = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "job")], check=True, capture_output=True, text=True
    )
    assert found.stdout == "True\n"


def test_a_job_has_no_covariance_and_little_else():
    policy = rarely.BatchNeuralUCB(2, OnDemand(), hidden=40, seed=0, covariance="dual")
    decision = policy.select(contexts(rounds=800))
    policy.observe(decision, np.zeros(800))
    whole, job = (len(pickle.dumps(it)) for it in (policy, policy.prepare_update()))
    assert job < 0.05 * whole
    assert job < 100_000


class TestRefusals:
    def test_a_result_of_another_policy(self):
        policy, other = prepared("tuned"), prepared("tuned")
        result = other.prepare_update().run()
        before = policy.fingerprint()
        with pytest.raises(WrongUpdate, match="another policy"):
            policy.adopt(result)
        assert policy.fingerprint() == before
        with pytest.raises(WrongUpdate, match="another policy"):
            prepared("paper").adopt(result)

    def test_a_second_adoption(self):
        policy = prepared("linear")
        result = policy.prepare_update().run()
        policy.adopt(result)
        before = policy.fingerprint()
        with pytest.raises(StaleUpdate, match="adopted already"):
            policy.adopt(result)
        assert policy.fingerprint() == before

    def test_an_update_that_another_one_overtook(self):
        policy = prepared("linear")
        job = policy.prepare_update()
        decide(policy, 12, 2)
        policy.update()
        with pytest.raises(StaleUpdate, match="prepare_update again"):
            policy.adopt(job.run())

    def test_decisions_that_a_restart_has_lost(self, tmp_path):
        policy = prepared("linear")
        policy.save(tmp_path / "policy.rarely")
        decide(policy, 12, 3)
        result = policy.prepare_update().run()
        loaded = rarely.load(tmp_path / "policy.rarely")
        with pytest.raises(WrongUpdate, match="restart"):
            loaded.adopt(result)
        decide(loaded, 12, 3)
        with pytest.raises(WrongUpdate, match="restart"):
            loaded.adopt(result)

    def test_rewards_that_a_restart_has_lost(self, tmp_path):
        policy = prepared("linear")
        decision = policy.select(STREAM[12:16])
        policy.save(tmp_path / "policy.rarely")
        policy.observe(decision[:2], [1.0, 2.0])
        result = policy.prepare_update().run()
        loaded = rarely.load(tmp_path / "policy.rarely")
        loaded.observe(ids=decision[1:3].id, rewards=[2.0, 1.0])
        with pytest.raises(WrongUpdate, match="lost"):
            loaded.adopt(result)

    def test_nothing_to_learn_and_a_spent_budget(self):
        policy = MAKERS["linear"](OnDemand(batches=2))
        with pytest.raises(NothingToLearn, match="no reward has arrived yet"):
            policy.prepare_update()
        decide(policy, 0, 3)
        policy.update()
        with pytest.raises(BudgetSpent, match="extend_budget"):
            policy.prepare_update()
        policy.extend_budget(1, reason="one more")
        with pytest.raises(NothingToLearn, match="since the last"):
            policy.prepare_update()
        assert isinstance(policy.prepare_update(force=True), UpdateJob)

    def test_something_else(self):
        with pytest.raises(InvalidInput, match=r"job.run\(\)"):
            prepared("linear").adopt(None)


def test_a_rejected_training_is_recorded_and_the_version_stays():
    policy = prepared("linear")
    policy.observe(policy.select(STREAM[12]), 1e308)
    policy.observe(policy.select(STREAM[12]), 1e308)
    job = policy.prepare_update()
    decide(policy, 13, 4)
    with pytest.warns(RejectedWarning), pytest.warns(OutlierWarning):
        record = policy.adopt(job.run())
    assert not record.accepted
    assert (policy.version, record.round, record.adopted) == (1, 14, 18)
    assert policy.round == 18


@pytest.mark.parametrize("name", ["tuned", "linear", "window"])
def test_an_interrupted_adoption_changes_nothing(name):
    policy = prepared(name)
    result = policy.prepare_update().run()
    decide(policy, 12, 3)
    finished = copy.deepcopy(policy)
    lines = lines_of(lambda: finished.adopt(result))
    before, after = policy.fingerprint(), finished.fingerprint()
    for stop in np.linspace(1, lines - 4, 25).astype(int):
        lines_of(lambda: policy.adopt(result), int(stop))
        assert policy.fingerprint() == before
    policy.adopt(result)
    assert policy.fingerprint() == after


class TestProgress:
    @pytest.mark.parametrize("name", ["paper", "tuned", "sgd", "linear", "window", "kernel_steps", "neural_linear"])
    def test_it_rises_to_one_and_changes_no_number(self, name):
        policy = prepared(name)
        silent, told = copy.deepcopy(policy), []
        policy.update(progress=lambda *where: told.append(where))
        silent.update()
        assert policy.fingerprint() == silent.fingerprint()
        fractions = [fraction for fraction, _ in told]
        assert fractions == sorted(fractions)
        assert told[0] == (0.0, "training")
        assert told[-1] == (1.0, "done")
        assert {phase for _, phase in told} <= {"training", "covariance", "done"}
        if name in ("paper", "tuned"):
            assert len(told) > 10

    @pytest.mark.parametrize("name", ["paper", "tuned", "window"])
    def test_a_callback_that_raises_changes_nothing(self, name):
        policy = prepared(name)
        before, calls = policy.fingerprint(), []
        policy_after = copy.deepcopy(policy)
        policy_after.update(progress=lambda *where: calls.append(where))
        for stop in range(0, len(calls), 3):
            left = iter(range(stop))

            def callback(fraction, phase, left=left):
                if next(left, None) is None:
                    raise KeyError(phase)

            with pytest.raises(KeyError):
                policy.update(progress=callback)
            assert policy.fingerprint() == before
        policy.update()
        assert policy.fingerprint() == policy_after.fingerprint()

    def test_a_callback_must_not_change_the_policy(self):
        policy = prepared("linear")
        with pytest.raises(PolicyBusy):
            policy.update(progress=lambda *where: policy.select(STREAM[0]))


def test_play_with_jobs_keeps_every_reward():
    policy = MAKERS["tuned"](OnDemand())
    play(policy, STREAM[:10])
    for night in range(4):
        job = policy.prepare_update()
        decide(policy, 10 + 10 * night, 10)
        assert policy.adopt(job.run()).samples == 10 + 10 * night
    assert policy.version == 4


@pytest.mark.parametrize("covariance", ["dual", "primal", "diagonal", "last_layer", "auto"])
def test_a_result_adopted_by_two_policies_is_the_start_of_two_futures(covariance):
    rng = np.random.default_rng(0)
    policy = BatchNeuralUCB(3, OnDemand(), hidden=8, covariance=covariance, seed=0)  # Z is built anew
    policy.observe(policy.select(rng.normal(size=(30, 3, 3))), rng.normal(size=30))
    twin, result = copy.deepcopy(policy), policy.prepare_update().run()
    references = [copy.deepcopy(policy), copy.deepcopy(twin)]
    streams = rng.normal(size=(2, 20, 3, 3))
    for one, reference, stream in zip((policy, twin), references, streams, strict=True):
        one.adopt(result)
        reference.adopt(pickle.loads(pickle.dumps(result)))
        one.select(stream)
        reference.select(stream)
    probe = rng.normal(size=(10, 3, 3))
    for one, reference in zip((policy, twin), references, strict=True):
        np.testing.assert_array_equal(one.select(probe).bonuses, reference.select(probe).bonuses)
        assert one.fingerprint() == reference.fingerprint()

"""Another form of Z in mid-life, and what it does on record."""

import numpy as np
import pytest

import rarely
from rarely import (
    AtRounds,
    BatchNeuralUCB,
    DeterminantTrigger,
    HistoryDropped,
    InvalidInput,
    KernelUCB,
    Limits,
    LinUCB,
    OnDemand,
    TooExpensive,
    Window,
)
from rarely._core.covariance import FORMS as KNOWN_FORMS
from rarely._core.covariance import Candidates, Covariance, Primal, Proposal, prices
from worlds import MAKERS, contexts, rewards, small

STREAM = contexts(seed=51, rounds=120)
EXACT = ("dual", "primal", "auto", "exact")
FORMS = (*EXACT, "diagonal", "last_layer")


def decide(policy, start, count):
    decision = policy.select(STREAM[start : start + count])
    policy.observe(decision, rewards(STREAM[start + np.arange(count), decision.arm]))
    return decision


def lived(schedule=None, **own):
    policy = small(schedule or OnDemand(), **own)
    decide(policy, 0, 12)
    policy.update()
    decide(policy, 12, 7)
    return policy


def variances(policy, running):
    return policy._covariance.measure(policy._learner.features(STREAM[100]), running=running).variances


@pytest.mark.parametrize("source", FORMS, ids=str)
@pytest.mark.parametrize("target", FORMS, ids=str)
def test_any_form_follows_any_other(source, target, tmp_path):
    policy = lived(covariance=source)
    before = policy.fingerprint()
    other = policy.with_covariance(target, reason="to try")
    assert policy.fingerprint() == before
    assert (other.round, other.version, other.missing) == (policy.round, policy.version, policy.missing)
    assert other.settings()["covariance"] == target
    (event,) = other.events
    assert (event.kind, event.round, event.reason) == ("covariance", 19, "to try")
    # The oracle: the same rounds, decided in the target form from the start; features of version 1 are its own, and
    # those of version 0 too unless Z was built again.
    assert f"of {policy.round} rounds" in event.detail
    if source in EXACT and "rebuilt" not in event.detail:
        plain = lived(covariance=target)
        if (plain.history.arms == policy.history.arms).all():
            for running in (False, True):
                np.testing.assert_allclose(variances(other, running), variances(plain, running), rtol=1e-7)
            assert other.log_det == pytest.approx(plain.log_det, rel=1e-7)
    other.save(tmp_path / "policy.rarely")
    loaded = rarely.load(tmp_path / "policy.rarely")
    assert loaded.fingerprint() == other.fingerprint()
    for each in (other, loaded):
        decide(each, 19, 10)
        assert each.update().accepted
        decide(each, 29, 5)
    assert loaded.fingerprint() == other.fingerprint()
    other.save(tmp_path / "policy.rarely")
    assert rarely.load(tmp_path / "policy.rarely").fingerprint() == other.fingerprint()


@pytest.mark.parametrize("source", ["diagonal", "last_layer"])
@pytest.mark.parametrize("own", [{}, {"forgetting": Window(9)}, {"schedule": AtRounds([12])}], ids=str)
def test_from_an_approximation_z_is_built_again_with_the_features_in_use(source, own):
    policy = lived(covariance=source, **own)
    other = policy.with_covariance("primal")
    learner, history = other._learner, other.history
    features = learner.features(history.contexts).vectors()
    weights = np.ones(19)
    if own.get("forgetting"):
        weights[:3] = 0.0  # the update after round 12 remembered nine
    for running, rows in ((True, 19), (False, 12)):
        kept = features[:rows] * np.sqrt(weights[:rows, None])
        matrix = 0.1 * np.eye(features.shape[1]) + kept.T @ kept
        probes = learner.features(STREAM[100]).vectors()
        expected = np.einsum("ij,ij->i", probes, np.linalg.solve(matrix, probes.T).T)
        np.testing.assert_allclose(variances(other, running), expected, rtol=1e-8)
    assert "features of version 1" in other.events[-1].detail


def test_a_limit_alone_keeps_the_form_and_its_numbers():
    for name in ("paper", "primal", "diagonal", "last_layer", "linear", "kernel"):
        policy = MAKERS[name](OnDemand())
        decide(policy, 0, 15)
        other = policy.with_covariance(memory_limit=10**8)
        assert other.covariance == policy.covariance
        assert other.log_det == policy.log_det
        assert other.settings()["limits"]["memory"] == 10**8
        np.testing.assert_array_equal(variances(other, True), variances(policy, True))
        decide(other, 15, 5)


class Plain(Covariance):
    """The dense inverse: a form with what every form must have, and no more."""

    kind, exact = "plain", True
    price = classmethod(Primal.price.__func__)

    def __init__(self, widths, ridge, limit):
        super().__init__(widths, ridge, limit)
        self.running = self.frozen = np.eye(sum(o * i for o, i in widths)) / ridge

    def measure(self, factors, *, running=False):
        inverse = self.running if running else self.frozen
        return Candidates(factors, np.einsum("np,pq,nq->n", factors.vectors(), inverse, factors.vectors()))

    def propose(self, chosen):
        self.steps, log_dets, log_det = [self.running], [], self.log_det
        for feature in chosen.factors.vectors():
            solved = self.steps[-1] @ feature
            log_det += np.log1p(feature @ solved)
            self.steps.append(self.steps[-1] - np.outer(solved, solved) / (1 + feature @ solved))
            log_dets.append(log_det)
        return Proposal(chosen.factors, np.array(log_dets))

    def accept(self, proposal, count):
        if count:
            self.running, self.log_det = self.steps[count], float(proposal.log_dets[count - 1])
            self.rounds += count

    def freeze(self):
        super().freeze()
        self.frozen = self.running

    def state(self):
        raise NotImplementedError

    read = state


@pytest.fixture(autouse=True)
def known_forms():
    """Other tests see the package's forms alone."""
    KNOWN_FORMS["plain"] = Plain
    yield
    KNOWN_FORMS.pop("plain")


KNOWN_FORMS.pop("plain")


def test_a_form_of_the_users_is_made_of_the_dual_form_and_else_of_the_rounds_on_record():
    for source in FORMS:
        policy = lived(covariance=source)
        other = policy.with_covariance("plain")
        assert other.covariance == "plain"
        rebuilt = "made from the matrix in use" if policy.covariance == "dual" else "rebuilt from the history"
        assert rebuilt in other.events[-1].detail
        again = policy.with_covariance("diagonal").with_covariance("primal")  # a diagonal holds too little as well
        truth = policy if policy.covariance == "dual" else again
        back = other.with_covariance("auto")
        for running in (False, True):
            np.testing.assert_allclose(variances(other, running), variances(truth, running), rtol=1e-6)
            np.testing.assert_allclose(variances(back, running), variances(again, running), rtol=1e-6)
        decide(other, 19, 5)


def test_a_form_of_the_users_is_listed_with_its_price():
    assert prices(((3, 2),), 10)["plain"].bytes == prices(((3, 2),), 10)["primal"].bytes
    with pytest.raises(TooExpensive, match=r"The others: .*plain \(exact\)"):
        LinUCB(dim=50, covariance="diagonal", limits=Limits(memory=100))


def test_a_form_without_a_price_is_refused_with_what_to_add():
    with pytest.raises(InvalidInput, match=r"Free must have a price.* price\(widths, rounds, row=None\)"):
        type("Free", (Covariance,), {"kind": "free"})


def test_a_form_that_auto_may_choose_can_be_made_of_a_matrix():
    with pytest.raises(InvalidInput, match="auto_rank"):
        type("Ranked", (Covariance,), {"kind": "ranked", "price": Primal.price, "auto_rank": 0.0})


def test_forms_are_compared_at_a_round_at_which_all_of_them_cost_something():
    with pytest.raises(TooExpensive, match=r"at 1000 rounds it needs 1\.22 kB\. The others: dual \(exact\): 5\.44 MB"):
        LinUCB(dim=50, covariance="diagonal", limits=Limits(memory=100))


def test_what_does_not_fit_is_refused_and_changes_nothing():
    policy = lived(covariance="dual")
    before = policy.fingerprint()
    for change in ({"covariance": "primal", "memory_limit": 1000}, {"memory_limit": 1000}):
        with pytest.raises(TooExpensive):
            policy.with_covariance(**change)
    with pytest.raises(InvalidInput, match="covariance must be one of"):
        policy.with_covariance("quick")
    with pytest.raises(InvalidInput, match=r"got 'diagnal'\. Did you mean 'diagonal'\?"):
        policy.with_covariance("diagnal")
    with pytest.raises(InvalidInput, match="memory_limit"):
        policy.with_covariance(memory_limit=-1)
    with pytest.raises(InvalidInput, match="kernel"):
        KernelUCB(2, OnDemand()).with_covariance("diagonal")
    assert policy.fingerprint() == before


def test_rounds_that_were_dropped_cannot_be_counted_again():
    policy = LinUCB(2, OnDemand(), covariance="diagonal")
    decide(policy, 0, 30)
    policy.update()
    policy.compact()
    with pytest.raises(HistoryDropped, match="30 of 30"):
        policy.with_covariance("exact")
    exact = LinUCB(2, OnDemand())
    decide(exact, 0, 30)
    exact.update()
    exact.compact()
    assert exact.with_covariance("diagonal").covariance == "diagonal"


def test_a_window_that_dropped_only_what_it_forgot_is_built_again():
    policy = small(OnDemand(), covariance="diagonal", forgetting=Window(9))
    for start in (0, 15, 30):
        decide(policy, start, 15)
        policy.update()
    assert policy.compact() > 20
    assert policy.with_covariance("exact")._covariance.rounds == 9


def test_a_trigger_counts_on_from_the_new_form():
    policy = small(DeterminantTrigger(log_ratio=1e6))
    decide(policy, 0, 20)
    policy.update()
    growth = decide(policy, 20, 1) and policy.log_det - policy._state.clock.base_log_det
    other = policy.with_covariance("diagonal")
    clock = other._state.clock
    assert clock.base_log_det == pytest.approx(other._covariance.frozen_log_det)
    assert 0 < other.log_det - clock.base_log_det < 10 * growth + 10


def test_late_rewards_and_ids_of_before_are_accepted():
    policy = lived(covariance="dual")
    decision = policy.select(STREAM[20:24])
    other = policy.with_covariance("diagonal")
    other.observe(ids=decision.id, rewards=np.ones(4))
    assert other.missing == 0
    again = other.select(STREAM[24:28])
    assert not set(again.id) & set(decision.id)


def test_jobs_and_another_form():
    policy = lived(covariance="dual")
    job = policy.prepare_update()
    other = policy.with_covariance("diagonal")
    with pytest.raises(rarely.WrongUpdate):
        other.adopt(job.run())
    assert policy.adopt(job.run()).accepted
    assert other.adopt(other.prepare_update().run()).covariance == "diagonal"


def test_default_policies_can_be_told_to_stay_exact():
    policy = BatchNeuralUCB(2, OnDemand(), hidden=20, seed=0)
    decide(policy, 0, 20)
    assert policy.with_covariance("exact").exact_rounds is None

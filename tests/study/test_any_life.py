"""Whatever a study lives through: the policy follows from the record, and the record is whole."""

import itertools
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from rarely import RarelyError
from rarely.study import RewardRule, Stage, Study
from studies import Clock, contexts_of, linear

NAMES = itertools.count()
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 40), st.integers(1, 5)),
        st.tuples(st.just("tell"), st.integers(0, 40), st.sampled_from([0.0, 1.0])),
        st.tuples(st.just("update"), st.booleans()),
        st.tuples(st.just("begin")),
        st.tuples(st.just("finish"), st.integers(0, 2)),
        st.tuples(st.sampled_from(["approve", "dismiss", "pin", "unpin", "die", "other session"])),
        st.tuples(st.just("rollback"), st.integers(0, 4)),
        st.tuples(st.just("wait"), st.sampled_from([-5, 20, 4000])),
        st.tuples(st.just("erase"), st.integers(0, 40)),
        st.tuples(st.just("prune"), st.integers(2, 60)),
    ),
    min_size=5,
    max_size=40,
)


def live_through(study, other, steps, clock):
    from rarely.study import train

    jobs = []
    for step, *given_ in steps:
        with suppress(RarelyError):
            if step == "ask":
                first, count = given_
                study.ask_many([(contexts_of(i), f"{i}") for i in range(first, first + count)])
            elif step == "tell":
                study.tell(f"{given_[0]}", given_[1])
            elif step == "update":
                study.update(force=given_[0])
            elif step == "begin":
                jobs.append(train(study.begin_update(force=True)))
            elif step == "finish" and jobs:
                study.finish_update(jobs[given_[0] % len(jobs)])
            elif step in ("approve", "dismiss"):
                getattr(study, step)(actor="ann")
            elif step in ("pin", "unpin"):
                getattr(study, step)()
            elif step == "rollback":
                study.rollback(*given_)
            elif step == "erase":
                study.erase([f"{given_[0]}"], actor="ann")
                assert f"{given_[0]}" not in [record.answer.id for record in study.decisions()]
            elif step == "prune":
                study.prune(given_[0], actor="ann")
            elif step == "wait":
                clock.now += given_[0]
            elif step == "die":
                study._session._live = None
            elif step == "other session":
                study, other = other, study


def fingerprint(study):
    with study._session.writing():
        return study._session.live.bare().fingerprint()


@given(steps, st.booleans())
def test_the_policy_follows_from_the_record(steps, approval):
    clock = Clock()
    name, storage = f"life {next(NAMES)}", "memory://lives"
    stages = [Stage("burn-in", 7, burn_in=True), Stage("main", least=0.1, approval=approval)]
    rule = RewardRule("last", wait=60, default=0.5)
    made = {"arms": 3, "stages": stages, "rewards": rule, "clock": clock}
    study = Study.create(storage, name, policy=linear(4), **made)
    other = Study.open(storage, name, clock=clock)
    live_through(study, other, steps, clock)
    prints = [fingerprint(study), fingerprint(other)]
    study._session._live = None
    assert [fingerprint(study), *prints] == [prints[0]] * 3
    status = study.status()
    assert status == other.status()
    assert status.versions <= 4
    assert status.rewards.balanced
    verification = study.verify()
    assert verification.whole, verification.flaw
    assert study.replay().equal

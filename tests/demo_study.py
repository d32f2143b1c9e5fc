"""A study of some weeks, made in a second: two stages, late rewards, a quarantine, two updates."""

import numpy as np

from rarely import BatchNeuralUCB, DeterminantTrigger
from rarely.study import RewardRule, Stage, Study
from studies import Clock

ARMS = ["control", "reminder by text", "reminder by phone", "visit"]
DAY = 86400.0


def demo(storage, rounds=400):
    """The open study."""
    clock, rng = Clock(1.79e9), np.random.default_rng(1)
    study = Study.create(
        storage,
        "reminders",
        policy=BatchNeuralUCB(dim=3, schedule=DeterminantTrigger(2 * rounds, 6, 6.0), hidden=8, seed=1),
        arms=ARMS,
        rewards=RewardRule(wait=7 * DAY, default=0.0, least=0.0, most=1.0),
        stages=[Stage("burn-in", 60, burn_in=True), Stage("adaptive", least=0.05)],
        control="control",
        clock=clock,
    )
    waiting = []
    for number in range(rounds):
        clock.now += rng.exponential(3600.0)
        contexts = rng.normal(size=(4, 3)).round(3)
        answer = study.ask(contexts, id=f"patient-{number}")
        chance = 1 / (1 + np.exp(-(contexts[answer.index] @ [1.0, -0.5, 0.2] + 0.4 * answer.index - 1)))
        if rng.random() < 0.85:
            waiting.append((clock.now + rng.lognormal(10.5, 1.2), answer.id, float(rng.random() < chance)))
        for moment, id, reward in sorted(entry for entry in waiting if entry[0] <= clock.now):
            study.tell(id, reward)
            waiting.remove((moment, id, reward))
        if number == 100:
            study.tell("patient-1", 7.0)
            study.tell("nobody <b>", 1.0)
            study.tell("patient-2", 1.0)
        if number in (150, 260):
            study.update(actor="nightly", reason="enough rewards")
    return study

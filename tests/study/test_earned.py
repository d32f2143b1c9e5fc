"""What decisions have earned, summed by the database, is what the record says."""

import numpy as np
import pytest

from rarely import Worth
from rarely.service.dashboard import Earned
from rarely.study import RewardRule
from studies import Clock, contexts_of, every_storage, told_of


@every_storage
@pytest.mark.parametrize("aggregation", ["first", "last", "sum"])
def test_sums_of_the_database_are_those_of_the_record_in_parts_too(make, aggregation):
    clock = Clock()
    wait = None if aggregation == "first" else 50.0
    study = make(rewards=RewardRule(aggregation=aggregation, wait=wait), clock=clock)
    parts = Earned(study.settings.rewards)
    rng = np.random.default_rng(1)
    for i in range(60):
        clock.now += 10.0
        study.ask(contexts_of(i), id=f"{i}", worth={"gain": 2.0, "cost": 0.25 * i} if i % 3 == 0 else None)
        for key in range(int(rng.integers(3))):
            study.tell(f"{max(i - int(rng.integers(4)), 0)}", float(rng.normal()), key=f"{i}-{key}")
        if i % 7 == 0:
            parts.follow(study, study.status().events)
        if i == 30:
            study.update(force=True)
    clock.now += 100.0
    study.ask(contexts_of(1), id="end")
    study.ask(contexts_of(1), id="the end")
    parts.follow(study, study.status().events)
    whole = Earned(study.settings.rewards)
    whole.follow(study, study.status().events)
    records, rewards = told_of(study)
    for place, of in ((1, "version"), (2, "index")):
        for made in (parts, whole):
            for name, counts in made.by(place).items():
                these = [i for i, record in enumerate(records) if getattr(record.answer, of) == name]
                known = rewards[these][~np.isnan(rewards[these])]
                worths = [records[i].question.worth or Worth(np.ones(9), np.zeros(9)) for i in these]
                valued = [w[records[i].answer.index].of(rewards[i]) for i, w in zip(these, worths, strict=True)]
                expected = [len(these), len(known), known.sum(), (known**2).sum(), np.sum(~np.isin(known, (0, 1)))]
                expected.append(np.nansum(valued))
                np.testing.assert_allclose(counts, expected)
    assert {*whole.cells} == {*parts.cells}

"""Studies of regret: a run is kept as it ends, and is not played again."""

import json

import numpy as np

import plain
from rarely import LinUCB, OnDemand
from rarely.worlds import Cosine
from suite import studies

FIELDS = ("world", "seed")


def test_a_study_resumes_after_an_interrupt(tmp_path, monkeypatch, capsys):
    out, played = tmp_path / "made" / "runs.jsonl", []

    def play(world, seed):
        if len(played) == 2:
            raise KeyboardInterrupt
        played.append((world, seed))
        return {"world": world, "seed": seed, "regret": float(seed)}

    monkeypatch.setattr(studies, "side_by_side", lambda work, items, jobs: map(work, items))
    tasks = [("a", 1), ("b", 1), ("a", 2)]
    try:
        studies.play_all(play, tasks, FIELDS, out, jobs=1)
    except KeyboardInterrupt:
        interrupted, played = list(played), []
    assert interrupted == tasks[:2]
    runs = studies.play_all(play, tasks, FIELDS, out, jobs=1)
    assert played == tasks[2:]
    assert [(run["world"], run["seed"], run["regret"]) for run in runs] == [("a", 1, 1.0), ("b", 1, 1.0), ("a", 2, 2.0)]
    assert "3 runs, 1 to play with 1 processes" in capsys.readouterr().out


def test_without_loky_runs_are_played_in_processes_all_the_same(monkeypatch):
    monkeypatch.setattr(studies, "find_spec", lambda name: None)
    monkeypatch.setattr(studies.os, "environ", {**studies.os.environ})
    assert sorted(studies._all(abs, [-3, 2, -1], jobs=1)) == [1, 2, 3]


def test_the_study_of_plain_arms_plays_rivals_where_arms_are_fixed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(studies, "side_by_side", lambda work, items, jobs: map(work, items))
    given = "--worlds ten-coins cosine --policies linucb thompson --rounds 40 --batches 4 --seeds 2"
    monkeypatch.setattr("sys.argv", ["plain.py", *given.split(), "--out", str(tmp_path / "runs.jsonl")])
    plain.main()
    runs = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {(run["world"], run["policy"]) for run in runs} == {
        ("ten-coins", "linucb"),
        ("ten-coins", "thompson"),
        ("cosine", "linucb"),
    }
    assert len(runs) == 6
    assert all(run["updates"] <= 3 and run["regret"] <= 2 * run["uniform"] for run in runs)
    assert "÷ best" in capsys.readouterr().out


def test_batches_decided_in_one_call_are_single_rounds():
    rounds = Cosine().rounds(seed=0, count=12)
    policy, single = (LinUCB(10, seed=0) for _ in range(2))
    arms = studies.play_batches(policy, rounds.contexts, rounds.rewards)
    expected = []
    for contexts, rewards in zip(rounds.contexts, rounds.rewards, strict=True):
        decision = single.select(contexts)
        expected.append(decision.arm)
        single.observe(decision, rewards[decision.arm])
        if single.due and len(expected) < len(rounds):
            single.update()
    np.testing.assert_array_equal(arms, expected)
    assert policy.version == 11
    assert len(studies.play_batches(LinUCB(10, OnDemand()), rounds.contexts, rounds.rewards)) == 12

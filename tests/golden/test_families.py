"""Golden families: what they cover, what changes them, and what does not."""

import os
import shutil
import subprocess
import sys
from functools import cache, wraps
from pathlib import Path

import pytest

import rarely
from rarely import BatchNeuralUCB, FixedGrid, LinUCB, Mixture, NeuralTS, NeuralUCB, OnDemand, Policy, Preset, Uniform
from rarely._core.choice import rules
from rarely.extend import UpperConfidence
from rarely.golden import CLEAR, FAMILIES, NEXT, Families, Family, Trace, family_of
from rarely.golden.__main__ import main
from rarely.golden.lives import quiet
from rarely_lab.compare import golden as compare
from rarely_lab.compare.policies import POLICIES
from rarely_lab.reproduce import golden as reproduce

ALL = {**FAMILIES, **reproduce.FAMILIES, **compare.FAMILIES}
HOMES = {name: home for home in (FAMILIES, reproduce.FAMILIES, compare.FAMILIES) for name in home}
PACKAGE = Path(rarely.__file__).parent
UNTOLD = ("compare/vowpal", "compare/bayesianbandits")
"""Whose events hold what was said to another package, with the digits of rewards."""
NUDGE = 1e-9
"""A million times the rounding of a number, relative to it."""


def slowly(names, quick):
    """The names for a test, of which all but some take too long for every day."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


def events(family):
    """All that happened in the lives of a family."""
    with quiet():
        return [event for life in family.lives().values() for event in life(0.0).events if isinstance(event, dict)]


@pytest.fixture(scope="module", autouse=True)
def played_once():
    """Lives whose events and numbers are looked at in turn, and that no test changes."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("default", "practical", "paper", "code"):
            patch.setitem(vars(FAMILIES[name]), "lives", once(FAMILIES[name].lives))
        yield


def once(lives):
    """The same lives, each of which is played once with each nudge."""
    made = cache(lambda: {name: cache(life) for name, life in lives().items()})
    return wraps(getattr(lives, "func", lives))(lambda: made())


# --- what they cover


@pytest.mark.parametrize("name", ALL)
def test_a_family_is_as_it_is_on_record(name):
    """If this fails, the numbers of this family have changed: CONTRIBUTING says what to do."""
    assert HOMES[name].complaint(name) == ""


@pytest.mark.parametrize("name", ALL)
def test_no_choice_of_a_golden_life_is_near_another(name):
    assert ALL[name].golden.margin >= CLEAR


@pytest.mark.parametrize(
    "name", slowly([name for name in ALL if name not in UNTOLD], ("default", "practical", "paper", "linucb", "lints"))
)
def test_what_is_far_above_rounding_changes_no_choice(name):
    family, golden = ALL[name], ALL[name].play(NUDGE)
    assert golden.digest == family.golden.digest
    assert golden.bits != family.golden.bits or name == "uniform" or "mean" not in next(iter(golden.numbers.values()))


ELSEWHERE = ("paper", "linucb", "compare/blce")


@pytest.mark.parametrize("names", [ELSEWHERE, pytest.param([*ALL], marks=pytest.mark.slow)], ids=["some", "all"])
def test_the_digest_is_the_same_without_compiled_loops_and_with_another_blas(names):
    read = "from rarely.golden import FAMILIES as a\nfrom rarely_lab.compare.golden import FAMILIES as b\n"
    read += "from rarely_lab.reproduce.golden import FAMILIES as c\nfor name in "
    read += f"{names!r}:\n    print(name, {{**a, **b, **c}}[name].play().digest)"
    other = os.environ | {"RARELY_COMPILED": "0", "OPENBLAS_CORETYPE": "Prescott"}
    done = subprocess.run([sys.executable, "-c", read], env=other, capture_output=True, text=True, check=True)
    assert dict(line.split() for line in done.stdout.splitlines()) == {name: ALL[name].golden.digest for name in names}


PATHS = {
    "Z is t×t, then p×p, then an approximation": lambda e: [f for _, f in e["forms"]] == ["dual", "primal", "diagonal"],
    "Z of the last layer": lambda e: e["forms"][0][1] == "last_layer",
    "rounds are dropped": lambda e: any(dropped for *_, dropped in e["updates"]),
    "a training is rejected, then one is not": lambda e: e["updates"][-1][2] and not all(u[2] for u in e["updates"]),
    "a policy chooses what to remember": lambda e: bool(e["memory"]),
    "a log comes first": lambda e: bool(e["updates"]) and e["updates"][0][0] == 0,
    "an update after every round": lambda e: [u[0] for u in e["updates"]][:5] == [1, 2, 3, 4, 5],
}  # fmt: skip


@pytest.fixture(scope="module")
def every_event(played_once):
    return {name: events(FAMILIES[name]) for name in ("default", "practical", "paper", "code", "linucb")}


@pytest.mark.parametrize("path", PATHS)
def test_golden_lives_reach_every_path(path, every_event):
    assert any(PATHS[path](event) for found in every_event.values() for event in found)


@pytest.mark.parametrize("name", ["practical", "paper", "default"])
def test_each_kind_of_network_sees_all_forms_and_drops_rounds(name, every_event):
    for path in list(PATHS)[:4]:
        if path != "Z of the last layer" or name != "default":
            assert any(PATHS[path](event) for event in every_event[name]), path


def test_every_policy_on_a_leaderboard_has_a_family():
    assert {compare.family_of(name) for name in POLICIES} <= set(compare.FAMILIES)
    assert compare.family_of("mine") is None


# --- what changes them


def test_a_rule_that_chooses_otherwise_changes_the_digest(monkeypatch):
    before = FAMILIES["linucb"].golden.digest
    monkeypatch.setattr(rules, "argmax_mask", lambda scores, tolerance: scores == scores.min(axis=1, keepdims=True))
    assert FAMILIES["linucb"].play().digest != before


def test_lints_does_not_depend_on_the_rule_of_linucb(monkeypatch):
    broken = lambda self, *scores: 1 / 0  # noqa: E731
    monkeypatch.setattr(UpperConfidence, "probabilities", broken)
    assert FAMILIES["lints"].play().digest == FAMILIES["lints"].golden.digest
    with pytest.raises(ZeroDivisionError):
        FAMILIES["linucb"].play()


def test_a_family_on_another_changes_with_it(monkeypatch):
    arms = [0]
    below = Family("below", lambda: {"life": lambda nudge: Trace([arms[0]])})
    monkeypatch.setattr(Family, "golden", property(Family.play))
    above, beside = (
        Family(name, lambda: {"life": lambda nudge: Trace([0])}, on) for name, on in (("a", below), ("b", None))
    )
    before = above.play().digest, beside.play().digest
    arms[0] = 1
    assert above.play().digest != before[0]
    assert beside.play().digest == before[1]


def test_a_docstring_changes_no_digest_but_a_number_does(tmp_path):
    """In a copy of the tree, so that the very files are changed."""
    # With the bytecode, which is as old as its source; files that another process is writing have longer names.
    shutil.copytree(PACKAGE, tmp_path / "rarely", ignore=shutil.ignore_patterns("*.pyc.*"))
    uniform, rule = tmp_path / "rarely/_core/policies/uniform.py", tmp_path / "rarely/_core/choice/rules.py"

    def played():
        command = "from rarely.golden import FAMILIES as f; print(f['linucb'].play().digest, f['linucb'].golden.digest)"
        environment = os.environ | {"PYTHONPATH": str(tmp_path), "RARELY_CACHE": str(tmp_path / "cache")}
        done = subprocess.run(
            [sys.executable, "-c", command], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return set(done.stdout.split())

    before = FAMILIES["linucb"].golden.digest
    for file in (uniform, rule):
        file.write_text(file.read_text(encoding="utf-8").replace('"""', '"""Or so. ', 1), encoding="utf-8")
    assert played() == {before}
    text = rule.read_text(encoding="utf-8")
    assert "def argmax_mask(scores" in text
    worst = "    return np.asarray(scores <= np.fmin.reduce(scores, axis=1)[:, None])\n"
    rule.write_text(f"{text}\n\ndef argmax_mask(scores, tolerance):\n{worst}", encoding="utf-8")
    assert len(played()) == 1
    assert played() != {before}


# --- whose family is whose


class Mine(LinUCB):
    """A policy of the user's own, made from one of the library's."""


class Alone(Policy):
    """One that is made from none."""

    def __init__(self):
        pass

    def settings(self):
        return {}


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (BatchNeuralUCB(2, OnDemand(), hidden=8), "default"),
        (BatchNeuralUCB(2, OnDemand(), hidden=8, training=5), "practical"),
        (BatchNeuralUCB(2, OnDemand(), hidden=8, preset=Preset(scale_contexts=True, biases=True)), "code"),
        (BatchNeuralUCB(2, OnDemand(), hidden=8, preset=Preset(scale_contexts=True), training=5), "practical"),
        (BatchNeuralUCB(2, OnDemand(), hidden=8, preset="paper"), "paper"),
        (NeuralUCB(2, hidden=8, preset="code"), "code"),
        (NeuralUCB(2, hidden=8), "neural-ucb"),
        (NeuralTS(2, OnDemand(), hidden=8, preset="paper"), "neural-ts"),
        (Uniform(2, FixedGrid(9, 3)), "uniform"),
        (LinUCB(2, exploration=Mixture(0.1)), "linucb"),
        (Mine(2), "linucb"),
        (Alone(), None),
    ],
)  # fmt: skip
def test_a_policy_has_the_family_of_its_class_and_settings(policy, name):
    family = family_of(policy)
    assert (family and family.name) == name


# --- releases


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Families of one life each, never cached, and the file that keeps what they were."""
    monkeypatch.setattr(Family, "golden", property(Family.play))
    arms = {"a": 0, "b": 0}

    def families():
        lives = {name: (lambda name=name: {"life": lambda nudge: Trace([arms[name]], {"mean": 1.0})}) for name in arms}
        return Families(tmp_path / "golden.json", *(Family(name, make) for name, make in lives.items()))

    families().save("0.3")
    return arms, families


def test_a_change_is_of_one_family_and_its_records_are_of_the_release_that_made_them(kept):
    arms, families = kept
    before = {name: family.play().digest for name, family in families().items()}
    assert [families().made_by(name, before[name]) for name in "ab"] == ["", ""]
    arms["a"] = 1
    assert [families().made_by(name, before[name]) for name in "ab"] == ["0.3", ""]
    assert families().complaint("a").startswith("other numbers than on record")
    assert families().complaint("b") == ""
    assert families().save(NEXT) == ["a"]
    assert families().complaint("a") == ""
    assert families().made_by("a", before["a"]) == "0.3"
    families().save("0.4")
    assert list(families().releases) == ["0.3", "0.4"]


def test_numbers_are_compared_to_a_tolerance(kept):
    _, families = kept
    home = families()
    home.releases["0.3"]["families"]["a"]["numbers"]["life"]["mean"] += 1e-7
    assert home.complaint("a") == ""
    home.releases["0.3"]["families"]["a"]["numbers"]["life"]["mean"] += 1e-3
    assert home.complaint("a") == "mean of life life is 1, on record 1.0010001"


def test_the_command_tells_every_family_and_checks_them(capsys, monkeypatch, kept):
    arms, families = kept
    monkeypatch.setattr("rarely.golden.__main__.installed", lambda: [families()])
    assert main(["--check"]) == 0
    assert capsys.readouterr().out.count("as on record") == 2
    arms["b"] = 1
    assert main(["a", "--check"]) == 0
    assert main(["--check"]) == 1
    assert "b " in capsys.readouterr().out
    assert main(["--save"]) == 0
    assert main(["--check"]) == 0
    with pytest.raises(SystemExit):
        main(["c"])


def test_a_family_whose_package_is_missing_is_not_played_and_says_nothing():
    family = Family("f", lambda: {"life": lambda nudge: 1 / 0}, needs="no_such_package")
    assert not family.playable
    home = Families(Path("nowhere.json"), family)
    home.releases["0.3"] = {"codes": ["old"], "families": {"f": {"digest": "0" * 16, "numbers": {}}}}
    assert home.made_by("f", "old") == ""
    assert home.numerics("f", "old") == "0" * 16

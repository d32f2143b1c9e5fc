"""policy.plot() and study.plot(): what the panels show, in the caller's colours."""

import builtins
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from rarely import (
    EveryRound,
    FixedGrid,
    FramePolicy,
    InvalidInput,
    KernelUCB,
    LinTS,
    LinUCB,
    NothingToLearnWarning,
    OnDemand,
    Uniform,
)
from rarely.pages.plots import MAX_ARMS, group_means, in_groups
from rarely.study import Study


def played(policy, rounds=120, arms=3, missing=()):
    rng = np.random.default_rng(3)
    for number in range(rounds):
        contexts = rng.random((arms, 2))
        decision = policy.select(contexts)
        if number not in missing:
            policy.observe(decision, contexts[decision.arm, 0] + 0.1 * rng.normal())
        if policy.due:
            policy.update()
    return policy


def panels(figure):
    figure.canvas.draw()
    return {axes.get_title(): axes for axes in figure.axes}


def curve(axes, label):
    return next(line for line in axes.lines if line.get_label().startswith(label)).get_xydata()


def test_rewards_are_means_of_groups_and_of_all_rounds_so_far():
    policy = played(LinTS(dim=2, schedule=FixedGrid(120, 6), seed=0), missing=(0, 50))
    axes = panels(policy.plot())["mean reward"]
    rewards = policy.history.rewards
    known = np.flatnonzero(~np.isnan(rewards))
    assert len(known) == 118
    groups = np.array_split(known, 118 // 5)
    expected = [(group.mean() + 1, rewards[group].mean()) for group in groups]
    np.testing.assert_allclose(curve(axes, "of consecutive"), expected)
    np.testing.assert_allclose(curve(axes, "of all")[-1], [120, rewards[known].mean()])
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    errors = [rewards[group].std(ddof=1) / np.sqrt(len(group)) for group in groups]
    assert np.isclose(band.max(), max(mean + 1.96 * error for (_, mean), error in zip(expected, errors, strict=True)))
    assert axes.get_ylim()[0] > -0.5, "lines of updates do not stretch the axis"


def test_shares_name_the_arms_that_are_most_frequent_and_sum_to_1():
    policy = played(Uniform(dim=2, seed=0, schedule=OnDemand()), arms=MAX_ARMS + 3)
    axes = panels(policy.plot(arms=["$tea$", "_rum"]))["share of each arm"]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    counts = np.bincount(policy.history.arms)
    shown = sorted(np.argsort(-counts, kind="stable")[:MAX_ARMS])
    names = {0: r"\$tea\$", 1: "_rum"}
    assert labels[::-1] == [*(names.get(arm, str(arm)) for arm in shown), "others"]
    assert np.isclose(axes.collections[MAX_ARMS].get_paths()[0].vertices[:, 1].max(), 1)


def test_calibration_compares_rounds_since_the_first_update():
    policy = played(LinTS(dim=2, schedule=FixedGrid(120, 6), seed=0))
    axes = panels(policy.plot())["calibration"]
    history, first = policy.history, policy.updates[0].round
    means, rewards = history.means[first:], history.rewards[first:]
    groups = np.array_split(np.argsort(means, kind="stable"), 10)
    expected = [(means[group].mean(), rewards[group].mean()) for group in groups]
    np.testing.assert_allclose(axes.containers[0].lines[0].get_xydata(), expected)


def test_updates_have_lines_values_and_dots_where_they_were_rejected():
    policy = played(LinTS(dim=2, schedule=FixedGrid(120, 6), seed=0))
    drawn = panels(policy.plot())
    ends = [(record.round, record.log_det) for record in policy.updates]
    log_det = drawn["log det Z − log det λI"]
    np.testing.assert_allclose(log_det.lines[0].get_xydata(), [*ends, (120, policy.log_det)])
    lines, dots = log_det.collections
    assert [path.vertices[0, 0] for path in lines.get_paths()] == [record.round for record in policy.updates]
    assert not dots.get_paths()
    assert drawn["radius β"].lines[0].get_drawstyle() == "steps-post"
    assert np.isnan(drawn["coverage of predictions"].lines[0].get_ydata()).all(), "LinTS estimates no noise"


def test_an_update_that_learned_nothing_is_dotted():
    policy = LinUCB(dim=2, schedule=FixedGrid(20, 4))
    policy.select(np.ones((5, 2, 2)))
    with pytest.warns(NothingToLearnWarning):
        policy.update()
    for axes in policy.plot().axes[3:]:
        lines, dots = axes.collections
        assert not lines.get_paths()
        assert [path.vertices[0, 0] for path in dots.get_paths()] == [5]


@pytest.mark.parametrize(
    "policy",
    [
        LinUCB(dim=2),
        KernelUCB(dim=2, seed=0, schedule=OnDemand()),
        played(Uniform(dim=2, seed=0), rounds=1),
        played(LinUCB(dim=2, schedule=EveryRound()), rounds=80),
        played(LinUCB.from_log(np.eye(2), [0.0, 1.0], schedule=OnDemand()), rounds=30, missing=range(30)),
    ],
    ids=["new", "kernel", "one round", "an update in every round", "from a log, no rewards"],
)
def test_every_policy_can_be_drawn(policy, tmp_path, recwarn):
    before = policy.fingerprint()
    policy.plot().savefig(tmp_path / "policy.png")
    assert (tmp_path / "policy.png").stat().st_size > 1000
    assert policy.fingerprint() == before
    assert not recwarn.list


def test_dropped_rows_are_named():
    policy = played(LinUCB(dim=2, schedule=FixedGrid(100, 5)), rounds=100)
    dropped = policy.compact()
    assert dropped > 0
    figure = policy.plot()
    assert f"{dropped} rows dropped" in figure.get_suptitle()
    assert panels(figure)["share of each arm"].get_xlim() == (0, 100)


def test_it_has_the_callers_colours_and_leaves_pyplot_alone():
    policy = played(LinTS(dim=2, schedule=FixedGrid(60, 3), seed=0), rounds=60)
    settings, mine = dict(matplotlib.rcParams), pyplot.figure()
    light = policy.plot()
    assert dict(matplotlib.rcParams) == settings
    assert pyplot.get_fignums() == [mine.number]
    assert pyplot.gcf() is mine
    with pyplot.style.context("dark_background"):
        dark = policy.plot()
    assert (light.get_facecolor()[:3], dark.get_facecolor()[:3]) == ((1, 1, 1), (0, 0, 0))
    assert dark.axes[0].title.get_color() == "white"
    lines = [to_rgb(figure.axes[0].lines[0].get_color()) for figure in (light, dark)]
    assert np.mean(lines[0]) + 0.1 < np.mean(lines[1]), "colours are lighter on dark paper"
    assert policy.plot(mine) is mine
    parts = Figure(figsize=(12, 12)).subfigures(2, 1)
    assert len(policy.plot(parts[1]).axes) == 6
    pyplot.close(mine)


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(InvalidInput, match="plot needs matplotlib: pip install matplotlib"):
        LinUCB(dim=2).plot()


def test_the_front_door_imports_what_every_policy_needs():
    some = {"matplotlib", "markupsafe", "zipfile", "rarely.frames.policy", "rarely.ensembles", "rarely.theory"}
    subprocess.run([sys.executable, "-c", f"import sys, rarely; assert not {some} & set(sys.modules)"], check=True)


def test_a_file_imports_the_package_of_its_policy(tmp_path):
    policies = [KernelUCB(dim=2, seed=0), FramePolicy.fit(LinUCB, {"age": [20, 30]}, arms=["tea", "rum"])]
    for place, policy in enumerate(policies):
        policy.save(tmp_path / f"{place}.rarely")
        code = f"import rarely; print(type(rarely.load({str(tmp_path / f'{place}.rarely')!r})).__name__)"
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert done.stdout.strip() == type(policy).__name__


def test_groups_are_small_only_where_there_is_little():
    assert in_groups(0) == []
    assert [len(group) for group in in_groups(3)] == [3]
    assert [len(group) for group in in_groups(12)] == [6, 6]
    assert len(in_groups(10_000)) == 40
    means, errors = group_means(np.array([1.0, 3.0, 5.0]), [np.array([0, 1]), np.array([2])])
    np.testing.assert_allclose(means, [2, 5])
    np.testing.assert_allclose(errors, [1, 0])


def test_a_study_is_drawn_with_the_rewards_that_no_version_has_learned():
    policy = LinTS(dim=2, schedule=FixedGrid(40, 4), seed=0)
    study = Study.create("memory://plot", "trial", policy=policy, arms=["tea", "<rum>"])
    for number in range(25):
        study.ask(np.eye(2), id=f"v{number}")
        if number != 3:
            study.tell(f"v{number}", float(number % 2))
        if study.due:
            study.update()
    before = study.status()
    figure = study.plot()
    assert study.status() == before, "nothing is written"
    assert "round 25, 1 rewards missing" in figure.get_suptitle()
    drawn = panels(figure)
    rewards = [number % 2 for number in range(25) if number != 3]
    np.testing.assert_allclose(curve(drawn["mean reward"], "of all")[-1], [25, np.mean(rewards)])
    labels = {text.get_text() for text in drawn["share of each arm"].get_legend().get_texts()}
    assert labels <= {"tea", "<rum>"}
    study.close()


def test_a_study_shows_itself_as_a_table_and_escapes_names():
    policy = LinTS(dim=2, schedule=FixedGrid(40, 4), seed=0)
    study = Study.create("memory://table", "a <b>", policy=policy, arms=["tea", "<rum>"])
    study.tell(study.ask(np.eye(2)).id, 1.0)
    study.update()
    text = study._repr_html_()
    assert "<caption>study a &lt;b&gt;</caption>" in text
    assert "tea, &lt;rum&gt;" in text
    assert "1 received, 1 used, 0 pending, 0 late, 0 quarantined" in text
    assert "<caption>updates</caption>" in text
    assert "<rum>" not in text
    study.close()
    assert study._repr_html_() is None, "a notebook falls back on repr"

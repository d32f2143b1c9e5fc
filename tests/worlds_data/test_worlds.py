import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import Affine, BatchNeuralUCB, EveryRound, FixedGrid, InvalidInput, LinUCB, Uniform
from rarely.worlds import Cosine, Quadratic, Rounds, Table, TableWorld, World
from worlds import play_world


class Slopes(World):
    """A world of one's own."""

    arms, dim = 3, 2

    def secret(self, generator):
        return generator.normal(size=2)

    def round(self, t, secret, generator):
        contexts = generator.normal(size=(3, 2))
        return contexts, contexts @ secret, 0.1 * generator.normal()


class Draws(World):
    """Nothing but what its generators draw."""

    arms, dim = 2, 3

    def secret(self, generator):
        return generator.random((2, 3))

    def round(self, t, secret, generator):
        return generator.random((2, 3)), secret[:, 0], 0.0


ROWS = np.random.default_rng(0).normal(2.0, 5.0, size=(12, 3)) * [1.0, 100.0, 0.01]
ROWS[3] = 0.0
ROWS = np.column_stack([ROWS, np.full(12, 7.0)])
LABELS = np.array(["b", "a", "c", "a"] * 3)
TABLE = Table.of(ROWS, LABELS)
VIEWS = ["raw", "unit", "standard"]
WORLDS = {
    "cosine": Cosine(),
    "quadratic": Quadratic(),
    "own": Slopes(),
    **{view: TableWorld(TABLE, view=view, constant=view == "unit") for view in VIEWS},
}
every_world = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
every_view = pytest.mark.parametrize("view", VIEWS)
with_and_without_constant = pytest.mark.parametrize("constant", [False, True])
paper = pytest.mark.parametrize("kind", [Cosine, Quadratic])


def same(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("contexts", "means", "rewards"))


def rounds_and_secret(world, seed, count):
    kind, kept = type(world), []
    draw = kind.secret
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "secret", lambda self, generator: kept.append(draw(self, generator)) or kept[-1])
        return world.rounds(seed, count), kept[0]


@every_world
@given(st.integers(0, 2**40), st.integers(1, 12), st.data())
def test_a_round_derives_from_the_seed_and_its_number_alone(world, seed, first, data):
    count = data.draw(st.integers(0, 13 - first))
    part = world.rounds(seed, count, first)
    assert len(part) == count
    assert same(part, world.rounds(seed, 12)[first - 1 : first - 1 + count])


@every_world
def test_different_seeds_differ(world):
    assert not np.array_equal(world.rounds(0, 12).contexts, world.rounds(1, 12).contexts)
    assert not np.array_equal(world.rounds(0, 12).means, world.rounds(1, 12).means)


def test_no_two_seeds_and_no_two_rounds_share_a_draw():
    draws = [Draws().rounds(seed, 20) for seed in range(20)]
    drawn = np.concatenate([r.contexts.ravel() for r in draws] + [r.means[0] for r in draws])
    assert len(np.unique(drawn)) == len(drawn)


@pytest.mark.parametrize("seed", [0, 1, 7, 2**33])
def test_a_world_draws_nothing_that_a_policy_of_its_seed_draws(seed):
    rounds, secret = rounds_and_secret(Draws(), seed, 50)
    drawn = np.concatenate([secret.ravel(), rounds.contexts.ravel()])
    assert not np.isin(drawn, np.random.default_rng(seed).random(10_000)).any()


def test_the_order_in_which_policies_play_does_not_matter():
    def regrets(makers):
        rounds = Cosine().rounds(0, 50)
        return {make: rounds.regrets(play_world(make(), rounds)).tolist() for make in makers}, rounds

    def linear():
        return LinUCB(10, FixedGrid(50, 5))

    def uniform():
        return Uniform(10, EveryRound(), seed=0)

    (one, first), (other, second) = regrets([linear, uniform]), regrets([uniform, linear])
    assert one == other
    assert same(first, second)
    assert same(first, Cosine().rounds(0, 50))


@every_world
def test_the_shapes_are_those_promised(world):
    rounds = world.rounds(0, 5)
    assert rounds.contexts.shape == (5, world.arms, world.dim)
    assert rounds.means.shape == rounds.rewards.shape == (5, world.arms)
    assert len(world.rounds(0, 0)) == 0


def test_the_papers_problems_have_the_papers_sizes():
    assert (Cosine().dim, Cosine().arms, Quadratic().dim, Quadratic().arms) == (10, 4, 4, 10)
    assert Cosine().horizon is Quadratic().horizon is None


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_theta_is_uniform_and_then_scaled_to_norm_1(seed, dim):
    theta, drawn = Cosine(dim).secret(np.random.default_rng(seed)), np.random.default_rng(seed).random(dim)
    assert (theta >= 0).all()
    assert np.linalg.norm(theta) == pytest.approx(1)
    np.testing.assert_allclose(theta * np.linalg.norm(drawn), drawn)


def test_the_cosine_means_are_the_printed_formula():
    rounds, theta = rounds_and_secret(Cosine(3, 5), 4, 20)
    for x, means in zip(rounds.contexts, rounds.means, strict=True):
        oracle = [np.cos(3 * sum(x[k, j] * theta[j] for j in range(3))) for k in range(5)]
        np.testing.assert_allclose(means, oracle, rtol=1e-12, atol=1e-12)


def test_the_quadratic_means_are_the_printed_formula():
    rounds, A = rounds_and_secret(Quadratic(3, 5), 4, 20)
    assert A.shape == (3, 3)
    for x, means in zip(rounds.contexts, rounds.means, strict=True):
        np.testing.assert_allclose(means, [x[k] @ (A.T @ A) @ x[k] for k in range(5)], rtol=1e-12)


def test_the_quadratic_matrix_is_standard_normal():
    A = Quadratic(100).secret(np.random.default_rng(0))
    assert abs(A.mean()) < 5 / 100
    assert abs(A.std() - 1) < 5 / np.sqrt(2 * 10**4)


@paper
def test_contexts_are_uniform_on_the_unit_interval(kind):
    x = kind().rounds(0, 1000).contexts
    assert x.min() >= 0
    assert x.max() <= 1
    assert abs(x.mean() - 1 / 2) < 5 * np.sqrt(1 / 12 / x.size)
    assert abs(x.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / x.size)


@paper
@pytest.mark.parametrize(("given", "deviation"), [({}, 0.5), ({"noise": 0.25}, 0.25)])
def test_the_noise_is_a_quarter_in_either_reading(kind, given, deviation):
    n = 2000
    rounds = kind(**given).rounds(1, n)
    noise = rounds.rewards[:, 0] - rounds.means[:, 0]
    assert abs(noise.mean()) < 5 * deviation / np.sqrt(n)
    assert abs(noise.std() - deviation) < 5 * deviation / np.sqrt(2 * n)
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 5 / np.sqrt(n)


@every_world
@given(st.integers(0, 10**6), st.data())
def test_regret_is_never_negative_and_0_for_the_best_arm(world, seed, data):
    rounds = world.rounds(seed, 8)
    arms = np.array(data.draw(st.lists(st.integers(0, world.arms - 1), min_size=8, max_size=8)))
    assert (rounds.regrets(arms) >= 0).all()
    assert (rounds.regrets(rounds.best) == 0).all()
    oracle = [max(means) - means[arm] for means, arm in zip(rounds.means, arms, strict=True)]
    assert rounds.regrets(arms).tolist() == oracle


@every_world
def test_an_arm_pays_its_mean_and_a_noise_that_all_arms_share(world):
    rounds = world.rounds(3, 12)
    noise = [rounds.paid(np.full(12, k)) - rounds.means[:, k] for k in range(world.arms)]
    np.testing.assert_allclose(noise, np.broadcast_to(noise[0], (world.arms, 12)), atol=1e-12)
    arms = np.arange(12) % world.arms
    assert rounds.paid(arms).tolist() == [rounds.rewards[i, arm] for i, arm in enumerate(arms)]


def test_a_part_of_rounds_is_rounds():
    rounds = Cosine().rounds(0, 9)
    assert isinstance(rounds[2:5], Rounds)
    assert len(rounds[2:5]) == 3
    assert rounds[2:5].best.tolist() == rounds.best[2:5].tolist()


@pytest.mark.parametrize("bad", [{"seed": -1}, {"seed": 0.5}, {"count": -1}, {"count": 2.0}, {"first": 0}])
def test_rounds_that_cannot_be_are_refused(bad):
    with pytest.raises(InvalidInput, match=f"{next(iter(bad))} must be a whole number"):
        Cosine().rounds(**({"seed": 0, "count": 1} | bad))


@paper
@pytest.mark.parametrize("bad", [{"dim": 0}, {"arms": 0}, {"dim": 2.5}])
def test_impossible_sizes_are_refused(kind, bad):
    with pytest.raises(InvalidInput, match=next(iter(bad))):
        kind(**bad)


def test_a_world_of_ones_own_is_learned_by_a_real_policy():
    rounds = Slopes().rounds(seed=0, count=200)
    policy = LinUCB(2, FixedGrid(200, 10), beta=0.5)
    arms = play_world(policy, rounds)
    assert len(policy.updates) == 9
    assert np.mean(arms == rounds.best) > 0.8
    uniform = play_world(Uniform(2, FixedGrid(200, 10), seed=0), rounds)
    assert rounds.regrets(arms).sum() < 0.3 * rounds.regrets(uniform).sum()


# Tables


def oracle(row, view, constant):
    numbers = list(map(float, row))
    if view == "unit":
        length = sum(x * x for x in numbers) ** 0.5
        numbers = [x / length if length else x for x in numbers]
    if view == "standard":
        spread = [s if s > 0 else 1.0 for s in ROWS.std(axis=0)]
        numbers = [(x - m) / (s * 2) for x, m, s in zip(numbers, ROWS.mean(axis=0), spread, strict=True)]  # √4 columns
    return numbers + [1.0] * constant


@every_view
@with_and_without_constant
def test_an_arms_context_is_the_row_in_its_block_and_0_elsewhere(view, constant):
    world = TableWorld(TABLE, view=view, constant=constant)
    rounds, order = rounds_and_secret(world, 5, 12)
    width = 4 + constant
    assert world.dim == 3 * width
    for i, row in enumerate(order):
        blocks = rounds.contexts[i].reshape(3, 3, width)
        for arm in range(3):
            np.testing.assert_allclose(blocks[arm, arm], oracle(ROWS[row], view, constant), rtol=1e-10, atol=1e-12)
            assert not np.delete(blocks[arm], arm, axis=0).any()


@pytest.mark.parametrize("seed", range(5))
def test_a_run_meets_every_row_once(seed):
    met = TableWorld(TABLE).rounds(seed, 12).contexts[:, 0, :4]
    assert sorted(met.tolist()) == sorted(ROWS.tolist())


def test_an_arm_pays_1_if_it_is_the_rows_class_and_0_otherwise():
    rounds, order = rounds_and_secret(TableWorld(TABLE), 2, 12)
    expected = [[float("abc"[k] == LABELS[row]) for k in range(3)] for row in order]
    assert rounds.rewards.tolist() == rounds.means.tolist() == expected
    assert (rounds.paid(TABLE.labels[order]) == 1).all()


def test_a_table_ends_with_its_rows():
    world = TableWorld(TABLE)
    assert world.horizon == 12
    assert len(world.rounds(0, 1, first=12)) == 1
    for count, first in [(13, 1), (1, 13), (7, 7)]:
        with pytest.raises(InvalidInput, match=r"TableWorld has 12 rounds.*round 13.*fewer"):
            world.rounds(0, count, first)


def test_a_view_that_is_scaled_says_so_to_the_policy():
    assert TableWorld(TABLE).context_scale is None
    assert TableWorld(TABLE, view="unit").context_scale is None
    world = TableWorld(TABLE, view="standard", constant=True)
    assert isinstance(world.context_scale, Affine)
    x = world.rounds(0, 1).contexts[0]
    assert np.array_equal(world.context_scale(x), x)
    policy = BatchNeuralUCB(world.dim, FixedGrid(12, 2), hidden=8, context_scale=world.context_scale)
    assert len(play_world(policy, world.rounds(0, 12))) == 12


def test_an_unknown_view_is_refused():
    with pytest.raises(InvalidInput, match=r"view must be one of 'raw', 'unit', 'standard'; got 'norm'"):
        TableWorld(TABLE, view="norm")


def test_a_tables_classes_are_in_sorted_order():
    assert TABLE.classes == ("a", "b", "c")
    assert TABLE.labels.tolist() == [1, 0, 2, 0] * 3
    assert Table.of([[1], [2], [3]], [10, 9, 10]).classes == ("9", "10")


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        ([1.0, 2.0], [0, 1], r"rows of shape \(n, r\) and n labels; got \(2,\)"),
        ([[1.0], [2.0]], [0, 1, 1], r"got \(2, 1\) and \(3,\)"),
        ([[1.0], [2.0]], [[0], [1]], r"got \(2, 1\) and \(2, 1\)"),
        (np.empty((0, 3)), [], r"got \(0, 3\) and \(0,\)"),
        ([[1.0], [np.nan]], [0, 1], "must be finite"),
        ([[1.0], [-np.inf]], [0, 1], "must be finite"),
        ([[1.0], [2.0]], ["a", "a"], r"at least two classes.*got \['a'\]"),
    ],
)
def test_a_table_that_cannot_be_played_is_refused(rows, labels, message):
    with pytest.raises(InvalidInput, match=message):
        Table.of(rows, labels)


# Descriptions


def test_different_worlds_have_different_descriptions():
    other, nudged = np.roll(LABELS, 1), ROWS.copy()
    nudged[5, 1] = np.nextafter(nudged[5, 1], np.inf)
    worlds = [
        Cosine(),
        Cosine(noise=0.25),
        Cosine(dim=11),
        Cosine(arms=5),
        Quadratic(),
        Quadratic(noise=0.25),
        Quadratic(10, 4),
        Slopes(),
        Draws(),
        TableWorld(Table.of(ROWS, other)),
        TableWorld(Table.of(nudged, LABELS)),
        TableWorld(Table.of(ROWS[::-1], LABELS[::-1])),
        *(TableWorld(TABLE, view=view, constant=constant) for view in VIEWS for constant in (False, True)),
    ]
    assert len({json.dumps(world.describe(), sort_keys=True) for world in worlds}) == len(worlds)


def test_equal_worlds_have_equal_descriptions():
    assert Cosine().describe() == Cosine(10, 4, 0.5).describe()
    copied = Table.of(np.asfortranarray(ROWS), list(LABELS))
    assert TableWorld(copied, view="unit").describe() == TableWorld(TABLE, view="unit").describe()


# Files


@pytest.fixture
def written(tmp_path):
    def write(text, encoding="utf-8"):
        path = tmp_path / "some.csv"
        path.write_bytes(text.encode(encoding))
        return path

    return write


def read(table):
    return table.rows.tolist(), [table.classes[label] for label in table.labels]


PLAIN = "1,0.5,a\n-2,1e3,b\n"
NUMBERS = [[1.0, 0.5], [-2.0, 1000.0]]


@pytest.mark.parametrize(
    ("text", "given"),
    [
        (PLAIN, {}),
        (PLAIN, {"label": 2}),
        (PLAIN, {"label": -1}),
        ("a,1,0.5\nb,-2,1e3\n", {"label": 0}),
        ("a,1,0.5\nb,-2,1e3\n", {"label": -3}),
        ("x,y,z\n" + PLAIN, {}),
        ("x,y,z\n" + PLAIN, {"label": "z"}),
        ("x,z,y\n1,a,0.5\n-2,b,1e3\n", {"label": "z"}),
        ("x,z,y\n1,a,0.5\n-2,b,1e3\n", {"label": 1}),
        (PLAIN.replace("\n", "\r\n"), {}),
        (PLAIN.replace(",", " , "), {}),
        (PLAIN.rstrip("\n"), {}),
        ("\n" + PLAIN.replace("\n", "\n\n"), {}),
        (PLAIN.replace(",", ";"), {"delimiter": ";"}),
        (PLAIN.replace("0.5", '"0.5"'), {}),
    ],
)
def test_a_file_is_read_with_and_without_a_header_and_the_class_in_any_column(written, text, given):
    assert read(Table.from_csv(written(text), **given)) == (NUMBERS, ["a", "b"])


def test_a_path_may_be_a_string(written):
    assert read(Table.from_csv(str(written(PLAIN)))) == (NUMBERS, ["a", "b"])


def test_letters_alone_have_no_header_unless_the_class_is_named(written):
    path = written("p,q\nx,s\ny,t\n")
    assert len(Table.from_csv(path).rows) == 3
    assert read(Table.from_csv(path, label="p")) == ([[0.0], [1.0]], ["x", "y"])


def test_categories_are_coded_in_sorted_order(written):
    table = Table.from_csv(written("red,1,y\nblue,2,n\n?,3,y\nred,4,n\n"))
    assert table.rows[:, 0].tolist() == [2.0, 1.0, 0.0, 2.0]


@pytest.mark.parametrize("marker", ["", "?", "NA", "n/a", "null", "None"])
def test_numbers_that_lack_some_are_refused_with_their_column(written, marker):
    text = f"1,2,a\n3,{marker},b\n"
    with pytest.raises(InvalidInput, match=re.escape(f"some.csv: column 1 holds numbers, but {marker!r} in some rows")):
        Table.from_csv(written(text))
    with pytest.raises(InvalidInput, match="column height holds numbers"):
        Table.from_csv(written("width,height,kind\n" + text))


def test_a_column_without_any_number_may_have_markers_for_missing_ones(written):
    assert Table.from_csv(written("1,?,a\n2,?,b\n")).rows.tolist() == [[1, 0], [2, 0]]


def test_a_number_that_is_none_is_refused(written):
    for marker in ("nan", "inf"):
        with pytest.raises(InvalidInput, match=r"finite|holds numbers"):
            Table.from_csv(written(f"1,2,a\n3,{marker},b\n"))


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        ("1,2,a\n3,4,b\n5,c\n", {}, r"some.csv, line 3: 3 fields are expected; got 2"),
        ("x,y,z\n1,2,a\n3,4,b,9\n", {}, r"some.csv, line 3: 3 fields are expected; got 4"),
        ("", {}, r"some.csv is empty"),
        ("\n\n", {}, r"some.csv is empty"),
        ("x,y\n", {"label": "y"}, r"some.csv has a header and no rows"),
        ("x,y\n1,a\n2,b\n", {"label": "z"}, r"some.csv has no column 'z'; its columns are x, y"),
        ("1,a\n2,b\n", {"label": 2}, r"some.csv has 2 columns, numbered from 0; got column 2"),
        ("1,a\n2,b\n", {"label": -3}, r"some.csv has 2 columns, numbered from 0; got column -3"),
        ("a\nb\n", {}, r"some.csv has one column"),
        ("1,a\n2,a\n", {}, r"at least two classes.*got \['a'\]"),
    ],
)
def test_a_file_that_is_no_table_is_refused(written, text, given, message):
    with pytest.raises(InvalidInput, match=message):
        Table.from_csv(written(text), **given)


def test_a_byte_order_mark_is_no_part_of_the_table(written):
    assert read(Table.from_csv(written(PLAIN, "utf-8-sig"))) == (NUMBERS, ["a", "b"])


def test_a_ragged_line_is_found_at_its_number_after_empty_lines(written):
    with pytest.raises(InvalidInput, match="line 4"):
        Table.from_csv(written("1,2,a\n\n3,4,b\n5,c\n"))


def test_numbers_that_lack_some_as_nan_are_refused_with_their_column(written):
    with pytest.raises(InvalidInput, match="column 1"):
        Table.from_csv(written("1,2,a\n3,nan,b\n"))


# scikit-learn


def test_a_scikit_learn_dataset_is_played():
    datasets = pytest.importorskip("sklearn.datasets")
    world = TableWorld(Table.of(*datasets.load_wine(return_X_y=True)), view="standard", constant=True)
    assert (world.arms, world.dim, world.horizon) == (3, 42, 178)
    rounds = world.rounds(0, 178)
    arms = play_world(LinUCB(42, FixedGrid(178, 10), beta=0.1, intercept=False), rounds)
    assert np.mean(arms == rounds.best) > 0.7

"""Worlds of one's own, by module:name."""

import pytest

from rarely.errors import InvalidInput
from rarely.worlds import World, find_world

MINE = """
from rarely.worlds import World

class Steps(World):
    arms, dim = 2, 1

    def secret(self, generator):
        return generator.random(2)

    def round(self, t, secret, generator):
        return [[0.0], [1.0]], secret, generator.normal()

made, nothing = Steps(), 3
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "steps_of_mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("name", ["steps_of_mine:Steps", "steps=steps_of_mine:Steps", "steps_of_mine:made"])
def test_a_world_of_ones_own_is_found(name, mine):
    world = find_world(name)
    assert isinstance(world, World)
    assert world.rounds(seed=0, count=3).means.shape == (3, 2)


@pytest.mark.parametrize(
    ("name", "says"),
    [("nobody:X", "cannot be imported"), ("steps_of_mine:Y", "cannot be imported"), ("steps_of_mine:nothing", "got 3")],
)
def test_what_is_no_world_is_refused(name, says, mine):
    with pytest.raises(InvalidInput, match=says):
        find_world(name)

"""A copy of the tree lacks what was taken out, and has everything else."""

import os

import pytest

from tree_copies import copy_without, run_tests


@pytest.mark.skipif(os.name == "nt", reason="links need rights that users of Windows lack")
def test_tests_pass_in_a_copy_exactly_where_they_need_nothing_that_was_taken_out(tmp_path):
    copy = copy_without(tmp_path, "testing.py", "worlds/gallery.py")
    own = run_tests(copy, "tests/core/test_choice.py", "-k", "random_ties")
    assert own.returncode == 0, own.stdout
    assert "1 passed" in own.stdout
    lost = run_tests(copy, "tests/contracts/test_rule.py", "tests/worlds_data/test_gallery.py")
    assert lost.returncode != 0
    assert "No module named 'rarely.testing'" in lost.stdout
    assert "No module named 'rarely.worlds.gallery'" in lost.stdout

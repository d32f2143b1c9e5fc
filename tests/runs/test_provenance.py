"""The hash of the code on record is of files that exist."""

import pytest

from rarely._core.code_digest import PACKAGE, code_digest
from rarely._reproduce.records import Record as Reproduction
from rarely.compare import Record as Comparison


@pytest.mark.parametrize("part", sorted({*Reproduction.sources, *Comparison.sources}))
def test_every_decisive_part_exists(part):
    assert (PACKAGE / part).exists()


def test_a_record_has_the_hash_of_its_own_sources():
    assert Reproduction.fingerprint() == code_digest(*Reproduction.sources) != Comparison.fingerprint()

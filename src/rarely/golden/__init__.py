"""Golden lives: what the library's policies do, so that a change of numbers is seen and a change of bytes is not.

Provisional: any version may change these names. `python -m rarely.golden` plays every family.
"""

from rarely.golden.family import CLEAR, NEXT, Families, Family, Golden
from rarely.golden.lives import Life, Trace, Watched, nudged
from rarely.golden.policies import FAMILIES, family_of

__all__ = [
    "CLEAR", "FAMILIES", "NEXT", "Families", "Family", "Golden", "Life", "Trace", "Watched", "family_of", "nudged",
]  # fmt: skip

"""Arguments as users give them: read, or refused with an error that says what must hold and what came."""

from rarely._core import errors as _errors
from rarely._core.errors import *
from rarely._core.errors import (
    as_number,
    check_choice,
    check_flag,
    check_names,
    check_not_negative,
    check_positive,
    check_whole,
    is_whole,
    named_arguments,
    nearest,
    shown,
)
from rarely._core.inputs.history import read_rewards
from rarely._core.reading import read_array, read_real, read_whole

__all__ = [
    "as_number", "check_choice", "check_flag", "check_names", "check_not_negative", "check_positive", "check_whole",
    "is_whole", "named_arguments", "nearest", "read_array", "read_real", "read_rewards", "read_whole", "shown",
]  # fmt: skip
__all__ += _errors.__all__

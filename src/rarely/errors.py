"""Errors and warnings of the library; each error is a `RarelyError`, and a call that raises has changed nothing."""

from rarely._core import errors as _errors
from rarely._core.errors import *

__all__: list[str] = []
__all__ += _errors.__all__

# A traceback names what users import and catch. Other classes keep their module, by which their sources are found.
for _name in __all__:
    globals()[_name].__module__ = __name__

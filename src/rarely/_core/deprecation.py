"""How a public name is retired: it works for one more minor version and says what to use instead.

Nothing is deprecated now. A name that is to go calls `warn_deprecated` where it is used, and CHANGELOG names the
version that removes it.
"""

from __future__ import annotations

import warnings


def warn_deprecated(name: str, instead: str, removed_in: str, *, stacklevel: int = 2) -> None:
    """Warn that a name will be removed.

    Parameters
    ----------
    name
        What is deprecated, as a user writes it.
    instead
        What to write in its place.
    removed_in
        The version that removes it.
    stacklevel
        Frames between the user's code and this function's caller, plus 1.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_deprecated("Policy.choose", "Policy.select", "0.5")
    >>> print(caught[0].message)
    Policy.choose is deprecated and will be removed in version 0.5. Use Policy.select.
    """
    warnings.warn(
        f"{name} is deprecated and will be removed in version {removed_in}. Use {instead}.",
        DeprecationWarning,
        stacklevel=stacklevel + 1,
    )

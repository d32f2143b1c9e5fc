"""Which versions of SQLite may lose committed writes.

In WAL mode two connections that write and checkpoint at the same moment may lose a commit. The bug came with WAL and
was mended in 3.51.3, and in 3.44.6 and 3.50.7 for those who stay there.
"""

from __future__ import annotations

WAL_FIRST, WAL_MENDED = (3, 7, 0), (3, 51, 3)
WAL_MENDED_EARLIER = {(3, 44): 6, (3, 50): 7}
"""SQLite's versions that may lose committed writes, and the earlier ones that were mended too."""


def loses_writes(version: tuple[int, ...]) -> bool:
    """Whether two connections in WAL mode are unsafe.

    >>> [loses_writes(v) for v in [(3, 40, 1), (3, 44, 6), (3, 50, 6), (3, 51, 3)]]
    [True, False, True, False]
    """
    mended = version >= WAL_MENDED or version[2] >= WAL_MENDED_EARLIER.get((version[0], version[1]), version[2] + 1)
    return version >= WAL_FIRST and not mended

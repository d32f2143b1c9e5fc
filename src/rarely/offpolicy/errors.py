"""What a log refuses, and what it cannot tell."""

from rarely.core.errors import InvalidInput, RarelyError


class InvalidLog(InvalidInput):
    """A decision or a file that does not fit a log, or a log without what is asked of it."""


class InvalidTarget(InvalidInput):
    """A target that is not one probability distribution, or one arm, for each round."""


class NotIdentified(InvalidInput):
    """A target that the log says nothing about: it weighs arms that the log never could, or never did, choose."""


class ParquetUnavailable(RarelyError, ImportError):
    """Parquet was asked for where pyarrow is not installed."""

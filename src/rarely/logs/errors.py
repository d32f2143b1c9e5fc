"""What a log refuses."""

from rarely.core.errors import InvalidInput, RarelyError


class InvalidLog(InvalidInput):
    """A decision or a file that does not fit a log, or a log that lacks what a call needs."""


class ParquetUnavailable(RarelyError, ImportError):
    """Parquet was asked for where pyarrow is not installed."""

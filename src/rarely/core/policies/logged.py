"""Updates in the log of Python's `logging`: logger "rarely", INFO for accepted updates, WARNING for rejected ones."""

from __future__ import annotations

import logging

from rarely.core.policies.update_record import UpdateRecord

LOGGER = logging.getLogger("rarely")
LOGGER.addHandler(logging.NullHandler())  # a library says nothing unless the program asks for it


def log_update(policy: str, record: UpdateRecord) -> None:
    """Log one update."""
    if record.accepted:
        LOGGER.info(
            "%s: version %d after round %d, from %d rewards (%d missing)",
            *(policy, record.version, record.round, record.samples, record.missing),
        )
    else:
        LOGGER.warning("%s: no new version after round %d: %s", policy, record.round, record.reason)

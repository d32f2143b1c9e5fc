"""The process that trains: a job from standard input, what was made of it to standard output, both pickled.

Only `rarely.service.trainer` starts it, and only with jobs of its own.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from contextlib import suppress
from typing import BinaryIO

from rarely.core.errors import RarelyError
from rarely.study import Trained, train

PRIORITY = 10
"""Decisions that are waited for come before a training."""


def main(source: BinaryIO, target: BinaryIO) -> None:
    """Train, and say what came of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the service, which ends this process
    with suppress(AttributeError, OSError):
        os.nice(PRIORITY)
    found: Trained | RarelyError
    try:
        found = train(pickle.load(source))
    except RarelyError as error:
        found = error
    pickle.dump(found, target, protocol=5)
    target.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)

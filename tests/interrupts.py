"""Calls that are interrupted at a line of our choice, as Ctrl-C may."""

import sys
from pathlib import Path

import rarely

PACKAGE = str(Path(rarely.__file__).parent)


class Interrupt(BaseException):
    """Like KeyboardInterrupt, which pytest would take for the user's."""


def lines_of(call, stop=None, lines=None):
    """How many lines of the package a call runs, interrupted at line `stop`; `lines` is a set that takes them."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            count += 1
            if lines is not None:
                lines.add((frame.f_code.co_filename, frame.f_lineno))
            if count == stop:
                sys.settrace(None)
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupt:
        pass
    finally:
        sys.settrace(before)
    return count

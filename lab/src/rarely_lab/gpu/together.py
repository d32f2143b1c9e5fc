"""Works that run in threads, one at a time, and wait for each other where a device can do the same for all of them.

A work is ordinary code. Where it calls `compute`, it waits, until every other work waits too or has ended. Then the
calls of the function that stands first in its `order` are made in one, and their works go on. So what is computed
together depends on the works alone and not on time, and works that got ahead wait for the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

Done = TypeVar("Done")
Together = Callable[[list[tuple[Any, ...]]], Sequence[Any]]
"""Takes the arguments of every call, and returns the result of each."""


class _Stopped(BaseException):
    """Ends a work that waits, because another one has failed."""


class _Work(Generic[Done]):
    """A thread that runs while it is its turn."""

    def __init__(self, work: Callable[[], Done], turn: threading.Semaphore) -> None:
        self._work, self._scheduler, self._own = work, turn, threading.Semaphore(0)
        self.call: tuple[str, tuple[Any, ...]] | None = None
        self.answer: Any = None
        self.done: Done | None = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self._own.acquire()
        try:
            if not isinstance(self.answer, _Stopped):
                _current.work = self
                self.done = self._work()
        except _Stopped:
            pass
        except BaseException as error:  # for the thread that asked
            self.error = error
        self.call = None
        self._scheduler.release()

    def go_on(self, answer: Any = None) -> None:
        """Let it run until it waits or ends."""
        self.answer, self.call = answer, None
        self._own.release()
        self._scheduler.acquire()

    def wait(self, name: str, arguments: tuple[Any, ...]) -> Any:
        self.call = name, arguments
        self._scheduler.release()
        self._own.acquire()
        if isinstance(self.answer, _Stopped):
            raise self.answer
        return self.answer


_current = threading.local()


def compute(name: str, *arguments: Any) -> Any:
    """Return what the function of this name makes of these arguments, computed together with the calls of others."""
    work: _Work[Any] = _current.work
    return work.wait(name, arguments)


def run_together(works: Sequence[Callable[[], Done]], functions: dict[str, Together]) -> list[Done]:
    """Return the results of all works; `functions` stand in the order in which they are served."""
    turn, order = threading.Semaphore(0), list(functions)
    running = [_Work(work, turn) for work in works]
    try:
        for work in running:
            work.go_on()
        while waiting := [work for work in running if work.call is not None]:
            _raise_first(running)
            calls = [work.call for work in waiting if work.call is not None]
            first = min((name for name, _ in calls), key=order.index)
            served = [work for work, (name, _) in zip(waiting, calls, strict=True) if name == first]
            answers = functions[first]([arguments for name, arguments in calls if name == first])
            for work, answer in zip(served, answers, strict=True):
                work.go_on(answer)
        _raise_first(running)
    finally:
        for work in running:
            if work.call is not None:
                work.go_on(_Stopped())
    return [work.done for work in running]  # type: ignore[misc]  # None only where a work raised, which was said above


def _raise_first(works: Sequence[_Work[Any]]) -> None:
    for work in works:
        if work.error is not None:
            raise work.error

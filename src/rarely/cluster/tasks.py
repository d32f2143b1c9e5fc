"""Work on Ray whose results are files: a task writes each under a temporary name, and the driver names it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from rarely.cluster.files import Folder
from rarely.errors import RarelyError
from rarely.runs.processes import ONE_THREAD
from rarely.runs.ray_session import RETRIES, connected, ended

Task = Callable[..., str]
"""Writes a file, and returns its temporary name."""
Calls = Iterable[tuple[str, Sequence[Any]]]
"""The name of each file, and the arguments of the task that writes it."""
Commit = Callable[[Folder, Task, Calls], None]


@contextmanager
def committing(jobs: int | None, address: str | None) -> Iterator[Commit]:
    """Yield a function that makes those files of a folder that are missing, on Ray."""
    with connected(jobs, address, share=True) as ray:
        # One BLAS thread each, in a Ray that somebody else started as well.
        run = ray.remote(num_cpus=1, max_retries=RETRIES, runtime_env={"env_vars": ONE_THREAD})(_run)

        def commit(folder: Folder, task: Task, calls: Calls) -> None:
            shared, done = ray.put(task), set(folder.names())
            missing = ((name, partial(run.remote, shared, *args)) for name, args in calls if name not in done)
            for name, ref in ended(ray, missing, jobs):
                try:
                    folder.commit(ray.get(ref), name)
                except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
                    raise RarelyError(
                        f"every process that made {name} was killed; is there enough memory? What is done is kept, and "
                        "the same call resumes."
                    ) from error
                except ray.exceptions.RayTaskError as error:
                    if isinstance(error.cause, RarelyError):
                        raise error.cause from None
                    raise RarelyError(f"{name} cannot be made: {type(error.cause).__name__}: {error.cause}") from error

        yield commit


def _run(task: Task, *args: Any) -> str:
    return task(*args)

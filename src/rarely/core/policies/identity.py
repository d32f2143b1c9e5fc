"""What makes a policy the same: its fingerprint, its copies and its file."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import secrets
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np

from rarely.core.choice.confidence_radius import Beta
from rarely.core.policies.saved_state import content_of, restored_state
from rarely.core.policies.standing import Standing
from rarely.core.saving import archive
from rarely.core.saving.fields import Fields
from rarely.core.schedules import schedule_from
from rarely.core.types import Arrays


class Identity(Standing, ABC):
    """Fingerprints, copies and files of a policy."""

    _beta: Beta
    _seed: Any
    _scratch: np.random.Generator

    def _begin_life(self) -> None:
        self._life = secrets.token_hex(8)
        self._caller: dict[str, list[int]] = {}

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as JSON, the seed included: `type(policy)(**policy.settings())` starts anew.

        A `beta` that is a function cannot be JSON: give it again beside the others.
        """

    def fingerprint(self) -> str:
        """A SHA-256 over settings and state: equal for equal policies, in every process and after every file.

        The lives of the policy (see `Decision.life`) are no part of it, nor are the names of the loops that trained and
        the speed of the machine.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> LinUCB(dim=2, seed=0).fingerprint() == LinUCB(dim=2, seed=0).fingerprint()
        True
        """
        header, arrays = self._content()
        header["updates"] = [{k: v for k, v in update.items() if k != "loops"} for update in header["updates"]]
        header["covariance"] = {name: value for name, value in header["covariance"].items() if name != "latency"}
        header["history"] = {name: value for name, value in header["history"].items() if name != "lives"}
        digest = hashlib.sha256(json.dumps(header, sort_keys=True, default=archive.plain).encode())
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def __copy__(self) -> Self:
        # A shallow copy would write into the rows of the original.
        return copy.deepcopy(self)

    def __getstate__(self) -> dict[str, Any]:
        """For `pickle` and `copy`: all but the caller and the life, which the copy begins anew."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_caller", "_life")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_life()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write every number of the state to one file, at any moment; `rarely.load` brings it back.

        The file takes the place of an earlier one in one step, and is on the disk when `save` returns: after a crash
        there is the old file or the new one, whole. A new file gets the mode 0666 less the umask, and a file that
        exists keeps its own; a symbolic link stays, and the file that it leads to is replaced. While it is written, a
        temporary file `.rarely-….part` lies beside it, which the next save removes if the process was killed.
        """
        schedule_from(self.schedule.describe())  # a schedule that `load` does not know is refused now
        archive.write(path, *self._content())

    def _content(self) -> tuple[dict[str, Any], Arrays]:
        """Header and arrays of a saved policy."""
        numbers, arrays = content_of(self._state)
        return {"policy": type(self).__name__, "settings": self.settings()} | numbers, arrays

    def _restore(self, saved: Fields, seed: Any) -> None:
        """Take over a saved state; this policy is new, and made with the saved settings."""
        state, generator = restored_state(self._state, saved, self._beta)
        self._seed, self._scratch, self._state = seed, generator, state

"""Habits of scikit-learn: arguments that can be read, changed before the first round, and cloned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, Self

from rarely.core.choice.confidence_radius import Beta
from rarely.core.errors import InvalidInput
from rarely.core.policies.settings import decoded
from rarely.core.policies.standing import Standing


class Parameters(Standing, ABC):
    """The constructor's arguments, as scikit-learn handles them."""

    _beta: Beta

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as JSON."""

    @abstractmethod
    def _alone(self) -> AbstractContextManager[None]:
        """A call that changes the policy."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments by name, as scikit-learn's estimators have them; `deep` changes nothing.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> LinUCB(dim=2, beta=0.5).get_params()["beta"]
        0.5
        """
        given = self.settings()
        if "beta" in given:
            given["beta"] = self._beta  # a function has no description
        return dict(zip(given, decoded(**given), strict=True))

    def set_params(self, **params: Any) -> Self:
        """Change arguments of a policy that has not decided yet; returns the policy.

        Parameters
        ----------
        **params
            Arguments of the constructor by name.

        Raises
        ------
        InvalidInput
            If a name is none of the constructor's, or if a round was decided or a log was learned.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> LinUCB(dim=2).set_params(beta=0.5).beta
        0.5
        """
        with self._alone():
            if self.round or self.updates:
                raise InvalidInput(
                    f"set_params changes a policy before its first round; this one has decided {self.round} rounds "
                    f"and has {len(self.updates)} updates on record. Make a new policy with the arguments you want."
                )
            known = self.get_params()
            if unknown := sorted(params.keys() - known.keys()):
                raise InvalidInput(f"{unknown[0]} is no argument of {type(self).__name__}: {', '.join(sorted(known))}.")
            make: Any = type(self)
            fresh = make(**known | params)
            kept = {name: self.__dict__[name] for name in ("_caller", "_life")}
            self.__dict__ = fresh.__dict__ | kept
        return self

    def __sklearn_clone__(self) -> Self:
        """A policy with the same arguments and no history, for `sklearn.base.clone`."""
        make: Any = type(self)
        clone: Self = make(**self.get_params())
        return clone

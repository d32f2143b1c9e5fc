"""Targets that an estimate refuses."""

from rarely.core.errors import InvalidInput


class InvalidTarget(InvalidInput):
    """A target that is not one probability distribution, or one arm, for each round."""


class NotIdentified(InvalidInput):
    """A target that the log says nothing about: it weighs arms that the log never could, or never did, choose."""

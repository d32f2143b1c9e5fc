"""What each round adds to an estimate: the terms of ips, snips and dr (formulas in `estimates`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rarely.core.errors import InvalidInput
from rarely.core.inputs.array_reader import read_real
from rarely.core.types import Array
from rarely.logs.decision_log import DecisionLog
from rarely.offpolicy.models import predictions
from rarely.offpolicy.sample import Sample

Estimator = Literal["ips", "snips", "dr"]


@dataclass(frozen=True, slots=True)
class Terms:
    """What an estimator makes of each round."""

    value: float
    influence: Array
    rewards: Array
    weights: Array
    scale: float
    """What the estimator divides weights by: w̄ or 1."""
    residuals: Array
    """Rewards less what is expected of them: by the model of dr, by their weighted mean otherwise."""


def terms_of(estimator: Estimator, log: DecisionLog, samples: list[Sample], model: Any) -> list[Terms]:
    """Of each target, on the same rounds."""
    if estimator == "ips":
        return [_ips_terms(sample) for sample in samples]
    if estimator == "snips":
        return [_snips_terms(sample) for sample in samples]
    first = samples[0]
    if not callable(model):
        q = _read_predictions(model, log)[first.places]
        return [_dr_terms(sample, q) for sample in samples]
    present, contexts = log.present[first.places], log.contexts[first.places]
    q = predictions(model, contexts, present, first.arms, first.rewards)[1:]
    return [_dr_terms(sample.later(), q) for sample in samples]


def _ips_terms(sample: Sample) -> Terms:
    terms = sample.weights * sample.rewards
    value = float(terms.mean())
    residuals = around_mean(sample.weights, sample.rewards)
    return Terms(value, terms - value, sample.rewards, sample.weights, 1.0, residuals)


def _snips_terms(sample: Sample) -> Terms:
    weights, scale = sample.weights, float(sample.weights.mean())
    value = float((weights * sample.rewards).sum() / weights.sum())
    residuals = sample.rewards - value
    return Terms(value, weights * residuals / scale, sample.rewards, weights, scale, residuals)


def _dr_terms(sample: Sample, q: Array) -> Terms:
    residuals = sample.rewards - q[np.arange(len(q)), sample.arms]
    terms = (sample.target * q).sum(axis=1) + sample.weights * residuals
    value = float(terms.mean())
    return Terms(value, terms - value, sample.rewards, sample.weights, 1.0, residuals)


def around_mean(weights: Array, rewards: Array) -> Array:
    """Rewards less their weighted mean."""
    total = float(weights.sum())
    return rewards - (float(weights @ rewards) / total if total else 0.0)


def _read_predictions(model: Any, log: DecisionLog) -> Array:
    present = log.present
    wanted = f"model must be a function that fits, such as Ridge(), or finite rewards of shape {present.shape}"
    try:
        q = read_real(model, "rewards of a model", InvalidInput)
    except InvalidInput as error:
        raise InvalidInput(f"{wanted}, one for each arm of each round; {error}") from None
    if q.shape != present.shape or not np.isfinite(q[present]).all():
        raise InvalidInput(f"{wanted}, one for each arm of each round; got {type(model).__name__} of shape {q.shape}.")
    return np.where(present, q, 0.0)

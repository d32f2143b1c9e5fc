"""How many operations an ideal program would need; a multiplication and an addition are two.

    n  samples, candidates    t  rounds in the frozen Z    p  parameters    c  numbers in one round's factors
    J  steps                  (o, i)  shapes of the layers, W_L last

Only what grows with a product of two sizes counts: W_L's row, the ReLU, the penalty and the choice are the
work that a good program hides behind the products.
"""

from __future__ import annotations

from rarely.core.covariance.cost import Widths


def training_pass(samples: int, shapes: Widths) -> int:
    """One gradient of n samples: 4nmd for two layers, and 6nm² more for each layer between.

    Forward and gradient are one product each; layers above the first also send a signal back.

    >>> training_pass(10, ((4, 3), (1, 4))) == 4 * 10 * 4 * 3
    True
    """
    hidden = shapes[:-1]
    return samples * sum((4 if layer == 0 else 6) * o * i for layer, (o, i) in enumerate(hidden))


def forward(candidates: int, shapes: Widths) -> int:
    """Means of n candidates: 2np."""
    return 2 * candidates * sum(o * i for o, i in shapes)


def scoring_dual(rounds: int, candidates: int, shapes: Widths) -> int:
    """Means and exact bonuses through the t×t triangle: gram 2ctn, triangular solve t²n, forward."""
    gram = 2 * factor_numbers(shapes) * rounds * candidates
    return gram + rounds * rounds * candidates + forward(candidates, shapes)


def scoring_primal(candidates: int, shapes: Widths) -> int:
    """Means and exact bonuses through the p×p triangle: triangular solve p²n, forward."""
    parameters = sum(o * i for o, i in shapes)
    return parameters * parameters * candidates + forward(candidates, shapes)


def factor_numbers(shapes: Widths) -> int:
    """c, the numbers in one round's factors (a, δ)."""
    return sum(o + i for o, i in shapes)


def frozen_numbers(rounds: int, shapes: Widths) -> int:
    """What one exact decision must read: the frozen triangle and the factors of its rounds, t²/2 + ct numbers."""
    return rounds * rounds // 2 + factor_numbers(shapes) * rounds

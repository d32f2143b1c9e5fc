"""The plain dense truth that every fast form is held against: p-vectors, p×p matrices, loops."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np


def output_and_gradient(weights, x, *, output_scale, biases=False, skip=None):
    """f(x; θ) and g(x; θ) of one context, layer by layer as one would on paper."""
    depth = len(weights)
    inputs, before = [], []
    a = np.asarray(x, float)
    for w in weights:
        if skip is not None and w is weights[-1]:
            a = np.append(a, skip * np.asarray(x, float))
        if biases:
            a = np.append(a, 1.0)
        inputs.append(a)
        before.append(w @ a)
        a = np.maximum(before[-1], 0)
    f = output_scale * before[-1][0]
    delta, gradients = np.array([output_scale]), [None] * depth
    for layer in range(depth - 1, -1, -1):
        gradients[layer] = np.outer(delta, inputs[layer])
        if layer:
            w = weights[layer][:, : len(before[layer - 1])]
            delta = (w.T @ delta) * (before[layer - 1] > 0)
    return f, np.concatenate([g.ravel() for g in gradients])


def loss_gradient(weights, initial, contexts, rewards, ridge, output_scale, biases=False, skip=None, counts=None):
    """∇ of Σ c(f − r)²/2 + mλ‖θ − θ_0‖²/2, flat; without counts c = 1."""
    flat = np.concatenate([w.ravel() for w in weights])
    flat_0 = np.concatenate([w.ravel() for w in initial])
    total = output_scale**2 * ridge * (flat - flat_0)
    for x, r, c in zip(contexts, rewards, np.ones(len(rewards)) if counts is None else counts, strict=True):
        f, g = output_and_gradient(weights, x, output_scale=output_scale, biases=biases, skip=skip)
        total = total + c * (f - r) * g
    return total


def unflatten(flat, like):
    out, start = [], 0
    for w in like:
        out.append(flat[start : start + w.size].reshape(w.shape))
        start += w.size
    return out


def descend(initial, contexts, rewards, ridge, steps, eta, output_scale, biases=False, skip=None, counts=None):
    weights = [np.array(w) for w in initial]
    for _ in range(steps):
        gradient = loss_gradient(weights, initial, contexts, rewards, ridge, output_scale, biases, skip, counts)
        weights = [w - eta * g for w, g in zip(weights, unflatten(gradient, weights), strict=True)]
    return weights


class DenseZ:
    """λI + Σφφᵀ as a p×p matrix; `diagonal` keeps its diagonal alone."""

    def __init__(self, p, ridge, diagonal=False):
        self.z, self.ridge, self.diagonal = ridge * np.eye(p), ridge, diagonal
        self.frozen = self.z.copy()

    def add(self, phi):
        grown = np.outer(phi, phi)
        self.z = self.z + (np.diag(np.diag(grown)) if self.diagonal else grown)

    def freeze(self):
        self.frozen = self.z.copy()

    def variance(self, phi):
        return phi @ np.linalg.solve(self.frozen, phi)

    @property
    def log_det(self):
        return np.linalg.slogdet(self.z)[1] - len(self.z) * np.log(self.ridge)


class ExactZ:
    """λI + Σφφᵀ of float64 vectors in decimals of 80 digits, so that the truth has no rounding of any machine."""

    DIGITS = 80

    def __init__(self, p, ridge):
        self.ridge = Decimal(float(ridge))
        self.z = [[self.ridge if i == j else Decimal(0) for j in range(p)] for i in range(p)]
        self.trace = self.ridge * p

    def add(self, phi):
        with localcontext(prec=self.DIGITS):
            numbers = [Decimal(float(x)) for x in phi]
            for i, row in enumerate(self.z):
                for j in range(i + 1):
                    row[j] += numbers[i] * numbers[j]
            self.trace += sum(x * x for x in numbers)

    @property
    def condition(self):
        """At least the condition number of Z: its trace over λ."""
        return float(self.trace / self.ridge)

    def factor(self):
        """L and D of Z = LDLᵀ, L with 1 on its diagonal."""
        p = len(self.z)
        with localcontext(prec=self.DIGITS):
            lower, pivots = [[Decimal(0)] * p for _ in range(p)], []
            for i in range(p):
                for j in range(i):
                    left = self.z[i][j] - sum(lower[i][k] * pivots[k] * lower[j][k] for k in range(j))
                    lower[i][j] = left / pivots[j]
                pivots.append(self.z[i][i] - sum(lower[i][k] ** 2 * pivots[k] for k in range(i)))
        return lower, pivots

    def variances(self, vectors):
        lower, pivots = self.factor()
        return np.array([self._variance(phi, lower, pivots) for phi in vectors])

    def _variance(self, phi, lower, pivots):
        with localcontext(prec=self.DIGITS):
            solved = []
            for x, row in zip(phi, lower, strict=True):
                solved.append(Decimal(float(x)) - sum(a * b for a, b in zip(row, solved, strict=False)))
            return float(sum(x * x / pivot for x, pivot in zip(solved, pivots, strict=True)))

    @property
    def log_det(self):
        with localcontext(prec=self.DIGITS):
            return float(sum((pivot / self.ridge).ln() for pivot in self.factor()[1]))

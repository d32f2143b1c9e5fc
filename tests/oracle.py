"""The plain dense truth that every fast form is held against: p-vectors, p×p matrices, loops."""

from __future__ import annotations

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

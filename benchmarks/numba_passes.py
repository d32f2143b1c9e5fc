"""Full-gradient descent in Numba: the fused passes that benchmarks/kernels.py times (depth 2 and 3, no biases).

A block of rows goes forward and backward while it lies in the cache. Weights are kept as (in, out), so that
units are contiguous, and padded to whole vectors. Every product is C += A·B over a block, in one of two ways:
plain loops that LLVM vectorises by itself, or register tiles of vectors that an intrinsic writes in LLVM's own
language. W_L's gradient costs nothing: Σ_i r_i σ(z_ij) = Σ_k W_kj P_kj, P = Aᵀ(r ∘ 1[Z > 0]).
"""

from __future__ import annotations

import os

import llvmlite.binding as llvm

# LLVM prefers vectors of 256 bits on these processors unless it is told otherwise, before Numba is imported.
os.environ.setdefault("NUMBA_CPU_FEATURES", llvm.get_host_cpu_features().flatten() + ",-prefer-256-bit")

import numba as nb
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from rarely.core.model.network import Weights
from rarely.core.training.objective import Objective
from rarely.core.types import Floats

LINE = 64
"""Bytes of a vector register, and of a line of the cache."""
BLOCK = 64
"""Rows that go forward and backward together; 32 to 128 are equally good."""
FLAGS = {"reassoc", "contract", "nsz", "arcp"}
jit = nb.njit(fastmath=FLAGS, error_model="numpy", cache=True)


WORD, BYTE = ir.IntType(64), ir.IntType(8)


def tile_of(rows: int, vectors: int):
    """C[i : i+rows, j : j+vectors·lanes] (+)= A[i, :]·B[:, j], the sums held in rows × vectors registers."""

    @intrinsic
    def tile(typing_context, c, i, j, a, b, add):
        def codegen(context, builder, signature, arguments):
            number = context.get_value_type(c.dtype)
            size = context.get_abi_sizeof(number)
            vector, zero = ir.VectorType(number, LINE // size), ir.Constant(WORD, 0)
            c_, a_, b_ = (context.make_array(signature.args[at])(context, builder, arguments[at]) for at in (0, 3, 4))
            strides = {x: cgutils.unpack_tuple(builder, x.strides, 2) for x in (c_, a_, b_)}

            def address(array, row, column, kind, shift=0):
                """Of array[row, column], and `shift` bytes further."""
                offset = builder.add(builder.mul(row, strides[array][0]), builder.mul(column, strides[array][1]))
                offset = builder.add(offset, ir.Constant(WORD, shift))
                start = builder.bitcast(array.data, BYTE.as_pointer())
                return builder.bitcast(builder.gep(start, [offset]), kind.as_pointer())

            def splat(value):
                lane = builder.insert_element(ir.Constant(vector, ir.Undefined), value, zero)
                return builder.shuffle_vector(
                    lane,
                    ir.Constant(vector, ir.Undefined),
                    ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None),
                )

            _, i_, j_, _, _, add_ = arguments
            row = [builder.add(i_, ir.Constant(WORD, r)) for r in range(rows)]
            places = [[address(c_, row[r], j_, vector, v * LINE) for v in range(vectors)] for r in range(rows)]
            sums = [[cgutils.alloca_once(builder, vector) for _ in range(vectors)] for _ in range(rows)]
            for r in range(rows):
                for v in range(vectors):
                    old = builder.load(places[r][v], align=size)
                    builder.store(builder.select(add_, old, ir.Constant(vector, None)), sums[r][v])
            depth = cgutils.unpack_tuple(builder, a_.shape, 2)[1]
            with cgutils.for_range(builder, depth) as loop:
                k = loop.index
                right = [builder.load(address(b_, k, j_, vector, v * LINE), align=size) for v in range(vectors)]
                for r in range(rows):
                    left = splat(builder.load(address(a_, row[r], k, number)))
                    for v in range(vectors):
                        term = builder.fmul(left, right[v], flags=["contract"])
                        builder.store(builder.fadd(builder.load(sums[r][v]), term, flags=["contract"]), sums[r][v])
            for r in range(rows):
                for v in range(vectors):
                    builder.store(builder.load(sums[r][v]), places[r][v], align=size)
            return context.get_dummy_value()

        return types.void(c, types.intp, types.intp, a, b, types.boolean), codegen

    return tile


tile_8x2, tile_4x2, tile_8x1, tile_4x1 = tile_of(8, 2), tile_of(4, 2), tile_of(8, 1), tile_of(4, 1)


@jit
def product_by_tiles(c, a, b, add):
    rows, units = c.shape
    lanes = LINE // c.itemsize
    j = 0
    while j < units:
        pair = j + 2 * lanes <= units
        for i in range(0, rows - 7, 8):
            if pair:
                tile_8x2(c, i, j, a, b, add)
            else:
                tile_8x1(c, i, j, a, b, add)
        if rows % 8:
            if pair:
                tile_4x2(c, rows - 4, j, a, b, add)
            else:
                tile_4x1(c, rows - 4, j, a, b, add)
        j += 2 * lanes if pair else lanes


@jit
def product_by_loops(c, a, b, add):
    rows, units = c.shape
    if not add:
        c[:] = 0
    for i in range(0, rows, 4):
        c0, c1, c2, c3 = c[i], c[i + 1], c[i + 2], c[i + 3]
        for k in range(0, len(b), 4):
            b0, b1, b2, b3 = b[k], b[k + 1], b[k + 2], b[k + 3]
            a00, a01, a02, a03 = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
            a10, a11, a12, a13 = a[i + 1, k], a[i + 1, k + 1], a[i + 1, k + 2], a[i + 1, k + 3]
            a20, a21, a22, a23 = a[i + 2, k], a[i + 2, k + 1], a[i + 2, k + 2], a[i + 2, k + 3]
            a30, a31, a32, a33 = a[i + 3, k], a[i + 3, k + 1], a[i + 3, k + 2], a[i + 3, k + 3]
            for j in range(units):
                x0, x1, x2, x3 = b0[j], b1[j], b2[j], b3[j]
                c0[j] += a00 * x0 + a01 * x1 + a02 * x2 + a03 * x3
                c1[j] += a10 * x0 + a11 * x1 + a12 * x2 + a13 * x3
                c2[j] += a20 * x0 + a21 * x1 + a22 * x2 + a23 * x3
                c3[j] += a30 * x0 + a31 * x1 + a32 * x2 + a33 * x3


@jit
def product(c, a, b, add, tiles):
    if tiles:
        product_by_tiles(c, a, b, add)
    else:
        product_by_loops(c, a, b, add)


@jit
def turn(z, w, y):
    """Replace z by r·1[z > 0], r = σ(z)·w − y; Σ r²/2. A z that is no number makes r none."""
    total, zero = 0.0, w.dtype.type(0)
    for i in range(len(z)):
        row = z[i]
        r = -y[i]
        for j in range(len(w)):
            r += w[j] * (zero if row[j] < 0 else row[j])
        for j in range(len(w)):
            row[j] = r if row[j] > 0 else zero
        total += r * r
    return total / 2


@jit
def pass_over(x, y, w1, w2, v2, w, z1, z2, p1, p2, tiles):
    """Add the gradients of these rows, without W_L's factor, to p1 and p2; their loss."""
    total, block, deep = 0.0, len(z1), len(p2) > 0
    p1[:], p2[:] = 0, 0
    for start in range(0, len(x), block):
        rows = min(block, len(x) - start)
        a0, a1, a2 = x[start : start + rows], z1[:rows], z2[:rows]
        product(a1, a0, w1, False, tiles)
        top = a1
        if deep:
            for i in range(rows):
                for j in range(a1.shape[1]):
                    a1[i, j] = w.dtype.type(0) if a1[i, j] < 0 else a1[i, j]
            product(a2, a1, w2, False, tiles)
            top = a2
        total += turn(top, w, y[start : start + rows])
        if deep:
            product(p2, a1.T, a2, True, tiles)
            signal = z2[block : block + rows]
            product(signal, a2, v2, False, tiles)
            for i in range(rows):
                for j in range(a1.shape[1]):
                    a1[i, j] = signal[i, j] if a1[i, j] > 0 else w.dtype.type(0)
        product(p1, a0.T, a1, True, tiles)
    return total


@jit
def update(w1, w2, w, first1, first2, first, p1, p2, ridge, step):
    """One step along the gradients that the threads have summed."""
    for t in range(1, len(p1)):
        p1[0] += p1[t]
        p2[0] += p2[t]
    moved = ridge * (w - first)
    if len(w2):
        moved += (w2 * p2[0]).sum(axis=0)
        w1 -= step * (p1[0] + ridge * (w1 - first1))
        w2 -= step * (w * p2[0] + ridge * (w2 - first2))
    else:
        moved += (w1 * p1[0]).sum(axis=0)
        w1 -= step * (w * p1[0] + ridge * (w1 - first1))
    w -= step * moved


@jit
def squared_distance(a, b):
    return np.square(a - b).sum()


@jit
def gained(w2, w, into):
    """(W_L ∘ W_2), as (out, in)."""
    for o in range(len(w)):
        for i in range(len(w2)):
            into[o, i] = w[o] * w2[i, o]


@nb.njit(fastmath=FLAGS, error_model="numpy", cache=True, parallel=True)
def steps_of(x, y, w1, w2, w, z1, z2, p1, p2, v2, ridge, step, steps, hopeless, tiles):
    """J steps in place, the rows shared among as many threads as there are buffers."""
    threads = len(p1)
    first1, first2, first = w1.copy(), w2.copy(), w.copy()
    share = (len(x) // 8 + threads - 1) // threads * 8
    losses = np.empty(threads)
    for _ in range(steps):
        if len(w2):
            gained(w2, w, v2)
        for t in nb.prange(threads):
            lo, hi = min(t * share, len(x)), min((t + 1) * share, len(x))
            losses[t] = pass_over(x[lo:hi], y[lo:hi], w1, w2, v2, w, z1[t], z2[t], p1[t], p2[t], tiles)
        loss = ridge / 2 * (squared_distance(w1, first1) + squared_distance(w2, first2) + squared_distance(w, first))
        for t in range(threads):
            loss += losses[t]
        if not loss <= hopeless:
            break
        update(w1, w2, w, first1, first2, first, p1, p2, ridge, step)


def zeros(shape: tuple[int, ...], dtype: type) -> Floats:
    """An array that starts on a line of the cache."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + size].view(dtype).reshape(shape)


def padded(array: Floats, shape: tuple[int, ...]) -> Floats:
    out = zeros(shape, array.dtype.type)
    out[tuple(slice(s) for s in array.shape)] = array
    return out


def descend(objective: Objective, step: float, steps: int, hopeless: float, threads: int, tiles: bool) -> Weights:
    """As `rarely.core.training.gradient_descent._descend`."""
    network, kind = objective.network, objective.dtype
    deep, lanes = network.depth == 3, LINE // np.dtype(kind).itemsize
    n, m, d = -(-objective.samples // 8) * 8, -(-network.hidden // lanes) * lanes, -(-network.dim // 4) * 4
    x, y = padded(objective.contexts, (n, d)), padded(objective.targets, (n,))
    w1, w = padded(objective.initial[0].T, (d, m)), padded(objective.initial[-1][0], (m,))
    w2 = padded(objective.initial[1].T, (m, m)) if deep else zeros((0, m), kind)
    z1, z2 = zeros((threads, BLOCK, m), kind), zeros((threads, 2 * BLOCK, m), kind)
    p1, p2 = zeros((threads, d, m), kind), zeros((threads, *w2.shape), kind)
    nb.set_num_threads(threads)
    steps_of(
        x, y, w1, w2, w, z1, z2, p1, p2, zeros((m, m), kind),
        kind(objective.ridge), kind(step), steps, hopeless, tiles,
    )  # fmt: skip
    h = network.hidden
    return (w1[: network.dim, :h].T, *([w2[:h, :h].T] if deep else []), w[None, :h])

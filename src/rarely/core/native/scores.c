/* Candidates against past rounds: the inner products of their features, and the solution by the growing factor.
 *
 *   cross   k_ti = Σ_l (a_tl·b_il)(δ_tl·ε_il)
 *   solve   L⁻¹k by panels of PANEL rows: those left of the diagonal block, and the block's inverse
 *   factor, invert   what a panel's own block needs: LAPACK would wake threads for it, and they go on spinning
 *
 * Each candidate is a lane, in blocks of 8·width lanes, width 1 or 2; unused lanes are 0. So the K columns of one
 * decision cost one read of the factors and of the triangle, where a matrix product spends its time on preparations;
 * and many columns are products at full speed that pass through memory once, with each thread at its own columns.
 * Four candidates or fewer come row by row instead, width 0, and are read for at the speed of memory.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "forms.h"

#define PRECISION f64
#define PANEL 128
#define CHUNK 64
#define AHEAD 128
#define ENOUGH (1L << 21) /* products that are worth a thread */

/* Eight lanes are PARTS vectors. */
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
#define TARGET v4
#define PARTS 1
#define TALL 8
#define STRIPE 4
#include "scores_body.h"
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define TARGET v3
#define PARTS 2
#define TALL 3
#define STRIPE 2
#include "scores_body.h"
#pragma GCC pop_options

typedef struct {
    int width, failed;
    long done, rows, layers, stride, first, blocks;
    const long *widths;
    const double **old, **fresh; /* factors; or panels left of the diagonal blocks, and the blocks' inverses */
    double *y;                   /* (rows, stride) */
} share;

static void *cross_share(void *at) {
    share *s = at;
    const long lanes = 8 * s->width;
    const double **fresh = malloc(2 * s->layers * sizeof *fresh);
    if (!fresh) return s->failed = 1, NULL;
    for (long l = 0; l < 2 * s->layers; l++) fresh[l] = s->fresh[l] + s->first * s->widths[l] * lanes;
    BEST(cross, f64)(s->width, s->blocks, s->rows, s->layers, s->widths, s->old, fresh, s->y + s->first * lanes, s->stride);
    free(fresh);
    return NULL;
}

static void *solve_share(void *at) {
    share *s = at;
    const long lanes = 8 * s->width, size = s->rows * lanes;
    double *y = s->y;
    if (s->stride == lanes) { /* one block: it is what it should be */
        BEST(solve, f64)(s->width, 1, s->done, s->rows, s->old, s->fresh, y);
        return NULL;
    }
    y = aligned_alloc(64, s->blocks * size * sizeof *y + 64);
    if (!y) return s->failed = 1, NULL;
    for (long r = 0; r < s->rows; r++)
        for (long b = 0; b < s->blocks; b++)
            memcpy(y + b * size + r * lanes, s->y + r * s->stride + (s->first + b) * lanes, lanes * sizeof *y);
    BEST(solve, f64)(s->width, s->blocks, s->done, s->rows, s->old, s->fresh, y);
    for (long r = s->done; r < s->rows; r++)
        for (long b = 0; b < s->blocks; b++)
            memcpy(s->y + r * s->stride + (s->first + b) * lanes, y + b * size + r * lanes, lanes * sizeof *y);
    free(y);
    return NULL;
}

/* Every thread at its blocks; the caller is the first, and does what no thread could be had for. */
static int share_out(share all, void *(*work)(void *), long products, int threads) {
    if (threads > all.blocks) threads = (int)all.blocks;
    if (threads > products / ENOUGH) threads = (int)(products / ENOUGH);
    if (threads < 1) threads = 1;
    share shares[threads];
    pthread_t ids[threads];
    int made[threads], failed = 0;
    for (int t = 0; t < threads; t++) {
        shares[t] = all;
        shares[t].first = all.blocks * t / threads;
        shares[t].blocks = all.blocks * (t + 1) / threads - shares[t].first;
        made[t] = t && !pthread_create(&ids[t], NULL, work, &shares[t]);
    }
    for (int t = 0; t < threads; t++)
        if (!made[t]) work(&shares[t]);
    for (int t = 0; t < threads; t++) {
        if (made[t]) pthread_join(ids[t], NULL);
        failed |= shares[t].failed;
    }
    return failed;
}

/* `old` holds each layer's inputs and signals in turn, (past, widths); `fresh` the same as (blocks, widths, lanes).
 * A layer without signals, of width 0, is a plain product.
 * Returns 0, or 1 without memory; so does solve. */
int cross(int width, long blocks, long past, long layers, const long *widths, const double **old, const double **fresh,
          double *out, int threads) {
    long numbers = 0;
    for (long l = 0; l < 2 * layers; l++) numbers += widths[l];
    if (!width) return BEST(cross_four, f64)(past, layers, widths, old, fresh, out), 0;
    share all = {.width = width, .rows = past, .layers = layers, .stride = blocks * 8 * width, .blocks = blocks,
                 .widths = widths, .old = old, .fresh = fresh, .y = out};
    return share_out(all, cross_share, numbers * past * blocks * 8 * width, threads);
}

/* y, (rows, blocks·lanes), is the solution up to `done`, whole panels, and from there the right side, which it replaces. */
int solve(int width, long blocks, long done, long rows, const double **left, const double **inverse, double *y,
          int threads) {
    if (!width) return BEST(solve_four, f64)(done, rows, left, inverse, y), 0;
    share all = {.width = width, .done = done, .rows = rows, .stride = blocks * 8 * width, .blocks = blocks,
                 .old = left, .fresh = inverse, .y = y};
    return share_out(all, solve_share, (rows * rows - done * done) / 2 * blocks * 8 * width, threads);
}

/* a, symmetric of order n, becomes its lower factor L with a = LLᵀ. Returns 0, or 1 where a is not positive definite. */
int factor(long n, double *a) {
    for (long i = 0; i < n; i++) {
        double *row = a + i * n;
        for (long j = 0; j <= i; j++) {
            const double *other = a + j * n;
            double left = row[j];
            for (long k = 0; k < j; k++) left -= row[k] * other[k];
            if (j < i) row[j] = left / other[j];
            else if (!(left > 0)) return 1; /* NaN too */
            else row[i] = sqrt(left);
        }
        for (long j = i + 1; j < n; j++) row[j] = 0;
    }
    return 0;
}

/* out, zeros of order n, becomes the inverse of the lower factor. */
void invert(long n, const double *lower, double *out) {
    for (long i = 0; i < n; i++) {
        double *row = out + i * n;
        const double *given = lower + i * n, scale = 1 / given[i];
        for (long k = 0; k < i; k++)
            for (long j = 0; j <= k; j++) row[j] -= given[k] * out[k * n + j];
        for (long j = 0; j < i; j++) row[j] *= scale;
        row[i] = scale;
    }
}

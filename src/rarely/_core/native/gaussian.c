/* How often each of several independent Gaussians is the highest, for one round: `choice/gaussian_argmax.py` in C.
 *
 * The names are those of the module, which says what is computed and why it is right; this file says only where C differs.
 * A node of Gauss's rule is a lane. n comes from a table as N does: n(z₀ + b) = n(z₀)·exp(−b(z₀ + b/2)), by six terms of
 * the series. Beyond the last place n counts as 0. A piece whose sum is off is halved at once, on a stack of pieces.
 */
#include <math.h>

#include "forms.h"
#include "rarely_native.h"

#define PRECISION f64
#define TAIL 9.0
#define STEP (1.0 / 512)
#define LAST 9216 /* 2·TAIL/STEP */
#define NODES 16
#define WIDTH 3.0
#define RESOLVED 7.5
#define ACCURATE 1e-13
#define ROUNDING 0x1p-52
#define HALVINGS 12
#define MOST_PIECES 0x1p24
#define NEVER 1e-20
#define TINY 1e-290
#define LOST 0x1p-46

/* A Gaussian that varies: at t it is at the place start + slope·t, and has ended from `end` on. */
typedef struct {
    double slope, start, end, sigma, reach, part;
    ptrdiff_t arm;
} runner;

typedef struct {
    double left, right, before, after;
    int halvings;
} piece;

static int by_reach(const void *one, const void *other) {
    const double a = ((const runner *)one)->reach, b = ((const runner *)other)->reach;
    return (a > b) - (a < b);
}

#ifdef __x86_64__
BEGIN_FORM(AVX512)
#define FORM avx512
#include "gaussian_kernels.h"
END_FORM
BEGIN_FORM(AVX2)
#define FORM avx2
#include "gaussian_kernels.h"
END_FORM
#endif
#define FORM base
#include "gaussian_kernels.h"

/* The Gaussians that vary, from the left end of the axis on; returns how many. */
static ptrdiff_t line_up(ptrdiff_t count, const double *means, const double *deviations, double tolerance, runner *race,
                         unsigned char *still, double *best) {
    double highest = -INFINITY, low = -INFINITY;
    ptrdiff_t running = 0;
    for (ptrdiff_t k = 0; k < count; k++) highest = fmax(highest, means[k] - TAIL * deviations[k]);
    *best = -INFINITY;
    for (ptrdiff_t k = 0; k < count; k++) {
        const double least = fmax(LOST * fabs(means[k]), fmax(tolerance, TINY));
        const int present = means[k] + TAIL * deviations[k] >= highest - tolerance;
        still[k] = present && deviations[k] <= least;
        if (still[k]) *best = fmax(*best, means[k]);
        else if (present) low = fmax(low, means[k] - TAIL * deviations[k]), race[running++].arm = k;
    }
    low = fmax(nextafter(low, INFINITY), *best);
    const ptrdiff_t candidates = running;
    running = 0;
    for (ptrdiff_t i = 0; i < candidates; i++) {
        const ptrdiff_t k = race[i].arm;
        const double sigma = deviations[k];
        if (!(means[k] + TAIL * sigma > low)) continue;
        const double start = fmax((low - means[k]) / sigma + TAIL, 0);
        race[running++] = (runner){1 / (sigma * STEP), start / STEP, (2 * TAIL - start) * sigma, sigma, 0, 0, k};
    }
    return running;
}

/* Cuts are in order of `reach`, up to which pieces are at most WIDTH of the narrowest Gaussian still alive. */
static double cut(runner *race, ptrdiff_t running, double *counts) {
    double longest = 0, narrowest = INFINITY;
    for (ptrdiff_t i = 0; i < running; i++) longest = fmax(longest, race[i].end);
    for (ptrdiff_t i = 0; i < running; i++)
        race[i].reach = fmin(race[i].end + (RESOLVED + WIDTH - TAIL) * race[i].sigma, longest);
    qsort(race, running, sizeof *race, by_reach);
    for (ptrdiff_t i = running - 1; i >= 0; i--) {
        narrowest = fmin(narrowest, race[i].sigma);
        counts[i] = (race[i].reach - (i ? race[i - 1].reach : 0)) / (WIDTH * narrowest);
    }
    for (ptrdiff_t i = 1; i < running; i++) counts[i] += counts[i - 1];
    return counts[running - 1];
}

/* Adds what stands still: the best of it, or those that tie with it, where no other Gaussian is higher. */
static void stand(ptrdiff_t count, const double *means, const unsigned char *still, double best, double tolerance,
                  int lowest, double below, double *out) {
    ptrdiff_t ties = 0;
    for (ptrdiff_t k = 0; k < count; k++) ties += still[k] && means[k] >= best - tolerance;
    for (ptrdiff_t k = 0; k < count; k++) {
        if (!still[k] || !(means[k] >= best - tolerance)) continue;
        out[k] += below / (lowest ? 1 : ties);
        if (lowest) return;
    }
}

int rarely_highest(ptrdiff_t count, const double *means, const double *deviations, double tolerance, int lowest,
                   const double *tables, double *out) {
    runner *race = malloc(count * sizeof *race);
    double *counts = malloc(count * sizeof *counts), *nodes = malloc(count * NODES * sizeof *nodes), best, total = 0;
    unsigned char *still = malloc(count);
    int failed = !race || !counts || !nodes || !still;
    if (!failed) {
        const ptrdiff_t running = line_up(count, means, deviations, tolerance, race, still, &best);
        for (ptrdiff_t k = 0; k < count; k++) out[k] = 0;
        if (running) {
            const double pieces = cut(race, running, counts);
            if (pieces <= MOST_PIECES) CHOOSE(integrate, f64)(race, running, counts, pieces, tables, nodes);
            else failed = 2;
            for (ptrdiff_t i = 0; i < running; i++) out[race[i].arm] = race[i].part * race[i].slope * STEP;
        }
        const double below = CHOOSE(highest, f64)(race, running, 0, tables, -1);
        stand(count, means, still, best, tolerance, lowest, below, out);
        for (ptrdiff_t k = 0; k < count; k++) total += out[k];
        for (ptrdiff_t k = 0; k < count; k++) out[k] /= total;
    }
    free(race), free(counts), free(nodes), free(still);
    return failed;
}

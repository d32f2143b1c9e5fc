/* Rounds of a linear policy, or of one without a model: from contexts to arms and the next Z, in one call.
 *
 *   x   scaled contexts       mean = θ·x       v = |Wx|²       bonus = β√v       W the inverse of a factor of Z = LLᵀ
 *
 * A chosen x turns Z into Z + xxᵀ. With a = Wx and q_i = 1 + a_1² + … + a_i² the inverse factor of I + aaᵀ is known, and
 * its product with W is the next W:
 *
 *   W'_i = √(q_{i−1}/q_i)·W_i − a_i/√(q_{i−1}q_i)·Σ_{j<i} a_j W_j       log det grows by log q_p
 *
 * So nothing is subtracted from Z, no triangle is solved, and a round costs p² per 2K + 4 products or so.
 *
 * Arms are lanes, 8 or 16 at a time; unused lanes hold 0.
 */
#include <math.h>

#include "forms.h"
#include "rarely_native.h"

#define PRECISION f64
#define MOST 128       /* parameters */
#define LANES 16       /* arms of a tile */
#define TIE 1e-9       /* the next numbers are those of choice/rules.py */
#define ROUNDED (16 * 0x1p-52)
#define GRID 0x1p53
#define TINY_VARIANCE 1e-30

enum rule { UPPER, UPPER_SHARED, THOMPSON, THOMPSON_SHARED, UNIFORM, GIVEN };
enum trouble { FINE, WRONG_CONTEXTS, LARGE_FEATURES, LARGE_VARIANCES, NO_MEMORY, LARGE_BONUSES };

static int all_finite(const double *numbers, ptrdiff_t count) {
    int finite = 1;
    for (ptrdiff_t i = 0; i < count; i++) finite &= isfinite(numbers[i]) != 0;
    return finite;
}

/* How far below the best score an arm still ties with it; bonuses give the size of what was rounded. */
static double tolerance_of(const double *scores, const double *bonuses, ptrdiff_t count, double spread) {
    double highest = scores[0], lowest = scores[0], bonus = bonuses[0];
    for (ptrdiff_t k = 1; k < count; k++) {
        if (scores[k] > highest) highest = scores[k];
        if (scores[k] < lowest) lowest = scores[k];
        if (bonuses[k] > bonus) bonus = bonuses[k];
    }
    double size = highest - lowest > bonus ? highest - lowest : bonus;
    if (spread > size) size = spread;
    return TIE * size + ROUNDED * (fabs(highest) > fabs(lowest) ? fabs(highest) : fabs(lowest));
}

/* The best arms of a round: the first of them alone, or all of them alike. */
static void best_arms(double *chances, const double *scores, ptrdiff_t count, double tolerance, int alike) {
    double highest = scores[0];
    ptrdiff_t ties = 0;
    for (ptrdiff_t k = 1; k < count; k++)
        if (scores[k] > highest) highest = scores[k];
    for (ptrdiff_t k = 0; k < count; k++) {
        const int best = scores[k] >= highest - tolerance && (alike || !ties);
        chances[k] = best;
        ties += best;
    }
    for (ptrdiff_t k = 0; k < count; k++) chances[k] /= ties;
}

/* Probabilities under a mixture, as multiples of 2⁻⁵³ that sum to 1: see `summing_to_one`. */
static void mix(double *chances, ptrdiff_t count, double epsilon, double least) {
    ptrdiff_t top = 0;
    double others = 0;
    for (ptrdiff_t k = 0; k < count; k++) {
        const double rounded = floor((least + (1 - epsilon) * chances[k]) * GRID) / GRID;
        chances[k] = rounded > least ? rounded : least;
        if (chances[k] > chances[top]) top = k;
    }
    for (ptrdiff_t k = 0; k < count; k++)
        if (k != top) others += chances[k];
    chances[top] = 1 - others > least ? 1 - others : least;
}

/* The probabilities of the arms of a round; `work` has room for 2·count numbers. */
static int chances_of(const struct rarely_step_task *task, ptrdiff_t round, ptrdiff_t count, const double *means,
                      const double *bonuses, double *chances, double *work) {
    if (task->rule == UNIFORM) {
        for (ptrdiff_t k = 0; k < count; k++) chances[k] = 1.0 / count;
    } else if (task->rule == GIVEN) {
        ptrdiff_t given = 0;
        for (ptrdiff_t k = 0; k < task->given[round]; k++)
            given += !task->present || task->present[round * task->arms + k];
        for (ptrdiff_t k = 0; k < count; k++) chances[k] = k == given;
    } else {
        for (ptrdiff_t k = 0; k < count; k++) work[k] = means[k] + bonuses[k];
        const double tolerance = tolerance_of(work, bonuses, count, task->reward_spread);
        if (task->rule == UPPER || task->rule == UPPER_SHARED)
            best_arms(chances, work, count, tolerance, task->rule == UPPER_SHARED);
        else {
            double largest = 0;
            for (ptrdiff_t k = 0; k < count; k++) largest = bonuses[k] > largest ? bonuses[k] : largest;
            const double own = largest > 0 ? tolerance_of(means, bonuses, count, 0) : tolerance;
            const int lowest = task->rule == THOMPSON;
            const int failed = rarely_highest(count, means, bonuses, own, lowest, task->normal, chances);
            if (failed) return failed == 1 ? NO_MEMORY : LARGE_BONUSES;
        }
    }
    if (task->shares) mix(chances, count, task->epsilon, task->shares[round]);
    return FINE;
}

/* The arm that a uniform number draws; without one the most probable arm. */
static ptrdiff_t drawn(const double *chances, ptrdiff_t count, const double *uniform, double share, unsigned char *lot) {
    ptrdiff_t arm = 0;
    double total = 0, reached = 0;
    if (!uniform) {
        for (ptrdiff_t k = 1; k < count; k++)
            if (chances[k] > chances[arm]) arm = k;
        return arm;
    }
    for (ptrdiff_t k = 0; k < count; k++) total += chances[k];
    while (arm < count && !((reached += chances[arm]) > *uniform * total)) arm++;
    if (arm == count) return 0;
    *lot = *uniform * total - (reached - chances[arm]) < share;
    return arm;
}

/* Scores of the arms there are become those of all arms, in the same place: NaN, or 0, for an absent one. */
static void spread_out(double *numbers, const unsigned char *present, ptrdiff_t arms, ptrdiff_t count, double absent) {
    for (ptrdiff_t k = arms - 1; k >= 0; k--) numbers[k] = present[k] ? numbers[--count] : absent;
}

#ifdef __x86_64__
BEGIN_FORM(AVX512)
#define FORM avx512
#define VECTORS 2 /* of a tile */
#define ROWS 4
#include "steps_kernels.h"
END_FORM
BEGIN_FORM(AVX2)
#define FORM avx2
#define VECTORS 4
#define ROWS 2
#include "steps_kernels.h"
END_FORM
#endif

#define FORM base
#define VECTORS 8
#define ROWS 1
#include "steps_kernels.h"

int rarely_step(struct rarely_step_task *task) { return CHOOSE(step, f64)(task); }

int rarely_regress(ptrdiff_t order, ptrdiff_t dim, ptrdiff_t count, const double *rows, const double *rewards,
                   double *block) {
    return CHOOSE(regress, f64)(order, dim, count, rows, rewards, block);
}

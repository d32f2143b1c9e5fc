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
 *
 * The slots of a slate are rounds among the same arms less those above. Where bonuses come from the running Z, a slot
 * costs p products an arm, w being Z⁻¹x' of the arm above under the Z that has it:   v ← v − (1 + v')(w·x)²
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
#define DIGITS_LOST 1e-10 /* as in covariance/cholesky.py */
#define CANCELLED 1e-4    /* as in covariance/protocol.py */
#define ROUNDING 1e-9     /* as in policies/ceilings.py */

enum rule { UPPER, UPPER_SHARED, THOMPSON, THOMPSON_SHARED, UNIFORM, GIVEN };
enum trouble { FINE, WRONG_CONTEXTS, LARGE_FEATURES, LARGE_VARIANCES, NO_MEMORY, LARGE_BONUSES, ROUNDED_OFF, LARGE_WORTH,
               WRONG_WORTH };

/* The arms of a slate, whose slots are rounds: tiles of x, and what was found of each arm when there was none above. */
struct slate {
    ptrdiff_t arms, *left; /* those that are left, in order */
    double *x, *mean, *per_prior, *v, *measured; /* v is what is left of `measured`; 1/prior is 0 for arms taken */
};

static int all_finite(const double *numbers, ptrdiff_t count) {
    int finite = 1;
    for (ptrdiff_t i = 0; i < count; i++) finite &= isfinite(numbers[i]) != 0;
    return finite;
}

/* The highest of sign·numbers, which are finite; by eights, as a compiler may not do by itself. */
static double highest_of(const double *numbers, ptrdiff_t count, double sign) {
    double parts[8];
    for (int l = 0; l < 8; l++) parts[l] = sign * numbers[0];
    for (ptrdiff_t k = 0; k + 8 <= count; k += 8)
        UNROLL for (int l = 0; l < 8; l++) {
            const double number = sign * numbers[k + l];
            parts[l] = parts[l] > number ? parts[l] : number;
        }
    for (ptrdiff_t k = count & ~(ptrdiff_t)7; k < count; k++) parts[0] = fmax(parts[0], sign * numbers[k]);
    for (int l = 1; l < 8; l++) parts[0] = fmax(parts[0], parts[l]);
    return parts[0];
}

/* How far below the best score an arm still ties with it; bonuses give the size of what was rounded. */
static double tolerance_of(const double *scores, const double *bonuses, ptrdiff_t count, double spread) {
    const double highest = highest_of(scores, count, 1), lowest = -highest_of(scores, count, -1);
    const double bonus = highest_of(bonuses, count, 1);
    double size = highest - lowest > bonus ? highest - lowest : bonus;
    if (spread > size) size = spread;
    return TIE * size + ROUNDED * (fabs(highest) > fabs(lowest) ? fabs(highest) : fabs(lowest));
}

/* The best arms of a round: the first of them alone, or all of them alike. */
static void best_arms(double *chances, const double *scores, ptrdiff_t count, double tolerance, int alike) {
    const double least = highest_of(scores, count, 1) - tolerance;
    ptrdiff_t ties = 0;
    memset(chances, 0, count * sizeof *chances);
    for (ptrdiff_t k = 0; k < count && (alike || !ties); k++)
        if (scores[k] >= least) chances[k] = 1, ties++;
    for (ptrdiff_t k = 0; k < count && ties > 1; k++) chances[k] /= ties;
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

/* The price at which a round spends this much, between those of the curve: see `Ledger.price`. */
static double price_at(const double *prices, const double *spending, ptrdiff_t points, double rate) {
    ptrdiff_t j = 0;
    while (j < points && spending[j] > rate) j++;
    if (j == 0 || j == points) return prices[j ? points - 1 : 0];
    const double slope = (prices[j - 1] - prices[j]) / (spending[j - 1] - spending[j]);
    const volatile double rise = slope * (rate - spending[j]); /* rounded by itself, as NumPy does */
    return rise + prices[j];
}

/* What arms take of a ceiling joins their costs, at the price of the round. Returns whether all of them fit. */
static int charge(struct rarely_step_task *task, ptrdiff_t count, double *costs) {
    const double left = task->total - task->spent, most = highest_of(task->spends, count, 1);
    const double rate = (left > 0 ? left : 0) / (task->rounds_left > 1 ? task->rounds_left : 1);
    if (!all_finite(task->spends, count) || highest_of(task->spends, count, -1) > 0) return 0;
    if (most > left + ROUNDING * task->total || task->spent + most > task->total * (1 + ROUNDING)) return 0;
    task->price = price_at(task->curve, task->curve + task->points, task->points, rate);
    for (ptrdiff_t k = 0; k < count; k++) costs[k] += task->price * task->spends[k];
    return 1;
}

/* The probabilities of the arms of a round; bonuses are rounded as `sizes` are, and scores by `rounded` besides. `work`
 * has room for 2·count numbers. */
static int chances_of(const struct rarely_step_task *task, ptrdiff_t round, ptrdiff_t count, const double *means,
                      const double *bonuses, const double *sizes, double spread, double rounded, double *chances,
                      double *work) {
    if (task->rule == UNIFORM) {
        for (ptrdiff_t k = 0; k < count; k++) chances[k] = 1.0 / count;
    } else if (task->rule == GIVEN) {
        ptrdiff_t given = 0;
        for (ptrdiff_t k = 0; k < task->given[round]; k++)
            given += !task->present || task->present[round * task->arms + k];
        for (ptrdiff_t k = 0; k < count; k++) chances[k] = k == given;
    } else {
        for (ptrdiff_t k = 0; k < count; k++) work[k] = means[k] + bonuses[k];
        const double tolerance = tolerance_of(work, sizes, count, spread) + rounded;
        if (task->rule == UPPER || task->rule == UPPER_SHARED)
            best_arms(chances, work, count, tolerance, task->rule == UPPER_SHARED);
        else {
            const double own = highest_of(bonuses, count, 1) > 0 ? tolerance_of(means, bonuses, count, 0) : tolerance;
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
        const double highest = highest_of(chances, count, 1);
        while (chances[arm] < highest) arm++;
        return arm;
    }
    for (ptrdiff_t k = 0; k < count; k++) total += chances[k];
    while (arm < count && !((reached += chances[arm]) > *uniform * total)) arm++;
    if (arm == count) return 0;
    *lot = *uniform * total - (reached - chances[arm]) < share;
    return arm;
}

/* Scores of the arms there are, in three tables this far apart, become those of all arms, in the same place: NaN, or a
 * chance of 0, for an absent one. */
static void spread_out(double *scores, ptrdiff_t apart, const unsigned char *present, ptrdiff_t arms, ptrdiff_t count) {
    for (ptrdiff_t end = arms, k = arms; count < end; end = k) {
        while (k > 0 && present[k - 1]) k--;
        count -= end - k;
        for (int table = 0; table < 3; table++) {
            double *numbers = scores + table * apart;
            memmove(numbers + k, numbers + count, (end - k) * sizeof *numbers);
            if (k > count) numbers[k - 1] = table < 2 ? NAN : 0;
        }
        if (k > count) k--;
    }
}

/* Features of a round's arms, as `Views.features` has them, and their squared norms. */
static void dual_features(const struct rarely_dual_task *dual, const double *rows, ptrdiff_t count, ptrdiff_t dim) {
    const double *root = dual->roots;
    for (ptrdiff_t k = 0; k < count; k++, rows += dim) {
        double *x = dual->x + k * dual->raw, *u = dual->u + k * dual->centred, *z = dual->z + k * dual->learned;
        double *s = dual->s + k * dual->columns, size = 1, square = 0, turned = 1, norm = 0, along = 0, apart = 0;
        for (ptrdiff_t j = 0; j < dim; j++) {
            const double c = (rows[j] - dual->center[j]) * dual->rates[j];
            u[j] = c > dual->most ? dual->most : c < -dual->most ? -dual->most : c;
            size += u[j] * u[j];
            if (dual->raw) x[j] = rows[j] * dual->sizes[j], norm += x[j] * x[j];
            if (dual->columns) s[j] = u[j] * (root[5] * root[5]), along += fabs(s[j]), apart += s[j] * s[j];
        }
        for (ptrdiff_t i = 0; i < dual->learned - 1; i++) {
            z[i] = 0;
            for (ptrdiff_t j = 0; j < dim; j++) z[i] += u[j] * dual->metric[j * dim + i];
            turned += z[i] * z[i];
        }
        u[dim] = 1;
        for (ptrdiff_t j = 0; j <= dim; j++) u[j] /= sqrt(size), square += u[j] * u[j];
        double *length = dual->u_lengths + 3 * k;
        length[0] = root[1] * sqrt(size), length[1] = root[2] * size / sqrt(2), length[2] = root[3];
        norm = norm * root[0] * root[0] + square * (length[0] * length[0] + length[1] * length[1] + length[2] * length[2]);
        dual->x_lengths[k] = root[0], dual->z_lengths[k] = dual->learned ? root[4] * sqrt(turned) : 0;
        if (dual->learned) {
            double whole = 0;
            z[dim] = 1;
            for (ptrdiff_t j = 0; j <= dim; j++) z[j] /= sqrt(turned), whole += z[j] * z[j];
            norm += whole * dual->z_lengths[k] * dual->z_lengths[k];
        }
        dual->s_lengths[k] = apart > 0 ? sqrt(along / apart) : 0;
        norm += apart * dual->s_lengths[k] * dual->s_lengths[k];
        dual->clocks[2 * k] = dual->time, dual->clocks[2 * k + 1] = dual->side;
        dual->norms[k] = norm;
    }
}

/* Means and variances of a round's arms by kernels, and what variances were subtracted from. */
static int dual_assess(struct rarely_step_task *task, const double *rows, ptrdiff_t count, double *means,
                       double *variances, double *whole) {
    const struct rarely_dual_task *dual = task->dual;
    const ptrdiff_t past = dual->past.count, lanes = dual->width ? 8 * dual->width * dual->blocks : dual->blocks;
    const ptrdiff_t row_step = dual->width ? lanes : 1, column_step = dual->width ? 1 : past;
    const struct rarely_kernel_side arms = {count, dual->x, dual->u, dual->z, dual->s, dual->clocks,
                                            dual->x_lengths, dual->u_lengths, dual->z_lengths};
    struct rarely_kernel_task kernel = {dual->raw, dual->centred, dual->learned, dual->columns, dual->past, arms,
                                        row_step, column_step, dual->solution};
    if (!all_finite(rows, count * task->dim)) return WRONG_CONTEXTS;
    dual_features(dual, rows, count, task->dim);
    if (past) {
        memset(dual->solution, 0, past * lanes * sizeof *dual->solution);
        if (rarely_kernel(&kernel)) return NO_MEMORY;
    }
    const double *k = dual->points.count ? dual->k : dual->solution;
    const ptrdiff_t down = dual->points.count ? count : row_step, across = dual->points.count ? 1 : column_step;
    if (dual->points.count) {
        kernel.left = dual->points, kernel.row_step = count, kernel.column_step = 1, kernel.out = dual->k;
        if (rarely_kernel(&kernel)) return NO_MEMORY;
    }
    for (ptrdiff_t l = 0; l < count; l++) {
        double mean = 0;
        for (ptrdiff_t i = 0; i < dual->predicted; i++) mean += dual->coefficients[i] * k[i * down + l * across];
        means[l] = dual->reward_center + dual->reward_scale * mean;
    }
    const struct rarely_solve_task solve = {dual->width, dual->blocks, 0, past, 1, dual->left, dual->inverse, dual->solution};
    if (past && rarely_solve(&solve)) return NO_MEMORY;
    for (ptrdiff_t l = 0; l < count; l++) {
        double left = dual->norms[l];
        for (ptrdiff_t i = 0; i < past; i++) {
            const double number = dual->solution[i * row_step + l * column_step];
            left -= number * number;
        }
        if (!isfinite(means[l]) || !isfinite(dual->norms[l] / task->ridge)) return LARGE_FEATURES;
        if (!isfinite(left)) return LARGE_VARIANCES;
        if (left < DIGITS_LOST * dual->norms[l]) return ROUNDED_OFF;
        whole[l] = dual->norms[l] / task->ridge, variances[l] = left / task->ridge;
        task->unexplored += variances[l] / (whole[l] > TINY_VARIANCE ? whole[l] : TINY_VARIANCE);
    }
    for (ptrdiff_t j = 0; j < task->dim && task->disjoint; j++) {
        ptrdiff_t owners = 0;
        for (ptrdiff_t l = 0; l < count; l++) owners += rows[l * task->dim + j] != 0;
        task->disjoint = owners <= 1;
    }
    return FINE;
}

static void open_slate(const struct rarely_step_task *task, struct slate *slate) {
    for (ptrdiff_t k = 0; k < task->arms; k++) slate->arms += task->present[k];
    const ptrdiff_t lanes = (slate->arms + LANES - 1) / LANES * LANES;
    slate->left = (ptrdiff_t *)(task->work + 6 * task->arms);
    slate->mean = task->work + 7 * task->arms;
    slate->per_prior = slate->mean + lanes, slate->v = slate->per_prior + lanes, slate->measured = slate->v + lanes;
    slate->x = slate->measured + lanes;
    for (ptrdiff_t k = 0; k < slate->arms; k++) slate->left[k] = k;
    for (ptrdiff_t k = slate->arms; k < lanes; k++) slate->per_prior[k] = slate->v[k] = slate->measured[k] = 0;
}

/* What is known of the arms that are left for the next slot. */
static void recall(struct rarely_step_task *task, const struct slate *slate, ptrdiff_t count, double *means,
                   double *variances) {
    double parts[8] = {0};
    for (ptrdiff_t k = 0; k < count; k++) means[k] = slate->mean[slate->left[k]], variances[k] = slate->v[slate->left[k]];
    for (ptrdiff_t row = 0; row < slate->arms; row += 8)
        for (int l = 0; l < 8; l++) parts[l] += slate->v[row + l] * slate->per_prior[row + l];
    for (int l = 0; l < 8; l++) task->unexplored += parts[l];
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

/* Candidates against past rounds: the inner products of their features, and the solution by the growing factor.
 *
 *   cross            k_ti = Σ_l (a_tl·b_il)(δ_tl·ε_il)
 *   solve            L⁻¹k by panels of PANEL rows: those left of the diagonal block, and the block's inverse
 *   factor, invert   what a panel's own block needs: LAPACK would wake threads for it, and they go on spinning
 *
 * Each candidate is a lane, in blocks of 8·width lanes, width 1 or 2; unused lanes are 0. So the K columns of one
 * decision cost one read of the factors and of the triangle, where a matrix product spends its time on preparations;
 * and many columns are products at full speed that pass through memory once, with each thread at its own columns.
 * Four candidates or fewer come row by row instead, width 0: then `blocks` is how many (1, 2 or 4), and what is read for
 * them passes at the speed of memory.
 */
#include <math.h>

#include "forms.h"
#include "rarely_native.h"

#define PRECISION f64
#define PANEL 128
#define CHUNK 64                         /* rows of the triangle that stay in the second cache for all blocks */
#define PREFETCH 128                     /* numbers ahead */
#define PRODUCTS_OF_A_THREAD (1 << 21) /* that are worth starting it */
#define FEW 4                            /* candidates that come row by row */

/* Each form: eight lanes are VECTORS vectors; a tile has ROWS rows, or DOT_ROWS where candidates come row by row. */
#ifdef __x86_64__
BEGIN_FORM(AVX512)
#define FORM avx512
#define VECTORS 1
#define ROWS 8
#define DOT_ROWS 4
#include "scores_kernels.h"
END_FORM
BEGIN_FORM(AVX2)
#define FORM avx2
#define VECTORS 2
#define ROWS 3
#define DOT_ROWS 2
#include "scores_kernels.h"
END_FORM
#endif

#define FORM base
#define VECTORS 4
#ifdef __x86_64__ /* 16 registers */
#define ROWS 1
#define DOT_ROWS 2
#else /* 32 */
#define ROWS 3
#define DOT_ROWS 4
#endif
#include "scores_kernels.h"

/* The columns of one thread. */
typedef struct {
    const struct rarely_cross_task *cross;
    const struct rarely_solve_task *solve;
    ptrdiff_t first, blocks;
    int failed;
} share;

THREAD_MAIN(cross_main, argument) {
    share *mine = argument;
    mine->failed = CHOOSE(cross, f64)(mine->cross, mine->first, mine->blocks);
    THREAD_END;
}

THREAD_MAIN(solve_main, argument) {
    share *mine = argument;
    mine->failed = CHOOSE(solve, f64)(mine->solve, mine->first, mine->blocks);
    THREAD_END;
}

static ptrdiff_t useful_threads(ptrdiff_t threads, ptrdiff_t blocks, ptrdiff_t products) {
    if (threads > blocks) threads = blocks;
    if (threads > products / PRODUCTS_OF_A_THREAD) threads = products / PRODUCTS_OF_A_THREAD;
    return threads < 1 ? 1 : threads;
}

/* Every thread has its blocks. The caller is the first, and does what no thread could be had for. */
static int run_shares(share *shares, thread *ids, char *started, __typeof__(&cross_main) work, ptrdiff_t threads) {
    int failed = 0;
    for (ptrdiff_t t = 1; t < threads; t++) started[t] = (char)thread_start(&ids[t], work, &shares[t]);
    for (ptrdiff_t t = 0; t < threads; t++)
        if (!started[t]) work(&shares[t]);
    for (ptrdiff_t t = 0; t < threads; t++) {
        if (started[t]) thread_join(ids[t]);
        failed |= shares[t].failed;
    }
    return failed;
}

static int share_columns(share all, __typeof__(&cross_main) work, ptrdiff_t threads) {
    if (threads == 1) {
        work(&all);
        return all.failed;
    }
    share *shares = malloc(threads * sizeof *shares);
    thread *ids = malloc(threads * sizeof *ids);
    char *started = calloc(threads, 1);
    int failed = !shares || !ids || !started;
    for (ptrdiff_t t = 0; t < threads && !failed; t++) {
        shares[t] = all;
        shares[t].first = all.blocks * t / threads;
        shares[t].blocks = all.blocks * (t + 1) / threads - shares[t].first;
    }
    if (!failed) failed = run_shares(shares, ids, started, work, threads);
    free(shares), free(ids), free(started);
    return failed;
}

int rarely_cross(const struct rarely_cross_task *task) {
    ptrdiff_t numbers = 0;
    for (ptrdiff_t l = 0; l < 2 * task->layers; l++) numbers += task->sizes[l];
    if (!task->width) {
        CHOOSE(cross_few, f64)(task);
        return 0;
    }
    const ptrdiff_t products = numbers * task->past * task->blocks * 8 * task->width;
    const share all = {.cross = task, .blocks = task->blocks};
    return share_columns(all, cross_main, useful_threads(task->threads, task->blocks, products));
}

int rarely_solve(const struct rarely_solve_task *task) {
    if (!task->width) {
        CHOOSE(solve_few, f64)(task);
        return 0;
    }
    const ptrdiff_t triangle = (task->rows * task->rows - task->done * task->done) / 2;
    const ptrdiff_t products = triangle * task->blocks * 8 * task->width;
    const share all = {.solve = task, .blocks = task->blocks};
    return share_columns(all, solve_main, useful_threads(task->threads, task->blocks, products));
}

int rarely_factor(ptrdiff_t order, double *matrix) { return CHOOSE(factor, f64)(order, matrix); }

void rarely_invert(ptrdiff_t order, const double *lower, double *inverse) {
    CHOOSE(invert, f64)(order, lower, inverse);
}

/* One form: ROWS rows at a time, every candidate of a block a lane of one of `width` vectors. */
#define vec NAME(vec)
#define mask NAME(mask)
#define REAL double
#define LANES (8 / VECTORS)
#define WIDEST (2 * VECTORS) /* vectors in a block */
typedef double vec __attribute__((vector_size(64 / VECTORS), aligned(8)));
typedef long long mask __attribute__((vector_size(64 / VECTORS)));

#include "lane_sums.h"

/* The products of `high` rows, `pitch` apart, with `length` rows of lanes. */
INLINE void NAME(tile_product)(const int high, const int width, const double *restrict rows, ptrdiff_t pitch,
                               const vec *restrict lanes, ptrdiff_t length, vec *restrict out) {
    vec sums[ROWS][WIDEST];
    const vec zero = {0};
    UNROLL for (int r = 0; r < high; r++)
        UNROLL for (int c = 0; c < width; c++) sums[r][c] = zero;
    for (ptrdiff_t j = 0; j < length; j++) {
        /* Rows end before the processor has seen where they go. */
        if (j % 8 == 0) UNROLL for (int r = 0; r < high; r++) __builtin_prefetch(rows + r * pitch + j + PREFETCH);
        UNROLL for (int r = 0; r < high; r++)
            UNROLL for (int c = 0; c < width; c++) sums[r][c] += rows[r * pitch + j] * lanes[j * width + c];
    }
    UNROLL for (int r = 0; r < high; r++)
        UNROLL for (int c = 0; c < width; c++) out[r * width + c] = sums[r][c];
}

INLINE void NAME(multiply)(const int width, const double *rows, ptrdiff_t count, ptrdiff_t pitch, const vec *lanes,
                           ptrdiff_t length, vec *out) {
    ptrdiff_t r = 0;
    for (; r + ROWS <= count; r += ROWS)
        NAME(tile_product)(ROWS, width, rows + r * pitch, pitch, lanes, length, out + r * width);
    for (; r < count; r++) NAME(tile_product)(1, width, rows + r * pitch, pitch, lanes, length, out + r * width);
}

INLINE void NAME(cross_width)(const int width, const struct rarely_cross_task *task, ptrdiff_t first, ptrdiff_t blocks) {
    vec inputs[PANEL * WIDEST], signals[PANEL * WIDEST];
    const ptrdiff_t stride = task->blocks * width;
    for (ptrdiff_t start = 0; start < task->past; start += PANEL) {
        const ptrdiff_t count = task->past - start < PANEL ? task->past - start : PANEL;
        for (ptrdiff_t b = first; b < first + blocks; b++)
            for (ptrdiff_t l = 0; l < 2 * task->layers; l += 2) {
                const ptrdiff_t in = task->sizes[l], up = task->sizes[l + 1];
                const vec *new_in = (const vec *)task->new_factors[l] + b * in * width;
                const vec *new_up = (const vec *)task->new_factors[l + 1] + b * up * width;
                NAME(multiply)(width, task->old_factors[l] + start * in, count, in, new_in, in, inputs);
                if (up) NAME(multiply)(width, task->old_factors[l + 1] + start * up, count, up, new_up, up, signals);
                for (ptrdiff_t r = 0; r < count; r++) {
                    vec *k = (vec *)task->out + (start + r) * stride + b * width;
                    UNROLL for (int c = 0; c < width; c++) {
                        vec product = inputs[r * width + c];
                        if (up) product *= signals[r * width + c];
                        k[c] = l ? k[c] + product : product;
                    }
                }
            }
    }
}

static int NAME(cross)(const struct rarely_cross_task *task, ptrdiff_t first, ptrdiff_t blocks) {
    if (task->width == 1) NAME(cross_width)(VECTORS, task, first, blocks);
    else NAME(cross_width)(WIDEST, task, first, blocks);
    return 0;
}

/* y is (blocks, rows, lanes). A chunk of the triangle's rows stays in the second cache for all blocks. */
INLINE void NAME(solve_width)(const int width, const struct rarely_solve_task *task, ptrdiff_t blocks, vec *y) {
    vec sums[PANEL * WIDEST];
    const ptrdiff_t rows = task->rows;
    for (ptrdiff_t start = task->done; start < rows; start += PANEL) {
        const ptrdiff_t panel = start / PANEL, count = rows - start < PANEL ? rows - start : PANEL;
        for (ptrdiff_t from = 0; from < count; from += CHUNK) {
            const ptrdiff_t part = count - from < CHUNK ? count - from : CHUNK;
            for (ptrdiff_t b = 0; b < blocks; b++) {
                vec *all = y + b * rows * width, *here = all + (start + from) * width;
                NAME(multiply)(width, task->left[panel] + from * start, part, start, all, start, sums);
                for (ptrdiff_t r = 0; r < part * width; r++) here[r] -= sums[r];
            }
        }
        for (ptrdiff_t b = 0; b < blocks; b++) {
            vec *here = y + (b * rows + start) * width;
            NAME(multiply)(width, task->inverse[panel], count, PANEL, here, count, sums);
            memcpy(here, sums, count * width * sizeof *sums);
        }
    }
}

static int NAME(solve)(const struct rarely_solve_task *task, ptrdiff_t first, ptrdiff_t blocks) {
    const ptrdiff_t lanes = 8 * task->width, stride = task->blocks * lanes, size = task->rows * lanes;
    double *y = task->solution;
    const int whole = task->blocks == 1; /* it is already one block after another */
    if (!whole) {
        y = aligned_alloc(CACHE_LINE, blocks * size * sizeof *y + CACHE_LINE);
        if (!y) return 1;
        for (ptrdiff_t r = 0; r < task->rows; r++)
            for (ptrdiff_t b = 0; b < blocks; b++)
                memcpy(y + b * size + r * lanes, task->solution + r * stride + (first + b) * lanes, lanes * sizeof *y);
    }
    if (task->width == 1) NAME(solve_width)(VECTORS, task, blocks, (vec *)y);
    else NAME(solve_width)(WIDEST, task, blocks, (vec *)y);
    if (!whole) {
        for (ptrdiff_t r = task->done; r < task->rows; r++)
            for (ptrdiff_t b = 0; b < blocks; b++)
                memcpy(task->solution + r * stride + (first + b) * lanes, y + b * size + r * lanes, lanes * sizeof *y);
        aligned_free(y);
    }
    return 0;
}

/* A few candidates, each contiguous: rows are read as vectors, not number by number. */
INLINE void NAME(tile_dots)(const int high, const int few, const double *restrict rows, ptrdiff_t pitch,
                            const double *restrict lanes, ptrdiff_t stride, ptrdiff_t length, double *restrict sums) {
    vec s[DOT_ROWS * FEW];
    double totals[DOT_ROWS * FEW];
    const vec zero = {0};
    ptrdiff_t j = 0;
    UNROLL for (int i = 0; i < high * few; i++) s[i] = zero;
    for (; j + LANES <= length; j += LANES)
        UNROLL for (int r = 0; r < high; r++) {
            const vec numbers = *(const vec *)(rows + r * pitch + j);
            UNROLL for (int c = 0; c < few; c++) s[r * few + c] += numbers * *(const vec *)(lanes + c * stride + j);
        }
    NAME(lane_sums)(high * few, s, totals);
    for (; j < length; j++)
        UNROLL for (int r = 0; r < high; r++)
            UNROLL for (int c = 0; c < few; c++) totals[r * few + c] += rows[r * pitch + j] * lanes[c * stride + j];
    UNROLL for (int r = 0; r < high; r++)
        UNROLL for (int c = 0; c < few; c++) sums[c * PANEL + r] = totals[r * few + c];
}

/* sums is (few, PANEL). */
INLINE void NAME(dots)(const int few, const double *rows, ptrdiff_t count, ptrdiff_t pitch, const double *lanes,
                       ptrdiff_t stride, ptrdiff_t length, double *sums) {
    ptrdiff_t r = 0;
    for (; r + DOT_ROWS <= count; r += DOT_ROWS)
        NAME(tile_dots)(DOT_ROWS, few, rows + r * pitch, pitch, lanes, stride, length, sums + r);
    for (; r < count; r++) NAME(tile_dots)(1, few, rows + r * pitch, pitch, lanes, stride, length, sums + r);
}

INLINE void NAME(cross_rows)(const int few, const struct rarely_cross_task *task) {
    double inputs[FEW * PANEL], signals[FEW * PANEL];
    for (ptrdiff_t start = 0; start < task->past; start += PANEL) {
        const ptrdiff_t count = task->past - start < PANEL ? task->past - start : PANEL;
        for (ptrdiff_t l = 0; l < 2 * task->layers; l += 2) {
            const ptrdiff_t in = task->sizes[l], up = task->sizes[l + 1];
            NAME(dots)(few, task->old_factors[l] + start * in, count, in, task->new_factors[l], in, in, inputs);
            if (up)
                NAME(dots)(few, task->old_factors[l + 1] + start * up, count, up, task->new_factors[l + 1], up, up,
                           signals);
            for (int c = 0; c < few; c++)
                for (ptrdiff_t r = 0; r < count; r++) {
                    double *k = task->out + c * task->past + start + r;
                    const double product = inputs[c * PANEL + r] * (up ? signals[c * PANEL + r] : 1);
                    *k = l ? *k + product : product;
                }
        }
    }
}

INLINE void NAME(solve_rows)(const int few, const struct rarely_solve_task *task) {
    double sums[FEW * PANEL], *y = task->solution;
    const ptrdiff_t rows = task->rows;
    for (ptrdiff_t start = task->done; start < rows; start += PANEL) {
        const ptrdiff_t panel = start / PANEL, count = rows - start < PANEL ? rows - start : PANEL;
        NAME(dots)(few, task->left[panel], count, start, y, rows, start, sums);
        for (int c = 0; c < few; c++)
            for (ptrdiff_t r = 0; r < count; r++) y[c * rows + start + r] -= sums[c * PANEL + r];
        NAME(dots)(few, task->inverse[panel], count, PANEL, y + start, rows, count, sums);
        for (int c = 0; c < few; c++) memcpy(y + c * rows + start, sums + c * PANEL, count * sizeof *y);
    }
}

/* One candidate, the chosen one of a round, is as common as all arms of a round. */
static void NAME(cross_few)(const struct rarely_cross_task *task) {
    if (task->blocks == 1) NAME(cross_rows)(1, task);
    else if (task->blocks == 2) NAME(cross_rows)(2, task);
    else if (task->blocks) NAME(cross_rows)(FEW, task);
}

static void NAME(solve_few)(const struct rarely_solve_task *task) {
    if (task->blocks == 1) NAME(solve_rows)(1, task);
    else if (task->blocks == 2) NAME(solve_rows)(2, task);
    else if (task->blocks) NAME(solve_rows)(FEW, task);
}

/* out −= factor·row */
INLINE void NAME(subtract_multiple)(double *restrict out, const double *restrict row, double factor, ptrdiff_t count) {
    ptrdiff_t k = 0;
    for (; k + LANES <= count; k += LANES) *(vec *)(out + k) -= factor * *(const vec *)(row + k);
    for (; k < count; k++) out[k] -= factor * row[k];
}

/* By rows of the upper triangle: so no sum goes across lanes. */
static int NAME(factor)(ptrdiff_t order, double *matrix) {
    for (ptrdiff_t i = 0; i < order; i++)
        for (ptrdiff_t j = 0; j < i; j++) matrix[j * order + i] = matrix[i * order + j];
    for (ptrdiff_t j = 0; j < order; j++) {
        double *row = matrix + j * order;
        if (!(row[j] > 0)) return 1; /* NaN too */
        const double root = sqrt(row[j]);
        for (ptrdiff_t k = j; k < order; k++) row[k] /= root;
        for (ptrdiff_t i = j + 1; i < order; i++)
            NAME(subtract_multiple)(matrix + i * order + i, row + i, row[i], order - i);
    }
    for (ptrdiff_t i = 0; i < order; i++)
        for (ptrdiff_t j = 0; j < i; j++) matrix[i * order + j] = matrix[j * order + i], matrix[j * order + i] = 0;
    return 0;
}

static void NAME(invert)(ptrdiff_t order, const double *lower, double *inverse) {
    for (ptrdiff_t i = 0; i < order; i++) {
        double *row = inverse + i * order;
        const double *given = lower + i * order, scale = 1 / given[i];
        for (ptrdiff_t k = 0; k < i; k++) NAME(subtract_multiple)(row, inverse + k * order, given[k], k + 1);
        for (ptrdiff_t j = 0; j < i; j++) row[j] *= scale;
        row[i] = scale;
    }
}

#undef vec
#undef mask
#undef REAL
#undef LANES
#undef WIDEST
#undef FORM
#undef VECTORS
#undef ROWS
#undef DOT_ROWS

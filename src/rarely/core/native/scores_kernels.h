/* One form: ROWS rows at a time, every candidate of a block a lane of one of `width` vectors. */
#define vec NAME(vec)
#define LANES (8 / VECTORS)
#define WIDEST (2 * VECTORS) /* vectors in a block */
typedef double vec __attribute__((vector_size(64 / VECTORS), aligned(8)));

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

/* Few candidates, each contiguous: rows are read as vectors, not number by number. */
INLINE void NAME(tile_dots)(const int high, const double *restrict rows, ptrdiff_t pitch, const double *restrict few,
                            ptrdiff_t stride, ptrdiff_t length, double sums[][FEW]) {
    vec s[DOT_ROWS][FEW];
    const vec zero = {0};
    ptrdiff_t j = 0;
    UNROLL for (int r = 0; r < high; r++)
        UNROLL for (int c = 0; c < FEW; c++) s[r][c] = zero;
    for (; j + LANES <= length; j += LANES)
        UNROLL for (int r = 0; r < high; r++) {
            const vec numbers = *(const vec *)(rows + r * pitch + j);
            UNROLL for (int c = 0; c < FEW; c++) s[r][c] += numbers * *(const vec *)(few + c * stride + j);
        }
    UNROLL for (int r = 0; r < high; r++)
        UNROLL for (int c = 0; c < FEW; c++) {
            double total = 0;
            UNROLL for (int l = 0; l < LANES; l++) total += s[r][c][l];
            for (ptrdiff_t l = j; l < length; l++) total += rows[r * pitch + l] * few[c * stride + l];
            sums[r][c] = total;
        }
}

INLINE void NAME(dots)(const double *rows, ptrdiff_t count, ptrdiff_t pitch, const double *few, ptrdiff_t stride,
                       ptrdiff_t length, double (*sums)[FEW]) {
    ptrdiff_t r = 0;
    for (; r + DOT_ROWS <= count; r += DOT_ROWS)
        NAME(tile_dots)(DOT_ROWS, rows + r * pitch, pitch, few, stride, length, sums + r);
    for (; r < count; r++) NAME(tile_dots)(1, rows + r * pitch, pitch, few, stride, length, sums + r);
}

static void NAME(cross_few)(const struct rarely_cross_task *task) {
    double inputs[PANEL][FEW], signals[PANEL][FEW];
    for (ptrdiff_t start = 0; start < task->past; start += PANEL) {
        const ptrdiff_t count = task->past - start < PANEL ? task->past - start : PANEL;
        for (ptrdiff_t l = 0; l < 2 * task->layers; l += 2) {
            const ptrdiff_t in = task->sizes[l], up = task->sizes[l + 1];
            NAME(dots)(task->old_factors[l] + start * in, count, in, task->new_factors[l], in, in, inputs);
            if (up) NAME(dots)(task->old_factors[l + 1] + start * up, count, up, task->new_factors[l + 1], up, up, signals);
            for (int c = 0; c < FEW; c++)
                for (ptrdiff_t r = 0; r < count; r++) {
                    double *k = task->out + c * task->past + start + r;
                    const double product = up ? inputs[r][c] * signals[r][c] : inputs[r][c];
                    *k = l ? *k + product : product;
                }
        }
    }
}

static void NAME(solve_few)(const struct rarely_solve_task *task) {
    double sums[PANEL][FEW], *y = task->solution;
    const ptrdiff_t rows = task->rows;
    for (ptrdiff_t start = task->done; start < rows; start += PANEL) {
        const ptrdiff_t panel = start / PANEL, count = rows - start < PANEL ? rows - start : PANEL;
        NAME(dots)(task->left[panel], count, start, y, rows, start, sums);
        for (int c = 0; c < FEW; c++)
            for (ptrdiff_t r = 0; r < count; r++) y[c * rows + start + r] -= sums[r][c];
        NAME(dots)(task->inverse[panel], count, PANEL, y + start, rows, count, sums);
        for (int c = 0; c < FEW; c++)
            for (ptrdiff_t r = 0; r < count; r++) y[c * rows + start + r] = sums[r][c];
    }
}

/* Σ a_k b_k in eight sums, because one would have to wait for itself. */
INLINE double NAME(dot)(const double *a, const double *b, ptrdiff_t count) {
    vec sums[VECTORS];
    double total = 0;
    ptrdiff_t k = 0;
    memset(sums, 0, sizeof sums);
    for (; k + 8 <= count; k += 8)
        UNROLL for (int i = 0; i < VECTORS; i++)
            sums[i] += *(const vec *)(a + k + i * LANES) * *(const vec *)(b + k + i * LANES);
    for (; k < count; k++) total += a[k] * b[k];
    UNROLL for (int i = 0; i < VECTORS; i++)
        UNROLL for (int l = 0; l < LANES; l++) total += sums[i][l];
    return total;
}

static int NAME(factor)(ptrdiff_t order, double *matrix) {
    for (ptrdiff_t i = 0; i < order; i++) {
        double *row = matrix + i * order;
        for (ptrdiff_t j = 0; j < i; j++) {
            const double *other = matrix + j * order;
            row[j] = (row[j] - NAME(dot)(row, other, j)) / other[j];
        }
        const double pivot = row[i] - NAME(dot)(row, row, i);
        if (!(pivot > 0)) return 1; /* NaN too */
        row[i] = sqrt(pivot);
        for (ptrdiff_t j = i + 1; j < order; j++) row[j] = 0;
    }
    return 0;
}

static void NAME(invert)(ptrdiff_t order, const double *lower, double *inverse) {
    for (ptrdiff_t i = 0; i < order; i++) {
        double *restrict row = inverse + i * order;
        const double *given = lower + i * order, scale = 1 / given[i];
        for (ptrdiff_t k = 0; k < i; k++) {
            const double *restrict above = inverse + k * order;
            for (ptrdiff_t j = 0; j <= k; j++) row[j] -= given[k] * above[j];
        }
        for (ptrdiff_t j = 0; j < i; j++) row[j] *= scale;
        row[i] = scale;
    }
}

#undef vec
#undef LANES
#undef WIDEST
#undef FORM
#undef VECTORS
#undef ROWS
#undef DOT_ROWS

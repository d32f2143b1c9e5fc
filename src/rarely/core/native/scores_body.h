/* One processor's form: TALL rows at a time, every candidate of a block a lane of one of WIDTH vectors. */
#define vec NAME(vec)
#define WIDTHS (2 * PARTS)
#define LANES (8 / PARTS)
typedef double vec __attribute__((vector_size(64 / PARTS), aligned(8)));

/* The products of HIGH rows, `pitch` apart, with `length` rows of lanes. */
INLINE void NAME(products)(const int HIGH, const int WIDTH, const double *restrict rows, long pitch,
                           const vec *restrict lanes, long length, vec *restrict out) {
    vec sums[TALL][WIDTHS];
    const vec zero = {0};
    UNROLL for (int r = 0; r < HIGH; r++)
        UNROLL for (int c = 0; c < WIDTH; c++) sums[r][c] = zero;
    for (long j = 0; j < length; j++) {
        /* Rows end before the processor has seen where they go. */
        if (j % 8 == 0) UNROLL for (int r = 0; r < HIGH; r++) __builtin_prefetch(rows + r * pitch + j + AHEAD);
        UNROLL for (int r = 0; r < HIGH; r++)
            UNROLL for (int c = 0; c < WIDTH; c++) sums[r][c] += rows[r * pitch + j] * lanes[j * WIDTH + c];
    }
    UNROLL for (int r = 0; r < HIGH; r++)
        UNROLL for (int c = 0; c < WIDTH; c++) out[r * WIDTH + c] = sums[r][c];
}

INLINE void NAME(multiply)(const int WIDTH, const double *rows, long count, long pitch, const vec *lanes, long length,
                           vec *out) {
    long r = 0;
    for (; r + TALL <= count; r += TALL)
        NAME(products)(TALL, WIDTH, rows + r * pitch, pitch, lanes, length, out + r * WIDTH);
    for (; r < count; r++) NAME(products)(1, WIDTH, rows + r * pitch, pitch, lanes, length, out + r * WIDTH);
}

INLINE void NAME(cross_of)(const int WIDTH, long blocks, long past, long layers, const long *widths, const double **old,
                           const double **fresh, double *out, long stride) {
    vec inputs[PANEL * WIDTHS], signals[PANEL * WIDTHS];
    for (long start = 0; start < past; start += PANEL) {
        const long count = past - start < PANEL ? past - start : PANEL;
        for (long b = 0; b < blocks; b++)
            for (long l = 0; l < 2 * layers; l += 2) {
                const long in = widths[l], up = widths[l + 1];
                const vec *new_in = (const vec *)fresh[l] + b * in * WIDTH;
                const vec *new_up = (const vec *)fresh[l + 1] + b * up * WIDTH;
                NAME(multiply)(WIDTH, old[l] + start * in, count, in, new_in, in, inputs);
                if (up) NAME(multiply)(WIDTH, old[l + 1] + start * up, count, up, new_up, up, signals);
                for (long r = 0; r < count; r++) {
                    vec *k = (vec *)(out + (start + r) * stride) + b * WIDTH;
                    UNROLL for (int c = 0; c < WIDTH; c++) {
                        vec product = inputs[r * WIDTH + c];
                        if (up) product *= signals[r * WIDTH + c];
                        k[c] = l ? k[c] + product : product;
                    }
                }
            }
    }
}

/* y is blocks × rows × lanes. A chunk of the triangle's rows stays in the second cache for all blocks. */
INLINE void NAME(solve_of)(const int WIDTH, long blocks, long done, long rows, const double **left,
                           const double **inverse, vec *y) {
    vec sums[PANEL * WIDTHS];
    for (long start = done; start < rows; start += PANEL) {
        const long panel = start / PANEL, count = rows - start < PANEL ? rows - start : PANEL;
        for (long from = 0; from < count; from += CHUNK) {
            const long part = count - from < CHUNK ? count - from : CHUNK;
            for (long b = 0; b < blocks; b++) {
                vec *all = y + b * rows * WIDTH, *here = all + (start + from) * WIDTH;
                NAME(multiply)(WIDTH, left[panel] + from * start, part, start, all, start, sums);
                for (long r = 0; r < part * WIDTH; r++) here[r] -= sums[r];
            }
        }
        for (long b = 0; b < blocks; b++) {
            vec *here = y + (b * rows + start) * WIDTH;
            NAME(multiply)(WIDTH, inverse[panel], count, PANEL, here, count, sums);
            memcpy(here, sums, count * WIDTH * sizeof *sums);
        }
    }
}

static void NAME(cross)(int width, long blocks, long past, long layers, const long *widths, const double **old,
                        const double **fresh, double *out, long stride) {
    if (width == 1) NAME(cross_of)(PARTS, blocks, past, layers, widths, old, fresh, out, stride);
    else NAME(cross_of)(WIDTHS, blocks, past, layers, widths, old, fresh, out, stride);
}

static void NAME(solve)(int width, long blocks, long done, long rows, const double **left, const double **inverse,
                        double *y) {
    if (width == 1) NAME(solve_of)(PARTS, blocks, done, rows, left, inverse, (vec *)y);
    else NAME(solve_of)(WIDTHS, blocks, done, rows, left, inverse, (vec *)y);
}
/* Four candidates or fewer, each contiguous: rows are read as vectors, not number by number. */
INLINE void NAME(dots)(const int HIGH, const double *restrict rows, long pitch, const double *restrict four, long stride,
                       long length, double sums[][4]) {
    vec s[STRIPE][4];
    const vec zero = {0};
    long j = 0;
    UNROLL for (int r = 0; r < HIGH; r++)
        UNROLL for (int c = 0; c < 4; c++) s[r][c] = zero;
    for (; j + LANES <= length; j += LANES)
        UNROLL for (int r = 0; r < HIGH; r++) {
            const vec number = *(const vec *)(rows + r * pitch + j);
            UNROLL for (int c = 0; c < 4; c++) s[r][c] += number * *(const vec *)(four + c * stride + j);
        }
    UNROLL for (int r = 0; r < HIGH; r++)
        UNROLL for (int c = 0; c < 4; c++) {
            double total = 0;
            UNROLL for (int l = 0; l < LANES; l++) total += s[r][c][l];
            for (long l = j; l < length; l++) total += rows[r * pitch + l] * four[c * stride + l];
            sums[r][c] = total;
        }
}

INLINE void NAME(all_dots)(const double *rows, long count, long pitch, const double *four, long stride, long length,
                           double (*sums)[4]) {
    long r = 0;
    for (; r + STRIPE <= count; r += STRIPE)
        NAME(dots)(STRIPE, rows + r * pitch, pitch, four, stride, length, sums + r);
    for (; r < count; r++) NAME(dots)(1, rows + r * pitch, pitch, four, stride, length, sums + r);
}

static void NAME(cross_four)(long past, long layers, const long *widths, const double **old, const double **fresh,
                             double *out) {
    double inputs[PANEL][4], signals[PANEL][4];
    for (long start = 0; start < past; start += PANEL) {
        const long count = past - start < PANEL ? past - start : PANEL;
        for (long l = 0; l < 2 * layers; l += 2) {
            const long in = widths[l], up = widths[l + 1];
            NAME(all_dots)(old[l] + start * in, count, in, fresh[l], in, in, inputs);
            if (up) NAME(all_dots)(old[l + 1] + start * up, count, up, fresh[l + 1], up, up, signals);
            for (int c = 0; c < 4; c++)
                for (long r = 0; r < count; r++) {
                    double *k = out + c * past + start + r, product = up ? inputs[r][c] * signals[r][c] : inputs[r][c];
                    *k = l ? *k + product : product;
                }
        }
    }
}

static void NAME(solve_four)(long done, long rows, const double **left, const double **inverse, double *y) {
    double sums[PANEL][4];
    for (long start = done; start < rows; start += PANEL) {
        const long panel = start / PANEL, count = rows - start < PANEL ? rows - start : PANEL;
        NAME(all_dots)(left[panel], count, start, y, rows, start, sums);
        for (int c = 0; c < 4; c++)
            for (long r = 0; r < count; r++) y[c * rows + start + r] -= sums[r][c];
        NAME(all_dots)(inverse[panel], count, PANEL, y + start, rows, count, sums);
        for (int c = 0; c < 4; c++)
            for (long r = 0; r < count; r++) y[c * rows + start + r] = sums[r][c];
    }
}
#undef LANES
#undef STRIPE
#undef vec
#undef WIDTHS
#undef PARTS
#undef TARGET
#undef TALL

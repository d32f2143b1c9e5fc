/* One processor's form: TALL rows at a time, every candidate a lane of one of WIDTH vectors. */
#define vec NAME(vec)
typedef double vec __attribute__((vector_size(64), aligned(8)));

/* The products of HIGH rows, `pitch` apart, with `length` rows of lanes. */
INLINE void NAME(products)(const int HIGH, const int WIDTH, const double *restrict rows, long pitch,
                           const vec *restrict lanes, long length, vec *restrict out) {
    vec sums[TALL][WIDTHS];
    const vec zero = {0};
    UNROLL for (int r = 0; r < HIGH; r++)
        UNROLL for (int c = 0; c < WIDTH; c++) sums[r][c] = zero;
    for (long j = 0; j < length; j++)
        UNROLL for (int r = 0; r < HIGH; r++)
            UNROLL for (int c = 0; c < WIDTH; c++) sums[r][c] += rows[r * pitch + j] * lanes[j * WIDTH + c];
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

INLINE void NAME(cross_of)(const int WIDTH, long past, long layers, const long *widths, const double **old,
                           const vec **fresh, vec *out) {
    vec inputs[PANEL * WIDTHS], signals[PANEL * WIDTHS];
    for (long start = 0; start < past; start += PANEL) {
        const long count = past - start < PANEL ? past - start : PANEL;
        vec *k = out + start * WIDTH;
        for (long l = 0; l < 2 * layers; l += 2) {
            const long in = widths[l], up = widths[l + 1];
            NAME(multiply)(WIDTH, old[l] + start * in, count, in, fresh[l], in, inputs);
            NAME(multiply)(WIDTH, old[l + 1] + start * up, count, up, fresh[l + 1], up, signals);
            for (long r = 0; r < count * WIDTH; r++) k[r] = l ? k[r] + inputs[r] * signals[r] : inputs[r] * signals[r];
        }
    }
}

INLINE void NAME(solve_of)(const int WIDTH, long done, long rows, const double **left, const double **inverse, vec *y) {
    vec sums[PANEL * WIDTHS];
    for (long start = done; start < rows; start += PANEL) {
        const long panel = start / PANEL, count = rows - start < PANEL ? rows - start : PANEL;
        vec *here = y + start * WIDTH;
        NAME(multiply)(WIDTH, left[panel], count, start, y, start, sums);
        for (long r = 0; r < count * WIDTH; r++) here[r] -= sums[r];
        NAME(multiply)(WIDTH, inverse[panel], count, PANEL, here, count, sums);
        memcpy(here, sums, count * WIDTH * sizeof *sums);
    }
}

static void NAME(cross)(int width, long past, long layers, const long *widths, const double **old, const double **fresh,
                        double *out) {
    if (width == 1) NAME(cross_of)(1, past, layers, widths, old, (const vec **)fresh, (vec *)out);
    else NAME(cross_of)(2, past, layers, widths, old, (const vec **)fresh, (vec *)out);
}

static void NAME(solve)(int width, long done, long rows, const double **left, const double **inverse, double *y) {
    if (width == 1) NAME(solve_of)(1, done, rows, left, inverse, (vec *)y);
    else NAME(solve_of)(2, done, rows, left, inverse, (vec *)y);
}
#undef vec
#undef TARGET
#undef TALL

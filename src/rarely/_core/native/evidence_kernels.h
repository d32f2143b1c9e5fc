/* One form: a tile of 16 features on the right is VECTORS vectors. */
#define vec NAME(vec)
typedef double vec __attribute__((vector_size(8 * LANES / VECTORS), aligned(8)));
#define bits NAME(bits)
typedef long long bits __attribute__((vector_size(8 * LANES / VECTORS), aligned(8)));
#define WHERE(condition, yes, no) (vec)(((bits)(yes) & (condition)) | ((bits)(no) & ~(condition)))

/* Inner products of some rows with the first `lanes` of a tile, (rows, lanes); what follows in `out` is overwritten. */
static void NAME(inner)(ptrdiff_t rows, ptrdiff_t width, const double *restrict left, const vec *restrict right,
                        ptrdiff_t lanes, double *restrict out) {
    for (ptrdiff_t i = 0; i < rows; i++, left += width) {
        const vec zero = {0};
        vec sums[VECTORS];
        UNROLL for (int c = 0; c < VECTORS; c++) sums[c] = zero;
        for (ptrdiff_t j = 0; j < width; j++)
            UNROLL for (int c = 0; c < VECTORS; c++) sums[c] += left[j] * right[j * VECTORS + c];
        memcpy(out + i * lanes, sums, sizeof sums);
    }
}

/* Cosines become τ: c·κ₀ + κ₁. */
static void NAME(bent)(ptrdiff_t count, double *restrict cosines) {
    for (ptrdiff_t i = 0; i < count; i++) {
        const double c = cosines[i] > 1 ? 1 : cosines[i] < -1 ? -1 : cosines[i], size = fabs(c);
        const double z = size <= 0.5 ? c * c : (1 - size) / 2, s = size <= 0.5 ? size : sqrt(z);
        const double p = z * (1.66666666666666657415e-01 + z * (-3.25565818622400915405e-01 +
                         z * (2.01212532134862925881e-01 + z * (-4.00555345006794114027e-02 +
                         z * (7.91534994289814532176e-04 + z * 3.47933107596021167570e-05)))));
        const double q = 1 + z * (-2.40339491173441421878e+00 + z * (2.02094576023350569471e+00 +
                         z * (-6.88283971605453293030e-01 + z * 7.70381505559019352791e-02)));
        const double arc = s + s * (p / q), sharp = size <= 0.5 ? PI / 2 - arc : 2 * arc;
        const double kept = 1 - (c < 0 ? PI - sharp : sharp) / PI;
        const double covariance = c * kept + sqrt(1 - c * c) / PI;
        cosines[i] = c * kept + (covariance < 1 ? covariance : 1);
    }
}

/* τ of the directions of some rows and of a tile, into `out`; `cosines` is scratch. */
static void NAME(tangents)(ptrdiff_t rows, ptrdiff_t width, const double *left, const vec *right, ptrdiff_t lanes,
                           double *cosines, double *out) {
    const double *tile = (const double *)right;
    NAME(inner)(rows, width, left, right, lanes, cosines);
    memcpy(out, cosines, rows * lanes * sizeof *out);
    NAME(bent)(rows * lanes, out);
    for (ptrdiff_t i = 0; i < rows * lanes; i++) {
        const double c = cosines[i], *row = left + i / lanes * width;
        double gap = 0;
        if (!(fabs(c) > 1 - CLOSE)) continue;
        for (ptrdiff_t j = 0; j < width; j++) {
            const double off = row[j] - (c < 0 ? -1 : 1) * tile[j * LANES + i % lanes];
            gap += off * off;
        }
        out[i] = close_tangent(gap, c);
    }
}

/* What some rows share with a tile, added to `out`: of columns in which both have one sign the number nearer to 0. */
static void NAME(shared)(ptrdiff_t rows, ptrdiff_t width, const double *restrict left, const vec *restrict right,
                         ptrdiff_t lanes, double *restrict out) {
    const vec zero = {0};
    for (ptrdiff_t i = 0; i < rows; i++, left += width) {
        union {
            vec all[VECTORS];
            double each[LANES];
        } sums;
        UNROLL for (int c = 0; c < VECTORS; c++) sums.all[c] = zero;
        for (ptrdiff_t j = 0; j < width; j++) {
            const double number = left[j];
            const vec *tile = right + j * VECTORS, limit = zero + number;
            if (number > 0)
                UNROLL for (int c = 0; c < VECTORS; c++)
                    sums.all[c] += (vec)((bits)WHERE(tile[c] < limit, tile[c], limit) & (tile[c] > zero));
            if (number < 0)
                UNROLL for (int c = 0; c < VECTORS; c++)
                    sums.all[c] -= (vec)((bits)WHERE(tile[c] > limit, tile[c], limit) & (tile[c] < zero));
        }
        for (ptrdiff_t l = 0; l < lanes; l++) out[i * lanes + l] += sums.each[l];
    }
}

/* `width` columns of some rows as lanes. */
static void NAME(turn)(const double *rows, ptrdiff_t width, ptrdiff_t count, vec *out) {
    double *lanes = (double *)out;
    for (ptrdiff_t l = 0; l < LANES; l++)
        for (ptrdiff_t j = 0; j < width; j++)
            lanes[j * LANES + l] = l < count ? rows[l * width + j] : 0;
}

static int NAME(kernel)(const struct rarely_kernel_task *task) {
    const struct rarely_kernel_side *a = &task->left, *b = &task->right;
    const ptrdiff_t dx = task->raw, du = task->centred, dz = task->learned, ds = task->columns;
    const ptrdiff_t most = dx > du ? dx : du, others = dz > ds ? dz : ds, widest = most > others ? most : others;
    vec *tile = malloc((widest + 1) * sizeof *tile * VECTORS);
    double *buffer = malloc((2 * CHUNK + 1) * LANES * sizeof *buffer), *numbers = buffer ? buffer + (CHUNK + 1) * LANES : NULL;
    double *sums = malloc((a->count + 1) * LANES * sizeof *sums);
    const int failed = !tile || !buffer || !sums;
    for (ptrdiff_t start = 0; !failed && start < b->count; start += LANES) {
        const ptrdiff_t here = b->count - start < LANES ? b->count - start : LANES;
        const double *lengths = b->lengths + 3 * start, *clocks = b->clocks + 2 * start;
        double network[LANES] = {0}, products[LANES] = {0}, constant[LANES] = {0}, learned[LANES] = {0};
        double raws[LANES] = {0}, some[3] = {0};
        for (ptrdiff_t l = 0; l < here; l++) {
            network[l] = lengths[3 * l], products[l] = lengths[3 * l + 1], constant[l] = lengths[3 * l + 2];
            learned[l] = dz ? b->learned_lengths[start + l] : 0, raws[l] = dx ? b->raw_lengths[start + l] : 0;
            some[0] += network[l] != 0, some[1] += products[l] != 0, some[2] += learned[l] != 0;
        }
        for (int part = 0; part < 4; part++) { /* linear and constant; network and products; learned; columns */
            const ptrdiff_t widths[] = {dx, du, dz, ds}, width = widths[part];
            const double *const left[] = {a->raw, a->centred, a->learned, a->columns}, *const rows = left[part];
            const double *const right[] = {b->raw, b->centred, b->learned, b->columns};
            if (part == 1 ? !some[0] && !some[1] : part == 2 ? !some[2] : part == 3 && !ds) continue;
            NAME(turn)(right[part] + start * width, width, here, tile);
            for (ptrdiff_t first = 0; first < a->count; first += CHUNK) {
                const ptrdiff_t count = a->count - first < CHUNK ? a->count - first : CHUNK;
                const double *chunk = rows + first * width;
                double *restrict out = sums + first * here;
                if (part == 0) {
                    NAME(inner)(count, width, chunk, tile, here, out);
                    for (ptrdiff_t i = 0; i < count; i++) {
                        const double *length = a->lengths + 3 * (first + i), raw = dx ? a->raw_lengths[first + i] : 0;
                        for (ptrdiff_t l = 0; l < here; l++)
                            out[i * here + l] = raw * raws[l] * out[i * here + l] + length[2] * constant[l];
                    }
                    continue;
                }
                if (part == 3) {
                    NAME(shared)(count, width, chunk, tile, here, out);
                    continue;
                }
                if (part == 2 || some[0]) NAME(tangents)(count, width, chunk, tile, here, buffer, numbers);
                else NAME(inner)(count, width, chunk, tile, here, buffer);
                for (ptrdiff_t i = 0; i < count; i++) {
                    const double *length = a->lengths + 3 * (first + i);
                    const double once = (part == 1 ? length[0] : a->learned_lengths[first + i]) / 2, twice = length[1];
                    const double *restrict c = buffer + i * here, *restrict bent = numbers + i * here;
                    double *restrict row = out + i * here;
                    if (part == 2 || some[0])
                        for (ptrdiff_t l = 0; l < here; l++) row[l] += once * (part == 1 ? network[l] : learned[l]) * bent[l];
                    if (part == 1 && some[1])
                        for (ptrdiff_t l = 0; l < here; l++) row[l] += twice * products[l] * (c[l] * c[l]);
                }
            }
        }
        for (ptrdiff_t i = 0; i < a->count; i++) {
            const double time = a->clocks[2 * i], side = a->clocks[2 * i + 1];
            for (ptrdiff_t l = 0; l < here; l++) {
                double value = sums[i * here + l];
                if (time != clocks[2 * l]) value *= exp(-fabs(time - clocks[2 * l]));
                if (side != clocks[2 * l + 1]) value = 0;
                task->out[i * task->row_step + (start + l) * task->column_step] = value;
            }
        }
    }
    free(tile), free(buffer), free(sums);
    return failed;
}

#undef vec
#undef bits
#undef WHERE
#undef FORM
#undef VECTORS

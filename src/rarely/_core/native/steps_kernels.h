/* One form: a tile of 16 arms is VECTORS vectors; |Wx|² takes ROWS rows of W at a time. */
#define vec NAME(vec)
typedef double vec __attribute__((vector_size(8 * LANES / VECTORS), aligned(8)));

/* x becomes `count` rows of contexts, scaled, a lane each; returns whether they were finite. */
static int NAME(load)(const struct rarely_step_task *task, const double *rows, ptrdiff_t count, vec *x) {
    double *lanes = (double *)x;
    for (ptrdiff_t l = 0; l < LANES; l++)
        for (ptrdiff_t j = 0; j < task->dim; j++) lanes[j * LANES + l] = l < count ? rows[l * task->dim + j] : 0;
    for (ptrdiff_t j = 0; task->center && j < task->dim; j++)
        for (int c = 0; c < VECTORS; c++)
            x[j * VECTORS + c] = (x[j * VECTORS + c] - task->center[j]) / task->spread[j];
    if (task->parameters > task->dim)
        for (ptrdiff_t l = 0; l < LANES; l++) lanes[task->dim * LANES + l] = 1;
    return all_finite(rows, count * task->dim);
}

/* v = |Wx|² of a tile of `width` vectors. */
INLINE void NAME(tile_variances)(const int width, const double *restrict w, ptrdiff_t order, const vec *restrict x,
                                 vec *restrict v) {
    const vec zero = {0};
    UNROLL for (int c = 0; c < width; c++) v[c] = zero;
    ptrdiff_t i = 0;
    for (; i + ROWS <= order; i += ROWS) { /* above the diagonal W has zeros */
        vec sums[ROWS][VECTORS];
        UNROLL for (int r = 0; r < ROWS; r++)
            UNROLL for (int c = 0; c < width; c++) sums[r][c] = zero;
        for (ptrdiff_t j = 0; j < i + ROWS; j++)
            UNROLL for (int r = 0; r < ROWS; r++)
                UNROLL for (int c = 0; c < width; c++) sums[r][c] += w[(i + r) * order + j] * x[j * VECTORS + c];
        UNROLL for (int r = 0; r < ROWS; r++)
            UNROLL for (int c = 0; c < width; c++) v[c] += sums[r][c] * sums[r][c];
    }
    for (; i < order; i++) {
        vec sums[VECTORS];
        UNROLL for (int c = 0; c < width; c++) sums[c] = zero;
        for (ptrdiff_t j = 0; j <= i; j++)
            UNROLL for (int c = 0; c < width; c++) sums[c] += w[i * order + j] * x[j * VECTORS + c];
        UNROLL for (int c = 0; c < width; c++) v[c] += sums[c] * sums[c];
    }
}

/* Means and variances of a round's arms; what they leave unexplored is added up. */
static int NAME(assess)(struct rarely_step_task *task, const double *rows, ptrdiff_t count, double *means,
                        double *variances, struct slate *slate) {
    vec room[MOST * VECTORS], mean[VECTORS], prior[VECTORS], v[VECTORS];
    unsigned char used[MOST] = {0};
    const ptrdiff_t p = task->parameters;
    const double *w = task->scoring ? task->scoring : task->factor;
    for (ptrdiff_t start = 0; start < count; start += LANES) {
        const ptrdiff_t here = count - start < LANES ? count - start : LANES;
        const double *m = (const double *)mean, *f = (const double *)prior, *s = (const double *)v;
        vec *x = slate ? (vec *)(slate->x + start * p) : room;
        if (!NAME(load)(task, rows + start * task->dim, here, x)) return WRONG_CONTEXTS;
        const vec zero = {0};
        for (int c = 0; c < VECTORS; c++) mean[c] = prior[c] = zero;
        for (ptrdiff_t j = 0; j < p; j++)
            for (int c = 0; c < VECTORS; c++) {
                const vec number = x[j * VECTORS + c];
                mean[c] += task->theta[j] * number, prior[c] += number * number;
            }
        if (here <= LANES / 2) NAME(tile_variances)(VECTORS / 2, w, p, x, v);
        else NAME(tile_variances)(VECTORS, w, p, x, v);
        if (!all_finite(m, here) || !all_finite(f, here)) return LARGE_FEATURES;
        if (!all_finite(s, here)) return LARGE_VARIANCES;
        for (ptrdiff_t l = 0; l < here; l++) {
            const double before = f[l] / task->ridge;
            if (!isfinite(before)) return LARGE_FEATURES;
            means[start + l] = m[l], variances[start + l] = s[l];
            if (slate) slate->mean[start + l] = m[l];
            if (slate) slate->per_prior[start + l] = 1 / (before > TINY_VARIANCE ? before : TINY_VARIANCE);
            if (slate) slate->v[start + l] = slate->measured[start + l] = s[l];
            task->unexplored += s[l] / (before > TINY_VARIANCE ? before : TINY_VARIANCE);
        }
        for (ptrdiff_t l = 0; l < here && task->disjoint; l++)
            for (ptrdiff_t j = 0; j < task->dim && task->disjoint; j++)
                if (rows[(start + l) * task->dim + j] != 0) {
                    if (used[j]) task->disjoint = 0;
                    used[j] = 1;
                }
    }
    return FINE;
}

/* Z takes in x: the inverse W of its factor and the matrix itself; returns by how much log det grows. */
static double NAME(absorb)(const ptrdiff_t p, const double *x, double *restrict w, double *restrict z) {
    double a[MOST], sums[MOST] = {0}, before = 1, root = 1;
    for (ptrdiff_t i = 0; i < p; i++) {
        a[i] = 0;
        for (ptrdiff_t j = 0; j <= i; j++) a[i] += w[i * p + j] * x[j];
    }
    for (ptrdiff_t i = 0; i < p; i++) {
        double *restrict here = w + i * p, *restrict matrix = z + i * p;
        const double after = before + a[i] * a[i], next = sqrt(after);
        const double shrink = root / next, step = a[i] / (next * root), weight = a[i];
        for (ptrdiff_t j = 0; j <= i; j++) {
            const double old = here[j];
            here[j] = shrink * old - step * sums[j];
            sums[j] += weight * old;
        }
        for (ptrdiff_t j = 0; j < p; j++) matrix[j] += x[i] * x[j];
        before = after, root = next;
    }
    return log1p(before - 1);
}

/* A chosen context, scaled. */
static void NAME(scaled)(const struct rarely_step_task *task, const double *row, double *x) {
    for (ptrdiff_t j = 0; j < task->dim; j++)
        x[j] = task->center ? (row[j] - task->center[j]) / task->spread[j] : row[j];
    if (task->parameters > task->dim) x[task->dim] = 1;
}

/* An arm of a slate is taken, x of this variance: what that leaves for the next slot. */
static void NAME(take)(const struct rarely_step_task *task, struct slate *slate, ptrdiff_t count, ptrdiff_t arm,
                       const double *x, double variance) {
    const ptrdiff_t p = task->parameters;
    double w[MOST] = {0};
    slate->per_prior[slate->left[arm]] = 0;
    memmove(slate->left + arm, slate->left + arm + 1, (count - arm - 1) * sizeof *slate->left);
    if (!p || task->scoring) return;
    for (ptrdiff_t i = 0; i < p; i++) {
        double a = 0;
        for (ptrdiff_t j = 0; j <= i; j++) a += task->factor[i * p + j] * x[j];
        for (ptrdiff_t j = 0; j <= i; j++) w[j] += task->factor[i * p + j] * a;
    }
    for (ptrdiff_t start = 0; start < slate->arms; start += LANES) {
        const vec *tile = (const vec *)(slate->x + start * p), zero = {0};
        vec sums[VECTORS], *v = (vec *)(slate->v + start);
        double *left = slate->v + start, *measured = slate->measured + start;
        int lost = 0;
        for (int c = 0; c < VECTORS; c++) sums[c] = zero;
        for (ptrdiff_t j = 0; j < p; j++)
            for (int c = 0; c < VECTORS; c++) sums[c] += w[j] * tile[j * VECTORS + c];
        for (int c = 0; c < VECTORS; c++) v[c] -= (1 + variance) * sums[c] * sums[c];
        for (ptrdiff_t l = 0; l < LANES; l++) lost |= left[l] < CANCELLED * measured[l];
        if (!lost) continue;
        NAME(tile_variances)(VECTORS, task->factor, p, tile, v);
        memcpy(measured, left, LANES * sizeof *left);
    }
}

/* Rewards r of contexts, (count, dim), to which 1 is appended where p is larger, join a ridge estimate: block holds W with WᵀW = Z⁻¹, Z, m = Σ rx and θ = WᵀWm.
 * Returns whether θ is finite. */
static int NAME(regress)(const ptrdiff_t p, const ptrdiff_t dim, const ptrdiff_t count, const double *rows,
                         const double *r, double *block) {
    double *w = block, *z = w + p * p, *moment = z + p * p, *theta = moment + p, x[MOST] = {0};
    for (ptrdiff_t t = 0; t < count; t++) {
        for (ptrdiff_t j = 0; j < p; j++) x[j] = j < dim ? rows[t * dim + j] : 1;
        NAME(absorb)(p, x, w, z);
        for (ptrdiff_t j = 0; j < p; j++) moment[j] += r[t] * x[j];
    }
    for (ptrdiff_t j = 0; j < p; j++) theta[j] = 0;
    for (ptrdiff_t i = 0; i < p; i++) {
        double y = 0;
        for (ptrdiff_t j = 0; j <= i; j++) y += w[i * p + j] * moment[j];
        for (ptrdiff_t j = 0; j <= i; j++) theta[j] += w[i * p + j] * y;
    }
    return all_finite(theta, p);
}

/* One round, whose `count` arms begin at `first` of those there are, or are what a slate has left for it. */
static int NAME(play)(struct rarely_step_task *task, ptrdiff_t t, ptrdiff_t first, ptrdiff_t count,
                      struct slate *slate) {
    const ptrdiff_t arms = task->arms, dim = task->dim, all = task->rounds * arms;
    const double *rows = task->rows + first * dim, share = task->shares ? task->shares[t] : 0;
    double *means = task->scores + t * arms, *bonuses = means + all, *chances = bonuses + all, *work = task->work;
    double *values = work + count, *reaches = values + count, *sizes = reaches + count, *known = task->known + 3 * (task->row + t);
    double *chosen = task->chosen + (task->row + t) * dim, most_gain = 0, most_cost = 0;
    int trouble = FINE, finite = 1, fits = 1;
    for (ptrdiff_t k = 0; k < count && task->gains; k++) {
        const ptrdiff_t at = slate ? slate->left[k] : first + k;
        if (!isfinite(task->gains[at]) || !isfinite(task->costs[at])) return WRONG_WORTH;
        values[k] = task->costs[at];
    }
    if (task->gains && task->spends && !charge(task, count, values)) return WRONG_WORTH;
    const double least_cost = task->gains ? -highest_of(values, count, -1) : 0;
    if (slate && t && task->parameters) recall(task, slate, count, means, work);
    else if (task->dual) trouble = dual_assess(task, rows, count, means, work, sizes);
    else if (task->parameters) trouble = NAME(assess)(task, rows, count, means, work, slate);
    else if (!all_finite(rows, count * dim)) trouble = WRONG_CONTEXTS;
    if (trouble) return trouble;
    if (!task->parameters) memset(means, 0, count * sizeof *means), memset(work, 0, count * sizeof *work);
    for (ptrdiff_t k = 0; k < count; k++) {
        bonuses[k] = task->per_deviation * sqrt(work[k]);
        finite &= isfinite(means[k] + bonuses[k]) != 0;
    }
    if (!finite) return LARGE_BONUSES;
    for (ptrdiff_t k = 0; k < count && task->dual; k++) sizes[k] = task->per_deviation * sqrt(sizes[k]);
    if (!task->dual && task->gains) memcpy(sizes, bonuses, count * sizeof *sizes);
    for (ptrdiff_t k = 0; k < count && task->gains; k++) {
        const ptrdiff_t at = slate ? slate->left[k] : first + k;
        const double gain = task->gains[at], cost = values[k] - least_cost; /* what all share decides nothing */
        values[k] = gain * means[k] - cost, reaches[k] = bonuses[k] * fabs(gain);
        sizes[k] *= fabs(gain), fits &= isfinite(values[k] + reaches[k]) != 0;
        if (fabs(gain) > most_gain) most_gain = fabs(gain);
        if (cost > most_cost) most_cost = cost;
    }
    if (!fits) return LARGE_WORTH;
    const double least = highest_of(work, count, 1);
    const double spread = task->reward_spread * (task->gains ? most_gain : 1), rounded = ROUNDED * most_cost;
    const double *scored = task->gains ? values : means, *reach = task->gains ? reaches : bonuses;
    const double *size = task->gains || task->dual ? sizes : bonuses;
    trouble = chances_of(task, t, count, scored, reach, size, spread, rounded, chances, sizes + count);
    if (trouble) return trouble;
    const ptrdiff_t arm = drawn(chances, count, task->uniforms ? task->uniforms + t : NULL, share, task->held_out + t);
    double x[MOST];
    if (task->advances) {
        for (ptrdiff_t j = 0; j < dim; j++) chosen[j] = rows[(slate ? slate->left[arm] : arm) * dim + j];
        known[0] = chances[arm], known[1] = means[arm], known[2] = bonuses[arm];
        if (task->gains && task->spends) task->spent += task->spends[arm];
    }
    if (task->advances && task->parameters) {
        task->picked += log(work[arm] > TINY_VARIANCE ? work[arm] : TINY_VARIANCE);
        task->least_known += log(least > TINY_VARIANCE ? least : TINY_VARIANCE);
        task->offered += count;
        if (!task->dual) NAME(scaled)(task, chosen, x);
        if (!task->dual) task->log_det += NAME(absorb)(task->parameters, x, task->factor, task->matrix);
    }
    task->log_dets[t] = task->log_det;
    task->arm = arm;
    if (task->present) {
        unsigned char *present = task->present + t * arms;
        task->arm = -1;
        for (ptrdiff_t left = arm; left >= 0; left -= present[task->arm]) task->arm++;
        if (slate && t + 1 < task->rounds) {
            NAME(take)(task, slate, count, arm, x, work[arm]);
            memcpy(present + arms, present, arms), present[arms + task->arm] = 0;
        }
        spread_out(means, all, present, arms, count);
    }
    if (task->advances) {
        ptrdiff_t *numbers = task->numbers + 3 * (task->row + t);
        numbers[0] = task->arm, numbers[1] = task->version, numbers[2] = 0;
    }
    return FINE;
}

static int NAME(step)(struct rarely_step_task *task) {
    struct slate slate = {0};
    int trouble = FINE;
    ptrdiff_t first = 0;
    if (task->slots) open_slate(task, &slate);
    for (ptrdiff_t t = 0; t < task->rounds && !trouble; t++) {
        ptrdiff_t count = task->arms;
        if (task->present) {
            count = 0;
            for (ptrdiff_t k = 0; k < task->arms; k++) count += task->present[t * task->arms + k];
        }
        trouble = count ? NAME(play)(task, t, first, count, task->slots ? &slate : NULL) : WRONG_CONTEXTS;
        first += task->slots ? 0 : count;
    }
    return trouble;
}

#undef vec
#undef FORM
#undef VECTORS
#undef ROWS

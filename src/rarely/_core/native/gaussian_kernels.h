/* One form. `tables` holds N and n at the places 0 … LAST, then the nodes and the weights of Gauss's rule. */

/* n and N at some places, in units of STEP from −TAIL. */
INLINE void NAME(normal)(const int count, const double *restrict places, const double *restrict tables,
                         double *restrict density, double *restrict below) {
    for (int i = 0; i < count; i++) {
        const double place = places[i] < LAST ? places[i] : LAST, nearest = (place + 0x1.8p52) - 0x1.8p52;
        const int at = (int)nearest;
        const double b = (place - nearest) * STEP, z0 = nearest * STEP - TAIL, z = z0 + b, square = z * z;
        const double e = -b * (z0 + b / 2);
        const double grown = 1 + e * (1 + e / 2 * (1 + e / 3 * (1 + e / 4 * (1 + e / 5 * (1 + e / 6)))));
        const double n = tables[LAST + 1 + at] * grown;
        const double series = b * (1 + b / 2 * (z + b / 3 * (square - 1 + b / 4 * (square - 3) * z)));
        below[i] = tables[at] + n * series;
        density[i] = places[i] < LAST ? n : 0;
    }
}

/* F at t; `alive` is where the Gaussians that have not ended at t end, those of −1 count too. */
static double NAME(highest)(const runner *race, ptrdiff_t running, double t, const double *tables, double alive) {
    double out = 1, place, density, below;
    for (ptrdiff_t i = 0; i < running; i++) {
        if (race[i].end <= alive) continue;
        place = race[i].start + race[i].slope * t;
        NAME(normal)(1, &place, tables, &density, &below);
        out *= below;
    }
    return out;
}

/* Adds ∫ F σh of each Gaussian over the piece; returns 0, and adds nothing, where the sum is off by more. */
static int NAME(add)(runner *race, ptrdiff_t running, piece at, double tolerance, const double *tables, double *ratios) {
    const double *nodes = tables + 2 * (LAST + 1), *weights = nodes + NODES, half = (at.right - at.left) / 2;
    double t[NODES], product[NODES], places[NODES], below[NODES], sum = 0;
    for (int j = 0; j < NODES; j++) t[j] = at.left + half + half * nodes[j], product[j] = half * weights[j];
    for (ptrdiff_t i = 0; i < running; i++) {
        if (race[i].end <= at.left) continue;
        double *ratio = ratios + i * NODES;
        for (int j = 0; j < NODES; j++) places[j] = race[i].start + race[i].slope * t[j];
        NAME(normal)(NODES, places, tables, ratio, below);
        for (int j = 0; j < NODES; j++) ratio[j] /= below[j], product[j] *= below[j];
    }
    for (ptrdiff_t i = 0; i < running; i++) {
        if (race[i].end <= at.left) continue;
        double part = 0;
        for (int j = 0; j < NODES; j++) part += ratios[i * NODES + j] * product[j];
        ratios[i * NODES] = part;
        sum += part * race[i].slope;
    }
    if (fabs(STEP * sum - (at.after - at.before)) > tolerance) return 0;
    for (ptrdiff_t i = 0; i < running; i++)
        if (race[i].end > at.left) race[i].part += ratios[i * NODES];
    return 1;
}

static void NAME(integrate)(runner *race, ptrdiff_t running, const double *counts, double pieces, const double *tables,
                            double *ratios) {
    const double whole = ceil(pieces), tolerance = ACCURATE + ROUNDING * running;
    piece stack[HALVINGS + 2];
    double left = 0, before = NAME(highest)(race, running, 0, tables, 0);
    ptrdiff_t i = 0;
    for (double edge = 1; edge <= whole; edge++) {
        const double wanted = edge * (pieces / whole);
        while (i < running - 1 && counts[i] < wanted) i++;
        const double lower = i ? counts[i - 1] : 0, from = i ? race[i - 1].reach : 0, span = counts[i] - lower;
        const double share = span > 0 ? fmin((wanted - lower) / span, 1) : 1;
        const double right = from + share * (race[i].reach - from);
        const double after = NAME(highest)(race, running, right, tables, right);
        int depth = 0;
        if (after > NEVER) stack[depth++] = (piece){left, right, before, after, 0};
        while (depth) {
            const piece now = stack[--depth];
            const double most = now.halvings < HALVINGS ? tolerance : INFINITY;
            if (now.after <= NEVER && now.halvings == 0) continue;
            if (NAME(add)(race, running, now, most, tables, ratios)) continue;
            const double middle = (now.left + now.right) / 2;
            const double reached = NAME(highest)(race, running, middle, tables, middle);
            stack[depth++] = (piece){middle, now.right, reached, now.after, now.halvings + 1};
            stack[depth++] = (piece){now.left, middle, now.before, reached, now.halvings + 1};
        }
        left = right, before = after;
    }
}

#undef FORM

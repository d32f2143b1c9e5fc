/* One precision of one form.
 *
 *   x     contexts in strips of ROWS rows, (columns, ROWS) each, padded with rows of 0
 *   W_l   groups of LANES units, (inputs, LANES) each, padded with units of 0, which stay 0
 *   h_l   activations of a strip, (groups, ROWS, LANES); q_l, its signals, likewise
 */
#define LANES (VECTOR_BYTES / NUMBER_BYTES)
#define vec NAME(vec)
#define mask NAME(mask)
#define rows NAME(rows)
#define parameters NAME(parameters)
#define worker NAME(worker)
#define strip NAME(strip)
#define job NAME(job)

typedef REAL vec __attribute__((vector_size(VECTOR_BYTES), aligned(VECTOR_BYTES)));
typedef WHOLE mask __attribute__((vector_size(VECTOR_BYTES), aligned(VECTOR_BYTES)));
/* One number of each row of a block. It may be longer than `vec`, so what is read as either is on a cache line. */
typedef REAL rows __attribute__((vector_size(ROWS * sizeof(REAL)), aligned(ROWS * sizeof(REAL)), may_alias));

typedef struct {
    vec *hidden; /* W_1 … W_{L−1}, one after another */
    vec *output; /* v */
    REAL *skip;  /* c */
} parameters;

typedef struct worker worker;

/* ROWS samples of one group: the shared columns, then `own` more from column `start` on. All others are 0. */
typedef struct {
    REAL *x;
    ptrdiff_t start, own;
    REAL targets[ROWS];
    int rows; /* those that are no padding */
} strip;

typedef struct {
    const struct rarely_training_task *task;
    ptrdiff_t dim, layers, groups, units, strip_count; /* hidden layers; units with the padding */
    ptrdiff_t shared;                             /* columns that may be nonzero in every strip, the first ones */
    ptrdiff_t size;                               /* vectors in all hidden layers */
    REAL ridge, step, skip;
    int curved;        /* a product with the curvature: residuals are slopes along `direction` */
    REAL *contexts;
    strip *strips;
    parameters initial, direction;
    worker *workers;
    barrier step_end;
    atomic_int started; /* set once it is known how many threads there are */
    double loss;
} job;

struct worker {
    job *of;
    int index;
    parameters at;              /* where the gradient is taken: θ, or with momentum ahead of it */
    parameters previous;        /* with momentum: θ */
    vec *transposed;         /* W_2ᵀ … W_{L−1}ᵀ, the last with the gain v in it: signals go back through them */
    vec *gradient[2];        /* by the parity of the step, so that threads wait for each other only once a step */
    rows *skip_gradient[2];  /* Σ e x by the row's place in its block */
    vec *activations, *signals;
    double squares[2] __attribute__((aligned(CACHE_LINE))); /* Σ e², read by the other threads */
};

/* Where W_{l+1} begins; at `layers`, how large all of them are. */
INLINE ptrdiff_t NAME(layer_start)(const job *j, ptrdiff_t layer) {
    return layer ? j->groups * (j->dim + (layer - 1) * j->units) : 0;
}

INLINE ptrdiff_t NAME(layer_inputs)(const job *j, ptrdiff_t layer) { return layer ? j->units : j->dim; }

#include "lane_sums.h"

/* s where t > 0, else 0, lane by lane. */
INLINE vec NAME(where_positive)(vec t, vec s) {
    const vec zero = {0};
    return (vec)((mask)s & (mask)(t > zero));
}

/* Inputs of a strip come in runs: contexts in two, the shared and its own, (count, ROWS) each; activations and signals
 * in groups, (ROWS, LANES). */
#define INPUT(k, a) (packed ? in[(a) * LANES + (k)] : in[(k) * ROWS + (a)])

/* sum += W·in for `width` groups, a strip and one run; the weights of the next group are `stride` further. */
INLINE void NAME(multiply_run)(const int width, const int packed, ptrdiff_t count, ptrdiff_t stride,
                               const REAL *restrict in, const vec *restrict w, vec sum[TILE][ROWS]) {
    for (ptrdiff_t k = 0; k < count; k++)
        UNROLL for (int a = 0; a < ROWS; a++)
            UNROLL for (int c = 0; c < width; c++) sum[c][a] += INPUT(k, a) * w[c * stride + k];
}

/* sum = W·in for all runs. */
INLINE void NAME(multiply)(const int width, const int packed, ptrdiff_t count, const strip *at, ptrdiff_t stride,
                           const REAL *restrict in, const vec *restrict w, vec sum[TILE][ROWS]) {
    const vec zero = {0};
    UNROLL for (int c = 0; c < width; c++)
        UNROLL for (int a = 0; a < ROWS; a++) sum[c][a] = zero;
    if (packed) {
        for (; count > 0; count -= LANES, in += LANES * ROWS, w += LANES)
            NAME(multiply_run)(width, 1, LANES, stride, in, w, sum);
    } else {
        NAME(multiply_run)(width, 0, count, stride, in, w, sum);
        NAME(multiply_run)(width, 0, at->own, stride, in + count * ROWS, w + at->start, sum);
    }
}

/* h = relu(W·in), and in the last hidden layer u += h·v; for the curvature u += v·(T·in) 1[h > 0] + h·tv. */
INLINE void NAME(forward)(const int width, const int packed, const int top, const int curved, ptrdiff_t count,
                          const strip *at, ptrdiff_t stride, const REAL *restrict in, const vec *restrict w,
                          const vec *restrict v, const vec *restrict tw, const vec *restrict tv, vec *restrict h,
                          vec *restrict u) {
    vec sum[TILE][ROWS], along[TILE][ROWS];
    NAME(multiply)(width, packed, count, at, stride, in, w, sum);
    if (curved) NAME(multiply)(width, packed, count, at, stride, in, tw, along);
    UNROLL for (int a = 0; a < ROWS; a++)
        UNROLL for (int c = 0; c < width; c++) {
            const vec t = NAME(where_positive)(sum[c][a], sum[c][a]);
            h[c * ROWS + a] = t;
            if (curved) u[a] += NAME(where_positive)(t, along[c][a]) * v[c] + t * tv[c];
            else if (top) u[a] += t * v[c];
        }
}

/* G += q·inᵀ for `depth` inputs from number k on. Each sum has to wait for itself, so `depth` of them go together. */
INLINE void NAME(add_products)(const int width, const int packed, const int depth, ptrdiff_t stride,
                               const REAL *restrict in, const vec s[TILE][ROWS], vec *restrict g) {
    vec sum[DEPTH][TILE];
    UNROLL for (int k = 0; k < depth; k++)
        UNROLL for (int c = 0; c < width; c++) sum[k][c] = g[c * stride + k];
    UNROLL for (int a = 0; a < ROWS; a++)
        UNROLL for (int k = 0; k < depth; k++)
            UNROLL for (int c = 0; c < width; c++) sum[k][c] += INPUT(k, a) * s[c][a];
    UNROLL for (int k = 0; k < depth; k++)
        UNROLL for (int c = 0; c < width; c++) g[c * stride + k] = sum[k][c];
}

/* The same for a whole run. */
INLINE void NAME(accumulate_run)(const int width, const int packed, ptrdiff_t count, ptrdiff_t stride,
                                 const REAL *restrict in, const vec s[TILE][ROWS], vec *restrict g) {
    const ptrdiff_t next = packed ? 1 : ROWS;
    ptrdiff_t k = 0;
    for (; k + DEPTH <= count; k += DEPTH)
        NAME(add_products)(width, packed, DEPTH, stride, in + k * next, s, g + k);
    for (; k < count; k++) NAME(add_products)(width, packed, 1, stride, in + k * next, s, g + k);
}

/* G += q·inᵀ. In the last hidden layer q may be given as h, and is then e 1[h > 0]. */
INLINE void NAME(accumulate_gradient)(const int width, const int packed, const int top, ptrdiff_t count,
                                      const strip *at, ptrdiff_t stride, const REAL *restrict in,
                                      const vec *restrict q, const REAL *restrict e, vec *restrict g) {
    const vec zero = {0};
    vec s[TILE][ROWS];
    UNROLL for (int c = 0; c < width; c++)
        UNROLL for (int a = 0; a < ROWS; a++)
            s[c][a] = top ? NAME(where_positive)(q[c * ROWS + a], e[a] + zero) : q[c * ROWS + a];
    if (packed) {
        for (; count > 0; count -= LANES, in += LANES * ROWS, g += LANES)
            NAME(accumulate_run)(width, 1, LANES, stride, in, s, g);
    } else {
        NAME(accumulate_run)(width, 0, count, stride, in, s, g);
        NAME(accumulate_run)(width, 0, at->own, stride, in + count * ROWS, s, g + at->start);
    }
}

/* The signals of the layer below, q' = 1[h' > 0]·(Wᵀq). */
INLINE void NAME(backward)(const int width, ptrdiff_t count, const REAL *restrict q, const vec *restrict transposed,
                           const vec *restrict h_below, vec *restrict q_below) {
    vec sum[TILE][ROWS];
    NAME(multiply)(width, 1, count, NULL, count, q, transposed, sum);
    UNROLL for (int c = 0; c < width; c++)
        UNROLL for (int a = 0; a < ROWS; a++)
            q_below[c * ROWS + a] = NAME(where_positive)(h_below[c * ROWS + a], sum[c][a]);
}

/* `body` for every tile of groups and every strip of a span; it may use `width`, `i` (the group) and `s` (the strip). */
#define FOR_TILES(body) \
    do { \
        ptrdiff_t i = 0; \
        for (; i + TILE <= groups; i += TILE) { \
            const int width = TILE; \
            for (int s = 0; s < span; s++) body; \
        } \
        for (; i < groups; i++) { \
            const int width = 1; \
            for (int s = 0; s < span; s++) body; \
        } \
    } while (0)

/* Each kind of layer is a function of its own, so that the compiler gives it all registers. The first layer takes its
 * `count` shared inputs and each strip's own, the others all `count` units of the layer below. */
#define STRIDE(packed) ((packed) ? count : dim)
#define INPUTS(packed) ((packed) ? in + s * block * LANES : strips[s].x)
#define FORWARD(name, packed, top, curved) \
    static NOINLINE void NAME(name)(ptrdiff_t groups, int span, ptrdiff_t count, ptrdiff_t dim, const strip *strips, \
                                    const REAL *in, const vec *w, const parameters *at, const parameters *t, vec *h, \
                                    vec *u) { \
        const ptrdiff_t block = groups * ROWS, stride = STRIDE(packed); \
        FOR_TILES(NAME(forward)(width, packed, top, curved, count, strips + s, stride, INPUTS(packed), \
                                w + i * stride, at->output + i, (curved) ? t->hidden + i * stride : NULL, \
                                (curved) ? t->output + i : NULL, h + s * block + i * ROWS, u + s * ROWS)); \
        (void)t, (void)in, (void)strips, (void)dim; \
    }
FORWARD(forward_only, 0, 1, 0)   /* the one hidden layer */
FORWARD(forward_curved, 0, 1, 1) /* the same for the curvature */
FORWARD(forward_first, 0, 0, 0)  /* the first of several */
FORWARD(forward_next, 1, 0, 0)
FORWARD(forward_last, 1, 1, 0)
#undef FORWARD

#define ACCUMULATE(name, packed, top) \
    static NOINLINE void NAME(name)(ptrdiff_t groups, int span, ptrdiff_t count, ptrdiff_t dim, const strip *strips, \
                                    const REAL *in, const vec *q, const REAL *e, vec *g) { \
        const ptrdiff_t block = groups * ROWS, stride = STRIDE(packed); \
        FOR_TILES(NAME(accumulate_gradient)(width, packed, top, count, strips + s, stride, INPUTS(packed), \
                                            q + s * block + i * ROWS, (top) ? e + s * ROWS : NULL, g + i * stride)); \
        (void)e, (void)in, (void)strips, (void)dim; \
    }
ACCUMULATE(accumulate_only, 0, 1)
ACCUMULATE(accumulate_first, 0, 0)
ACCUMULATE(accumulate_next, 1, 0)
#undef ACCUMULATE
#undef STRIDE
#undef INPUTS

static NOINLINE void NAME(backward_next)(ptrdiff_t groups, int span, ptrdiff_t count, const REAL *q,
                                         const vec *transposed, const vec *h_below, vec *q_below) {
    const ptrdiff_t block = groups * ROWS;
    FOR_TILES(NAME(backward)(width, count, q + s * block * LANES, transposed + i * count,
                             h_below + s * block + i * ROWS, q_below + s * block + i * ROWS));
}

/* Activations of all layers and u, for `span` strips of contexts. */
static void NAME(forward_layers)(const job *j, const worker *me, const parameters *at, int span, const strip *x, vec *u) {
    const ptrdiff_t last = j->layers - 1, layer = SPAN * j->groups * ROWS, groups = j->groups, dim = j->dim;
    const vec *first = at->hidden;
    vec *h = me->activations;
    if (j->curved) NAME(forward_curved)(groups, span, j->shared, dim, x, NULL, first, at, &j->direction, h, u);
    else if (!last) NAME(forward_only)(groups, span, j->shared, dim, x, NULL, first, at, NULL, h, u);
    else NAME(forward_first)(groups, span, j->shared, dim, x, NULL, first, at, NULL, h, u);
    for (ptrdiff_t l = 1; l <= last; l++) {
        const vec *w = at->hidden + NAME(layer_start)(j, l);
        const REAL *in = (const REAL *)(h + (l - 1) * layer);
        if (l < last) NAME(forward_next)(groups, span, j->units, dim, x, in, w, at, NULL, h + l * layer, u);
        else NAME(forward_last)(groups, span, j->units, dim, x, in, w, at, NULL, h + l * layer, u);
    }
}

/* G of all layers += what `span` strips contribute, whose residuals are e. */
static void NAME(backward_layers)(const job *j, const worker *me, int span, const strip *x, const REAL *e, vec *g) {
    const ptrdiff_t groups = j->groups, units = j->units, last = j->layers - 1;
    const ptrdiff_t block = groups * ROWS, layer = SPAN * block;
    vec *h = me->activations, *q = me->signals;
    if (!last) {
        NAME(accumulate_only)(groups, span, j->shared, j->dim, x, NULL, h, e, g);
        return;
    }
    const vec zero = {0}, *top = h + last * layer;
    for (int s = 0; s < span; s++)
        for (ptrdiff_t i = 0; i < groups; i++)
            UNROLL for (int a = 0; a < ROWS; a++) {
                const ptrdiff_t k = s * block + i * ROWS + a;
                q[last * layer + k] = NAME(where_positive)(top[k], e[s * ROWS + a] + zero);
            }
    for (ptrdiff_t l = last; l > 0; l--) {
        const vec *below = h + (l - 1) * layer, *above = q + l * layer;
        vec *gradient = g + NAME(layer_start)(j, l);
        NAME(accumulate_next)(groups, span, units, j->dim, x, (const REAL *)below, above, NULL, gradient);
        NAME(backward_next)(groups, span, units, (const REAL *)above, me->transposed + (l - 1) * groups * units, below,
                            q + (l - 1) * layer);
    }
    NAME(accumulate_first)(groups, span, j->shared, j->dim, x, NULL, q, NULL, g);
}

/* s c·x over the columns that a strip has, row by row. */
INLINE void NAME(add_skip)(const job *j, const strip *at, const REAL *c, rows *sum) {
    const rows *x = (const rows *)at->x;
    for (ptrdiff_t i = 0; i < j->shared; i++) *sum += j->skip * c[i] * x[i];
    for (ptrdiff_t i = 0; i < at->own; i++) *sum += j->skip * c[at->start + i] * x[j->shared + i];
}

INLINE void NAME(accumulate_skip)(const job *j, const strip *at, const rows *e, rows *g) {
    const rows *x = (const rows *)at->x;
    for (ptrdiff_t i = 0; i < j->shared; i++) g[i] += *e * x[i];
    for (ptrdiff_t i = 0; i < at->own; i++) g[at->start + i] += *e * x[j->shared + i];
}

/* One pass over a worker's rows at the weights `at`: Σ e², and with `learning` G. */
static double NAME(pass)(const job *j, const worker *me, const parameters *at, int learning, int parity) {
    const ptrdiff_t threads = j->step_end.threads;
    const ptrdiff_t from = j->strip_count * me->index / threads, to = j->strip_count * (me->index + 1) / threads;
    const REAL *c = j->curved ? j->direction.skip : at->skip;
    vec *g = me->gradient[parity];
    rows *skip_gradient = me->skip_gradient[parity];
    double total = 0;
    memset(g, 0, j->size * sizeof *g);
    memset(skip_gradient, 0, j->dim * sizeof *skip_gradient);
    for (ptrdiff_t b = from; b < to; b += SPAN) {
        const int span = to - b < SPAN ? (int)(to - b) : SPAN;
        const strip *x = j->strips + b;
        vec u[SPAN * ROWS];
        REAL e[SPAN * ROWS] __attribute__((aligned(CACHE_LINE)));
        memset(u, 0, sizeof u);
        NAME(forward_layers)(j, me, at, span, x, u);
        for (int s = 0; s < span; s++) {
            rows linear = {0};
            if (j->skip >= 0) NAME(add_skip)(j, x + s, c, &linear);
            NAME(lane_sums)(ROWS, u + s * ROWS, e + s * ROWS);
            for (int a = 0; a < ROWS; a++) {
                REAL *r = e + s * ROWS + a;
                *r += linear[a];
                if (!j->curved) *r = a < x[s].rows ? *r - x[s].targets[a] : 0;
                total += (double)*r * (double)*r;
            }
            if (learning && j->skip >= 0)
                NAME(accumulate_skip)(j, x + s, (const rows *)e + s, skip_gradient);
        }
        if (learning) NAME(backward_layers)(j, me, span, x, e, g);
    }
    return total;
}

INLINE double NAME(squared_distance)(const vec *a, const vec *b, ptrdiff_t count) {
    vec s = {0};
    for (ptrdiff_t k = 0; k < count; k++) s += (a[k] - b[k]) * (a[k] - b[k]);
    return NAME(lane_sum)(s);
}

/* Σ e² of all threads. */
INLINE double NAME(total_squares)(const job *j, int parity) {
    double total = 0;
    for (int t = 0; t < j->step_end.threads; t++) total += j->workers[t].squares[parity];
    return total;
}

/* Number k of the gradient of the hidden layers, all threads' added up. */
INLINE vec NAME(total_gradient)(const job *j, int parity, ptrdiff_t k) {
    vec sum = j->workers[0].gradient[parity][k];
    for (int t = 1; t < j->step_end.threads; t++) sum += j->workers[t].gradient[parity][k];
    return sum;
}

/* Number i of the skip path's gradient, all threads' added up. */
INLINE REAL NAME(total_skip_gradient)(const job *j, int parity, ptrdiff_t i) {
    rows sum = {0};
    for (int t = 0; t < j->step_end.threads; t++) sum += j->workers[t].skip_gradient[parity][i];
    REAL total = 0;
    for (int a = 0; a < ROWS; a++) total += sum[a];
    return j->skip * total;
}

/* The transposes that signals go back through. */
static void NAME(transpose)(const job *j, worker *me) {
    const ptrdiff_t groups = j->groups, units = j->units;
    const REAL *gain = (const REAL *)me->at.output;
    for (ptrdiff_t l = 1; l < j->layers; l++) {
        const REAL *w = (const REAL *)(me->at.hidden + NAME(layer_start)(j, l));
        REAL *out = (REAL *)(me->transposed + (l - 1) * groups * units);
        for (ptrdiff_t i = 0; i < groups; i++)
            for (ptrdiff_t k = 0; k < units; k++)
                for (int a = 0; a < LANES; a++) {
                    const REAL number = w[(k / LANES * units + i * LANES + a) * LANES + k % LANES];
                    out[(i * units + k) * LANES + a] = l == j->layers - 1 ? gain[k] * number : number;
                }
    }
}

/* Nesterov's momentum: from θ on along θ − θ_previous, to where the next gradient is taken. */
#define EXTRAPOLATE(at, previous) \
    do { \
        if (extrapolating) { \
            const __typeof__(at) here = at; \
            at = here + momentum * (here - previous); \
            previous = here; \
        } \
    } while (0)

/* One step down the gradient. Returns ‖θ − θ_0‖² after it. */
static double NAME(gradient_step)(const job *j, worker *me, ptrdiff_t step, int parity) {
    const ptrdiff_t taken = j->task->taken + step + 1;
    const REAL momentum = (REAL)taken / (REAL)(taken + 3);
    const int extrapolating = j->task->previous && step + 1 < j->task->steps; /* the last step ends at θ itself */
    const parameters *initial = &j->initial, *at = &me->at, *previous = &me->previous;
    double moved = 0;
    for (ptrdiff_t i = 0; j->skip >= 0 && i < j->dim; i++) {
        const REAL pull = j->ridge * (at->skip[i] - initial->skip[i]);
        at->skip[i] -= j->step * (NAME(total_skip_gradient)(j, parity, i) + pull);
        EXTRAPOLATE(at->skip[i], previous->skip[i]);
        const REAL gap = at->skip[i] - initial->skip[i];
        moved += gap * gap;
    }
    for (ptrdiff_t l = 0; l < j->layers; l++) {
        const ptrdiff_t count = NAME(layer_inputs)(j, l), begin = NAME(layer_start)(j, l);
        const int last = l == j->layers - 1;
        for (ptrdiff_t i = 0; i < j->groups; i++) {
            const vec one = (vec){0} + 1, gain = last ? at->output[i] : one;
            vec slope = {0}, squares = {0}, gap;
            for (ptrdiff_t k = begin + i * count; k < begin + (i + 1) * count; k++) {
                const vec sum = NAME(total_gradient)(j, parity, k);
                slope += at->hidden[k] * sum;
                at->hidden[k] -= j->step * (sum * gain + j->ridge * (at->hidden[k] - initial->hidden[k]));
                EXTRAPOLATE(at->hidden[k], previous->hidden[k]);
                gap = at->hidden[k] - initial->hidden[k];
                squares += gap * gap;
            }
            if (last) {
                at->output[i] -= j->step * (slope + j->ridge * (at->output[i] - initial->output[i]));
                EXTRAPOLATE(at->output[i], previous->output[i]);
                gap = at->output[i] - initial->output[i];
                squares += gap * gap;
            }
            moved += NAME(lane_sum)(squares);
        }
    }
    NAME(transpose)(j, me);
    return moved;
}

/* From θ and the θ before it to where the first gradient is taken. */
static void NAME(resume_momentum)(const job *j, worker *me) {
    const REAL momentum = (REAL)j->task->taken / (REAL)(j->task->taken + 3);
    const int extrapolating = j->task->previous && j->task->steps > 0;
    for (ptrdiff_t k = 0; k < j->size; k++) EXTRAPOLATE(me->at.hidden[k], me->previous.hidden[k]);
    for (ptrdiff_t i = 0; i < j->groups; i++) EXTRAPOLATE(me->at.output[i], me->previous.output[i]);
    for (ptrdiff_t i = 0; j->skip >= 0 && i < j->dim; i++) EXTRAPOLATE(me->at.skip[i], me->previous.skip[i]);
}

/* Every thread steps weights of its own, all by the same sums: so no cache line is written that another thread reads
 * in its pass. */
static void NAME(descend_worker)(job *j, worker *me) {
    const ptrdiff_t steps = j->task->steps;
    NAME(resume_momentum)(j, me);
    double moved = NAME(squared_distance)(me->at.hidden, j->initial.hidden, j->size) +
                   NAME(squared_distance)(me->at.output, j->initial.output, j->groups);
    for (ptrdiff_t i = 0; j->skip >= 0 && i < j->dim; i++) {
        const REAL gap = me->at.skip[i] - j->initial.skip[i];
        moved += gap * gap;
    }
    NAME(transpose)(j, me);
    for (ptrdiff_t step = 0;; step++) {
        const int parity = step % 2;
        me->squares[parity] = NAME(pass)(j, me, &me->at, step < steps, parity);
        barrier_wait(&j->step_end);
        const double loss = (NAME(total_squares)(j, parity) + (double)j->ridge * moved) / 2;
        if (me->index == 0) j->loss = loss;
        if (step == steps || !(loss <= j->task->hopeless)) return; /* NaN ends it too */
        moved = NAME(gradient_step)(j, me, step, parity);
    }
}

THREAD_MAIN(NAME(worker_main), argument) {
    worker *me = argument;
    job *j = me->of;
    while (!atomic_load_explicit(&j->started, memory_order_acquire)) thread_yield();
    if (j->curved) me->squares[0] = NAME(pass)(j, me, &j->workers->at, 1, 0);
    else NAME(descend_worker)(j, me);
    THREAD_END;
}

/* The caller is the first worker; as many others join as there are threads to be had. */
static int NAME(run_workers)(job *j) {
    const int wanted = j->step_end.threads;
    thread *ids = malloc(wanted * sizeof *ids);
    if (!ids) return 1;
    int running = 1;
    while (running < wanted && thread_start(&ids[running], NAME(worker_main), &j->workers[running])) running++;
    j->step_end.threads = running;
    atomic_store(&j->started, 1);
    NAME(worker_main)(&j->workers[0]);
    for (int t = 1; t < running; t++) thread_join(ids[t]);
    free(ids);
    return 0;
}

/* (m, count) row by row ↔ (groups, room, LANES), room ≥ count; the columns in this order, or as they are. */
static void NAME(pack)(const REAL *from, vec *packed, ptrdiff_t m, ptrdiff_t count, ptrdiff_t groups, ptrdiff_t room,
                       const ptrdiff_t *order) {
    REAL *to = (REAL *)packed;
    memset(to, 0, groups * room * VECTOR_BYTES);
    for (ptrdiff_t i = 0; i < m; i++)
        for (ptrdiff_t k = 0; k < count; k++)
            to[(i / LANES * room + k) * LANES + i % LANES] = from[i * count + (order ? order[k] : k)];
}

static void NAME(unpack)(const vec *packed, REAL *to, ptrdiff_t m, ptrdiff_t count, ptrdiff_t room,
                         const ptrdiff_t *order) {
    const REAL *from = (const REAL *)packed;
    for (ptrdiff_t i = 0; i < m; i++)
        for (ptrdiff_t k = 0; k < count; k++)
            to[i * count + (order ? order[k] : k)] = from[(i / LANES * room + k) * LANES + i % LANES];
}

static void NAME(pack_weights)(const job *j, const void *const *from, const parameters *to) {
    const ptrdiff_t m = j->task->units, *order = j->task->column_order;
    const REAL *output = from[j->layers];
    for (ptrdiff_t l = 0; l < j->layers; l++)
        NAME(pack)(from[l], to->hidden + NAME(layer_start)(j, l), m, l ? m : j->dim, j->groups,
                   NAME(layer_inputs)(j, l), l ? NULL : order);
    NAME(pack)(output, to->output, m, 1, j->groups, 1, NULL);
    for (ptrdiff_t i = 0; j->skip >= 0 && i < j->dim; i++) to->skip[i] = output[m + (order ? order[i] : i)];
}

static void NAME(unpack_weights)(const job *j, const parameters *from, void *const *to) {
    const ptrdiff_t m = j->task->units, *order = j->task->column_order;
    REAL *output = to[j->layers];
    for (ptrdiff_t l = 0; l < j->layers; l++)
        NAME(unpack)(from->hidden + NAME(layer_start)(j, l), to[l], m, l ? m : j->dim, NAME(layer_inputs)(j, l),
                     l ? NULL : order);
    NAME(unpack)(from->output, output, m, 1, 1, NULL);
    for (ptrdiff_t i = 0; j->skip >= 0 && i < j->dim; i++) output[m + (order ? order[i] : i)] = from->skip[i];
}

static void NAME(take_weights)(const job *j, arena *memory, parameters *out) {
    out->hidden = arena_take(memory, j->size, sizeof *out->hidden);
    out->output = arena_take(memory, j->groups, sizeof *out->output);
    out->skip = arena_take(memory, j->dim, sizeof *out->skip);
}

static void NAME(lay_out)(job *j, arena *memory) {
    const int threads = j->step_end.threads;
    const ptrdiff_t room = j->layers * j->groups * ROWS * SPAN;
    j->workers = arena_take(memory, threads, sizeof *j->workers);
    j->contexts = arena_take(memory, strip_columns(j->task, ROWS) * ROWS, sizeof *j->contexts);
    j->strips = arena_take(memory, j->strip_count, sizeof *j->strips);
    NAME(take_weights)(j, memory, &j->initial);
    NAME(take_weights)(j, memory, &j->direction);
    for (int t = 0; t < threads; t++) {
        worker one = {.of = j, .index = t};
        NAME(take_weights)(j, memory, &one.at);
        NAME(take_weights)(j, memory, &one.previous);
        one.transposed = arena_take(memory, (j->layers - 1) * j->groups * j->units, sizeof *one.transposed);
        for (int parity = 0; parity < 2; parity++) {
            one.gradient[parity] = arena_take(memory, j->size, sizeof *one.gradient[parity]);
            one.skip_gradient[parity] = arena_take(memory, j->dim, sizeof *one.skip_gradient[parity]);
        }
        one.activations = arena_take(memory, room, sizeof *one.activations);
        one.signals = arena_take(memory, room, sizeof *one.signals);
        if (memory->base) j->workers[t] = one;
    }
}

/* Contexts and targets in strips, group by group. */
static void NAME(fill_strips)(job *j) {
    const struct rarely_training_task *task = j->task;
    const REAL *x = task->contexts, *y = task->targets;
    const ptrdiff_t *columns = task->column_order, *samples = task->sample_order;
    ptrdiff_t first = 0, start = j->shared;
    strip *next = j->strips;
    REAL *at = j->contexts;
    memset(at, 0, strip_columns(task, ROWS) * ROWS * sizeof *at);
    memset(next, 0, j->strip_count * sizeof *next);
    for (ptrdiff_t g = 0; g < group_count(task); g++) {
        const ptrdiff_t end = first + group_samples(task, g), own = task->groups ? task->group_columns[g] : 0;
        for (; first < end; first += next->rows, at += (j->shared + own) * ROWS, next++) {
            next->x = at, next->start = start, next->own = own;
            next->rows = end - first < ROWS ? (int)(end - first) : ROWS;
            for (int a = 0; a < next->rows; a++) {
                const ptrdiff_t sample = samples ? samples[first + a] : first + a;
                next->targets[a] = y[sample];
                for (ptrdiff_t k = 0; k < j->shared + own; k++) {
                    const ptrdiff_t column = k < j->shared ? k : start + k - j->shared;
                    at[k * ROWS + a] = x[sample * j->dim + (columns ? columns[column] : column)];
                }
            }
        }
        start += own;
    }
}

/* All memory of a job, with the contexts in strips; NULL where there is none. */
static void *NAME(allocate)(job *j, const struct rarely_training_task *task) {
    *j = (job){.task = task, .dim = task->dim, .layers = task->hidden_layers};
    j->shared = task->groups ? task->shared : task->dim;
    j->skip = (REAL)task->skip, j->ridge = (REAL)task->ridge, j->step = (REAL)task->step_size;
    j->groups = (task->units + LANES - 1) / LANES, j->units = j->groups * LANES;
    j->strip_count = strip_count(task, ROWS), j->size = NAME(layer_start)(j, j->layers);
    j->step_end.threads = useful_threads(task, strip_columns(task, ROWS) * ROWS);
    arena memory = {0};
    NAME(lay_out)(j, &memory); /* counts */
    memory = (arena){.base = aligned_alloc(CACHE_LINE, memory.used)};
    if (!memory.base) return NULL;
    NAME(lay_out)(j, &memory);
    NAME(fill_strips)(j);
    return memory.base;
}

static int NAME(descend)(struct rarely_training_task *task) {
    job j;
    void *memory = NAME(allocate)(&j, task);
    if (!memory) return 1;
    const void *const *weights_now = (const void *const *)task->weights;
    const void *const *weights_before = (const void *const *)task->previous;
    NAME(pack_weights)(&j, task->initial, &j.initial);
    for (int t = 0; t < j.step_end.threads; t++) {
        NAME(pack_weights)(&j, weights_now, &j.workers[t].at);
        if (weights_before) NAME(pack_weights)(&j, weights_before, &j.workers[t].previous);
    }
    const int failed = NAME(run_workers)(&j);
    if (!failed) {
        NAME(unpack_weights)(&j, &j.workers->at, task->weights);
        if (task->previous) NAME(unpack_weights)(&j, &j.workers->previous, task->previous);
        task->result = j.loss;
    }
    aligned_free(memory);
    return failed;
}

/* One hidden layer: `weights`, a vector, becomes ΦᵀΦ·vector, Φ the features at θ_0. */
static int NAME(curvature)(struct rarely_training_task *task) {
    job j;
    void *memory = NAME(allocate)(&j, task);
    if (!memory) return 1;
    j.curved = 1;
    const parameters *at = &j.workers->at, *out = &j.direction;
    NAME(pack_weights)(&j, task->initial, at);
    NAME(pack_weights)(&j, (const void *const *)task->weights, out);
    const int failed = NAME(run_workers)(&j);
    if (!failed) {
        for (ptrdiff_t i = 0; i < j.groups; i++) {
            out->output[i] = (vec){0};
            for (ptrdiff_t k = i * j.dim; k < (i + 1) * j.dim; k++) {
                const vec g = NAME(total_gradient)(&j, 0, k);
                out->output[i] += at->hidden[k] * g;
                out->hidden[k] = g * at->output[i];
            }
        }
        for (ptrdiff_t i = 0; j.skip >= 0 && i < j.dim; i++) out->skip[i] = NAME(total_skip_gradient)(&j, 0, i);
        task->result = NAME(total_squares)(&j, 0);
        NAME(unpack_weights)(&j, out, task->weights);
    }
    aligned_free(memory);
    return failed;
}

#undef LANES
#undef vec
#undef mask
#undef rows
#undef parameters
#undef worker
#undef strip
#undef job
#undef INPUT
#undef FOR_TILES
#undef EXTRAPOLATE

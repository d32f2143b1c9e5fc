/* One precision of one form.
 *
 *   x     contexts in blocks of ROWS rows, (dim, ROWS) each, padded with rows of 0
 *   W_l   groups of LANES units, (inputs, LANES) each, padded with units of 0, which stay 0
 *   h_l   activations of a block, (groups, ROWS, LANES); q_l, its signals, likewise
 */
#define LANES (VECTOR_BYTES / NUMBER_BYTES)
#define vec NAME(vec)
#define mask NAME(mask)
#define rows NAME(rows)
#define parameters NAME(parameters)
#define worker NAME(worker)
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

typedef struct {
    const struct rarely_training_task *task;
    ptrdiff_t dim, layers, groups, units, blocks; /* hidden layers; units with the padding */
    ptrdiff_t size;                               /* vectors in all hidden layers */
    REAL ridge, step, skip;
    int curved;        /* a product with the curvature: residuals are slopes along `direction` */
    REAL *contexts;
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

/* Inputs of a block come in runs: contexts in one, (count, ROWS); activations and signals in groups, (ROWS, LANES). */
#define RUN (packed ? LANES : count)
#define INPUT(k, a) (packed ? in[(a) * LANES + (k)] : in[(k) * ROWS + (a)])

/* sum = W·in for `width` groups and a block of rows. */
INLINE void NAME(multiply)(const int width, const int packed, ptrdiff_t count, const REAL *restrict in,
                           const vec *restrict w, vec sum[TILE][ROWS]) {
    const vec zero = {0};
    UNROLL for (int c = 0; c < width; c++)
        UNROLL for (int a = 0; a < ROWS; a++) sum[c][a] = zero;
    for (ptrdiff_t start = 0; start < count; start += RUN, in += RUN * ROWS, w += RUN)
        for (ptrdiff_t k = 0; k < RUN; k++)
            UNROLL for (int a = 0; a < ROWS; a++)
                UNROLL for (int c = 0; c < width; c++) sum[c][a] += INPUT(k, a) * w[c * count + k];
}

/* h = relu(W·in), and in the last hidden layer u += h·v; for the curvature u += v·(T·in) 1[h > 0] + h·tv. */
INLINE void NAME(forward)(const int width, const int packed, const int top, const int curved, ptrdiff_t count,
                          const REAL *restrict in, const vec *restrict w, const vec *restrict v,
                          const vec *restrict tw, const vec *restrict tv, vec *restrict h, vec *restrict u) {
    vec sum[TILE][ROWS], along[TILE][ROWS];
    NAME(multiply)(width, packed, count, in, w, sum);
    if (curved) NAME(multiply)(width, packed, count, in, tw, along);
    UNROLL for (int a = 0; a < ROWS; a++)
        UNROLL for (int c = 0; c < width; c++) {
            const vec t = NAME(where_positive)(sum[c][a], sum[c][a]);
            h[c * ROWS + a] = t;
            if (curved) u[a] += NAME(where_positive)(t, along[c][a]) * v[c] + t * tv[c];
            else if (top) u[a] += t * v[c];
        }
}

/* G += q·inᵀ for `depth` inputs from number k on. Each sum has to wait for itself, so `depth` of them go together. */
INLINE void NAME(add_products)(const int width, const int packed, const int depth, ptrdiff_t count,
                               const REAL *restrict in, const vec s[TILE][ROWS], vec *restrict g) {
    vec sum[DEPTH][TILE];
    UNROLL for (int k = 0; k < depth; k++)
        UNROLL for (int c = 0; c < width; c++) sum[k][c] = g[c * count + k];
    UNROLL for (int a = 0; a < ROWS; a++)
        UNROLL for (int k = 0; k < depth; k++)
            UNROLL for (int c = 0; c < width; c++) sum[k][c] += INPUT(k, a) * s[c][a];
    UNROLL for (int k = 0; k < depth; k++)
        UNROLL for (int c = 0; c < width; c++) g[c * count + k] = sum[k][c];
}

/* G += q·inᵀ. In the last hidden layer q may be given as h, and is then e 1[h > 0]. */
INLINE void NAME(accumulate_gradient)(const int width, const int packed, const int top, ptrdiff_t count,
                                      const REAL *restrict in, const vec *restrict q, const REAL *restrict e,
                                      vec *restrict g) {
    const vec zero = {0};
    vec s[TILE][ROWS];
    UNROLL for (int c = 0; c < width; c++)
        UNROLL for (int a = 0; a < ROWS; a++)
            s[c][a] = top ? NAME(where_positive)(q[c * ROWS + a], e[a] + zero) : q[c * ROWS + a];
    for (ptrdiff_t start = 0; start < count; start += RUN, in += RUN * ROWS, g += RUN) {
        const ptrdiff_t next = packed ? 1 : ROWS;
        ptrdiff_t k = 0;
        for (; k + DEPTH <= RUN; k += DEPTH)
            NAME(add_products)(width, packed, DEPTH, count, in + k * next, s, g + k);
        for (; k < RUN; k++) NAME(add_products)(width, packed, 1, count, in + k * next, s, g + k);
    }
}

/* The signals of the layer below, q' = 1[h' > 0]·(Wᵀq). */
INLINE void NAME(backward)(const int width, ptrdiff_t count, const REAL *restrict q, const vec *restrict transposed,
                           const vec *restrict h_below, vec *restrict q_below) {
    vec sum[TILE][ROWS];
    NAME(multiply)(width, 1, count, q, transposed, sum);
    UNROLL for (int c = 0; c < width; c++)
        UNROLL for (int a = 0; a < ROWS; a++)
            q_below[c * ROWS + a] = NAME(where_positive)(h_below[c * ROWS + a], sum[c][a]);
}

/* `body` for every tile of groups and every block of a span; it may use `width`, `i` (the group) and `s` (the block). */
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

/* Each kind of layer is a function of its own, so that the compiler gives it all registers. */
#define FORWARD(name, packed, top, curved) \
    static NOINLINE void NAME(name)(ptrdiff_t groups, int span, ptrdiff_t count, const REAL *in, const vec *w, \
                                    const parameters *at, const parameters *t, vec *h, vec *u) { \
        const ptrdiff_t block = groups * ROWS, next = (packed) ? block * LANES : count * ROWS; \
        FOR_TILES(NAME(forward)(width, packed, top, curved, count, in + s * next, w + i * count, at->output + i, \
                                (curved) ? t->hidden + i * count : NULL, (curved) ? t->output + i : NULL, \
                                h + s * block + i * ROWS, u + s * ROWS)); \
        (void)t; \
    }
FORWARD(forward_only, 0, 1, 0)   /* the one hidden layer */
FORWARD(forward_curved, 0, 1, 1) /* the same for the curvature */
FORWARD(forward_first, 0, 0, 0)  /* the first of several */
FORWARD(forward_next, 1, 0, 0)
FORWARD(forward_last, 1, 1, 0)
#undef FORWARD

#define ACCUMULATE(name, packed, top) \
    static NOINLINE void NAME(name)(ptrdiff_t groups, int span, ptrdiff_t count, const REAL *in, const vec *q, \
                                    const REAL *e, vec *g) { \
        const ptrdiff_t block = groups * ROWS, next = (packed) ? block * LANES : count * ROWS; \
        FOR_TILES(NAME(accumulate_gradient)(width, packed, top, count, in + s * next, q + s * block + i * ROWS, \
                                            (top) ? e + s * ROWS : NULL, g + i * count)); \
        (void)e; \
    }
ACCUMULATE(accumulate_only, 0, 1)
ACCUMULATE(accumulate_first, 0, 0)
ACCUMULATE(accumulate_next, 1, 0)
#undef ACCUMULATE

static NOINLINE void NAME(backward_next)(ptrdiff_t groups, int span, ptrdiff_t count, const REAL *q,
                                         const vec *transposed, const vec *h_below, vec *q_below) {
    const ptrdiff_t block = groups * ROWS;
    FOR_TILES(NAME(backward)(width, count, q + s * block * LANES, transposed + i * count,
                             h_below + s * block + i * ROWS, q_below + s * block + i * ROWS));
}

/* Activations of all layers and u, for `span` blocks of contexts. */
static void NAME(forward_layers)(const job *j, const worker *me, const parameters *at, int span, const REAL *x, vec *u) {
    const ptrdiff_t last = j->layers - 1, layer = SPAN * j->groups * ROWS;
    vec *h = me->activations;
    if (j->curved) NAME(forward_curved)(j->groups, span, j->dim, x, at->hidden, at, &j->direction, h, u);
    else if (!last) NAME(forward_only)(j->groups, span, j->dim, x, at->hidden, at, NULL, h, u);
    else NAME(forward_first)(j->groups, span, j->dim, x, at->hidden, at, NULL, h, u);
    for (ptrdiff_t l = 1; l <= last; l++) {
        const vec *w = at->hidden + NAME(layer_start)(j, l);
        const REAL *in = (const REAL *)(h + (l - 1) * layer);
        if (l < last) NAME(forward_next)(j->groups, span, j->units, in, w, at, NULL, h + l * layer, u);
        else NAME(forward_last)(j->groups, span, j->units, in, w, at, NULL, h + l * layer, u);
    }
}

/* G of all layers += what `span` blocks contribute, whose residuals are e. */
static void NAME(backward_layers)(const job *j, const worker *me, int span, const REAL *x, const REAL *e, vec *g) {
    const ptrdiff_t groups = j->groups, units = j->units, last = j->layers - 1;
    const ptrdiff_t block = groups * ROWS, layer = SPAN * block;
    vec *h = me->activations, *q = me->signals;
    if (!last) {
        NAME(accumulate_only)(groups, span, j->dim, x, h, e, g);
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
        NAME(accumulate_next)(groups, span, units, (const REAL *)below, above, NULL, g + NAME(layer_start)(j, l));
        NAME(backward_next)(groups, span, units, (const REAL *)above, me->transposed + (l - 1) * groups * units, below,
                            q + (l - 1) * layer);
    }
    NAME(accumulate_first)(groups, span, j->dim, x, q, NULL, g);
}

/* One pass over a worker's rows at the weights `at`: Σ e², and with `learning` G. */
static double NAME(pass)(const job *j, const worker *me, const parameters *at, int learning, int parity) {
    const ptrdiff_t dim = j->dim, threads = j->step_end.threads, samples = j->task->samples;
    const ptrdiff_t from = j->blocks * me->index / threads, to = j->blocks * (me->index + 1) / threads;
    const REAL *c = j->curved ? j->direction.skip : at->skip, *y = j->task->targets;
    vec *g = me->gradient[parity];
    rows *skip_gradient = me->skip_gradient[parity];
    double total = 0;
    memset(g, 0, j->size * sizeof *g);
    memset(skip_gradient, 0, dim * sizeof *skip_gradient);
    for (ptrdiff_t b = from; b < to; b += SPAN) {
        const int span = to - b < SPAN ? (int)(to - b) : SPAN;
        const REAL *x = j->contexts + b * dim * ROWS;
        vec u[SPAN * ROWS];
        rows linear[SPAN]; /* s c·x */
        REAL e[SPAN * ROWS] __attribute__((aligned(CACHE_LINE)));
        memset(u, 0, sizeof u);
        memset(linear, 0, sizeof linear);
        NAME(forward_layers)(j, me, at, span, x, u);
        if (j->skip >= 0)
            for (int s = 0; s < span; s++)
                for (ptrdiff_t i = 0; i < dim; i++) linear[s] += j->skip * c[i] * ((const rows *)x)[s * dim + i];
        for (int s = 0; s < span; s++) NAME(lane_sums)(ROWS, u + s * ROWS, e + s * ROWS);
        for (int a = 0; a < span * ROWS; a++) {
            const ptrdiff_t row = b * ROWS + a;
            e[a] += ((const REAL *)linear)[a];
            if (!j->curved) e[a] = row < samples ? e[a] - y[row] : 0;
            total += (double)e[a] * (double)e[a];
        }
        if (!learning) continue;
        if (j->skip >= 0)
            for (int s = 0; s < span; s++)
                for (ptrdiff_t i = 0; i < dim; i++)
                    skip_gradient[i] += ((const rows *)e)[s] * ((const rows *)x)[s * dim + i];
        NAME(backward_layers)(j, me, span, x, e, g);
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

/* (m, count) row by row ↔ (groups, room, LANES), room ≥ count. */
static void NAME(pack)(const REAL *from, vec *packed, ptrdiff_t m, ptrdiff_t count, ptrdiff_t groups, ptrdiff_t room) {
    REAL *to = (REAL *)packed;
    memset(to, 0, groups * room * VECTOR_BYTES);
    for (ptrdiff_t i = 0; i < m; i++)
        for (ptrdiff_t k = 0; k < count; k++) to[(i / LANES * room + k) * LANES + i % LANES] = from[i * count + k];
}

static void NAME(unpack)(const vec *packed, REAL *to, ptrdiff_t m, ptrdiff_t count, ptrdiff_t room) {
    const REAL *from = (const REAL *)packed;
    for (ptrdiff_t i = 0; i < m; i++)
        for (ptrdiff_t k = 0; k < count; k++) to[i * count + k] = from[(i / LANES * room + k) * LANES + i % LANES];
}

static void NAME(pack_weights)(const job *j, const void *const *from, const parameters *to) {
    const ptrdiff_t m = j->task->units;
    const REAL *output = from[j->layers];
    for (ptrdiff_t l = 0; l < j->layers; l++)
        NAME(pack)(from[l], to->hidden + NAME(layer_start)(j, l), m, l ? m : j->dim, j->groups,
                   NAME(layer_inputs)(j, l));
    NAME(pack)(output, to->output, m, 1, j->groups, 1);
    if (j->skip >= 0) memcpy(to->skip, output + m, j->dim * sizeof *to->skip);
}

static void NAME(unpack_weights)(const job *j, const parameters *from, void *const *to) {
    const ptrdiff_t m = j->task->units;
    REAL *output = to[j->layers];
    for (ptrdiff_t l = 0; l < j->layers; l++)
        NAME(unpack)(from->hidden + NAME(layer_start)(j, l), to[l], m, l ? m : j->dim, NAME(layer_inputs)(j, l));
    NAME(unpack)(from->output, output, m, 1, 1);
    if (j->skip >= 0) memcpy(output + m, from->skip, j->dim * sizeof *output);
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
    j->contexts = arena_take(memory, j->blocks * j->dim * ROWS, sizeof *j->contexts);
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

/* All memory of a job, with the contexts in blocks; NULL where there is none. */
static void *NAME(allocate)(job *j, const struct rarely_training_task *task) {
    *j = (job){.task = task, .dim = task->dim, .layers = task->hidden_layers};
    j->skip = (REAL)task->skip, j->ridge = (REAL)task->ridge, j->step = (REAL)task->step_size;
    j->groups = (task->units + LANES - 1) / LANES, j->units = j->groups * LANES;
    j->blocks = (task->samples + ROWS - 1) / ROWS, j->size = NAME(layer_start)(j, j->layers);
    j->step_end.threads = useful_threads(task);
    arena memory = {0};
    NAME(lay_out)(j, &memory); /* counts */
    memory = (arena){.base = aligned_alloc(CACHE_LINE, memory.used)};
    if (!memory.base) return NULL;
    NAME(lay_out)(j, &memory);
    const REAL *x = task->contexts;
    memset(j->contexts, 0, j->blocks * j->dim * ROWS * sizeof *j->contexts);
    for (ptrdiff_t i = 0; i < task->samples; i++)
        for (ptrdiff_t k = 0; k < j->dim; k++)
            j->contexts[(i / ROWS * j->dim + k) * ROWS + i % ROWS] = x[i * j->dim + k];
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
#undef job
#undef RUN
#undef INPUT
#undef FOR_TILES
#undef EXTRAPOLATE

/* One precision, one processor's form.
 *
 *   x    blocks of ROWS rows, d×ROWS each, padded with rows of 0
 *   W_l  groups of LANES units, (numbers in)×LANES each, padded with units of 0, which stay 0
 *   h_l  activations of a block, groups×ROWS vectors; q_l, its signals, likewise
 */
#define LANES (BYTES / (int)sizeof(REAL))
#define vec NAME(vec)
#define bits NAME(bits)
#define job NAME(job)
#define weights NAME(weights)
#define rows NAME(rows)

typedef REAL vec __attribute__((vector_size(BYTES), aligned(BYTES)));
typedef WHOLE bits __attribute__((vector_size(BYTES), aligned(BYTES)));
typedef REAL rows __attribute__((vector_size(ROWS * sizeof(REAL)), aligned(ROWS * sizeof(REAL)), may_alias));

typedef struct {
    vec *w, *v; /* W_1 … W_{L−1} one after another; W_L */
    vec *t;     /* the transposes of W_2 … W_{L−1}, the last one's with the gain W_L in it: signals go back by them */
    REAL *c;    /* the skip path's part of W_L */
    vec *ow, *ov; /* with momentum: θ one step ago, while w, v and c are where the gradient is taken */
    REAL *oc;
} weights;

typedef struct {
    long n, hidden, groups, units, d, blocks, steps; /* hidden layers; groups of a layer, and units with the padding */
    REAL *x;
    const REAL *y;          /* NULL: the curvature, whose residuals are slopes along (tw, tv) */
    weights *own;           /* for each thread */
    vec *w0, *v0;
    REAL *c0;
    vec *tw, *tv;           /* the direction of the curvature */
    REAL *tc;
    REAL ridge, step, skip; /* the strength of the skip path, below 0 where there is none */
    vec *g, *h, *q;         /* for each thread: 2×(all of W), hidden×SPAN×groups×ROWS twice */
    rows *k;                /* for each thread: 2×d, Σ e x of the skip path, by the row's place in its block */
    double *sums;           /* for each thread, a cache line: Σe² by parity */
    double hopeless, loss;
    long taken;             /* steps taken before these, or −1 without momentum */
    gate meeting;
    atomic_int begun;       /* once it is known how many threads there are */
} job;

/* Where W_l begins, the first being 0; at `hidden`, how large all of them are. */
INLINE long NAME(start)(const job *j, long layer) {
    return layer ? j->groups * (j->d + (layer - 1) * j->units) : 0;
}

INLINE long NAME(numbers_in)(const job *j, long layer) { return layer ? j->units : j->d; }

/* 1[t > 0]·s, lane by lane. */
INLINE vec NAME(where)(vec t, vec s) {
    const vec zero = {0};
    return (vec)((bits)s & (bits)(t > zero));
}

INLINE REAL NAME(lane_sum)(vec u) {
    REAL s[LANES] __attribute__((aligned(BYTES)));
    *(vec *)s = u;
    for (int width = LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++) s[l] += s[l + width];
    return s[0];
}

/* Number k of a block's row `a`, in x or, with `deep`, in activations or signals. */
#define INPUT(k, a) (deep ? in[((k) / LANES * ROWS + (a)) * LANES + (k) % LANES] : in[(k) * ROWS + (a)])

/* sum = W·in of WIDTH groups and a block of rows. */
INLINE void NAME(multiply)(const int WIDTH, const int deep, long count, const REAL *restrict in, const vec *restrict w,
                           vec sum[WIDE][ROWS]) {
    const vec zero = {0};
    UNROLL for (int c = 0; c < WIDTH; c++)
        UNROLL for (int a = 0; a < ROWS; a++) sum[c][a] = zero;
    for (long k = 0; k < count; k++)
        UNROLL for (int a = 0; a < ROWS; a++)
            UNROLL for (int c = 0; c < WIDTH; c++) sum[c][a] += INPUT(k, a) * w[c * count + k];
}

/* h = relu(W·in), and in the last hidden layer u += h·v; for the curvature u += v·(T·in) 1[h > 0] + h·tv. */
INLINE void NAME(ahead)(const int WIDTH, const int deep, const int top, const int curved, long count,
                        const REAL *restrict in, const vec *restrict w, const vec *restrict v, const vec *restrict tw,
                        const vec *restrict tv, vec *restrict h, vec *restrict u) {
    const vec zero = {0};
    vec sum[WIDE][ROWS], along[WIDE][ROWS];
    NAME(multiply)(WIDTH, deep, count, in, w, sum);
    if (curved) NAME(multiply)(WIDTH, deep, count, in, tw, along);
    UNROLL for (int c = 0; c < WIDTH; c++)
        UNROLL for (int a = 0; a < ROWS; a++) {
            bits on = (bits)(sum[c][a] > zero);
            vec t = (vec)((bits)sum[c][a] & on);
            h[c * ROWS + a] = t;
            if (curved) u[a] += (vec)((bits)along[c][a] & on) * v[c] + t * tv[c];
            else if (top) u[a] += t * v[c];
        }
}

/* G += q·inᵀ; in a last hidden layer q may be h, and is then e 1[h > 0]. */
INLINE void NAME(back)(const int WIDTH, const int deep, const int top, long count, const REAL *restrict in,
                       const vec *restrict q, const REAL *restrict e, vec *restrict g) {
    const vec zero = {0};
    vec s[WIDE][ROWS];
    UNROLL for (int c = 0; c < WIDTH; c++)
        UNROLL for (int a = 0; a < ROWS; a++)
            s[c][a] = top ? NAME(where)(q[c * ROWS + a], e[a] + zero) : q[c * ROWS + a];
    for (long k = 0; k < count; k++) {
        vec sum[WIDE];
        UNROLL for (int c = 0; c < WIDTH; c++) sum[c] = g[c * count + k];
        UNROLL for (int a = 0; a < ROWS; a++)
            UNROLL for (int c = 0; c < WIDTH; c++) sum[c] += INPUT(k, a) * s[c][a];
        UNROLL for (int c = 0; c < WIDTH; c++) g[c * count + k] = sum[c];
    }
}

/* The signals of the layer below, q' = 1[h' > 0]·(Wᵀq). */
INLINE void NAME(down)(const int WIDTH, long count, const REAL *restrict q, const vec *restrict t,
                       const vec *restrict below, vec *restrict out) {
    vec sum[WIDE][ROWS];
    NAME(multiply)(WIDTH, 1, count, q, t, sum);
    UNROLL for (int c = 0; c < WIDTH; c++)
        UNROLL for (int a = 0; a < ROWS; a++) out[c * ROWS + a] = NAME(where)(below[c * ROWS + a], sum[c][a]);
}

/* For every group and block of a span, as many groups at a time as stay in registers: `body` has WIDTH, i and s. */
#define GROUPS(body) \
    do { \
        long i = 0; \
        for (; i + WIDE <= groups; i += WIDE) { const int WIDTH = WIDE; for (int s = 0; s < span; s++) body; } \
        for (; i < groups; i++) { const int WIDTH = 1; for (int s = 0; s < span; s++) body; } \
    } while (0)

/* One pass over the blocks [from, to): Σe², and with `learning` G.
 *
 * SPAN blocks go together: the weights and G of a group are then read from the nearest cache, and the sums over
 * units that all of `back` waits for come less often. */
INLINE double NAME(sweep)(const job *j, const weights *at, const int curved, int learning, long from, long to,
                          vec *restrict g, rows *restrict along_x, vec *h, vec *q) {
    const REAL *c = curved ? j->tc : at->c;
    const long d = j->d, groups = j->groups, units = j->units, last = j->hidden - 1;
    const long block = groups * ROWS, layer = SPAN * block;
    double total = 0;
    for (long b = from; b < to; b += SPAN) {
        const int span = to - b < SPAN ? (int)(to - b) : SPAN;
        const REAL *x = j->x + b * d * ROWS;
        vec u[SPAN * ROWS];
        memset(u, 0, sizeof u);
#define FIRST(top) \
    GROUPS(NAME(ahead)(WIDTH, 0, top, curved, d, x + s * d * ROWS, at->w + i * d, at->v + i, j->tw + i * d, j->tv + i, \
                       h + s * block + i * ROWS, u + s * ROWS))
#define NEXT(top) \
    GROUPS(NAME(ahead)(WIDTH, 1, top, 0, units, (const REAL *)(in + s * block), w + i * units, at->v + i, NULL, NULL, \
                       in + layer + s * block + i * ROWS, u + s * ROWS))
        if (last) FIRST(0);
        else FIRST(1);
        for (long l = 1; l <= last; l++) {
            const vec *w = at->w + NAME(start)(j, l);
            vec *in = h + (l - 1) * layer;
            if (l < last) NEXT(0);
            else NEXT(1);
        }
#undef FIRST
#undef NEXT
        REAL e[SPAN * ROWS] __attribute__((aligned(BYTES)));
        rows straight[SPAN];
        memset(straight, 0, sizeof straight);
        if (j->skip >= 0)
            for (int s = 0; s < span; s++)
                for (long i = 0; i < d; i++) straight[s] += j->skip * c[i] * ((const rows *)x)[s * d + i];
        for (int a = 0; a < span * ROWS; a++) {
            const long row = b * ROWS + a;
            e[a] = NAME(lane_sum)(u[a]) + ((const REAL *)straight)[a];
            if (!curved) e[a] = row < j->n ? e[a] - j->y[row] : 0;
            total += (double)e[a] * (double)e[a];
        }
        if (!learning) continue;
        if (j->skip >= 0)
            for (int s = 0; s < span; s++)
                for (long i = 0; i < d; i++) along_x[i] += ((const rows *)e)[s] * ((const rows *)x)[s * d + i];
        if (!last) {
            GROUPS(NAME(back)(WIDTH, 0, 1, d, x + s * d * ROWS, h + s * block + i * ROWS, e + s * ROWS, g + i * d));
            continue;
        }
        const vec zero = {0}, *top = h + last * layer;
        vec *signals = q + last * layer;
        for (int s = 0; s < span; s++)
            for (long i = 0; i < groups; i++)
                UNROLL for (int a = 0; a < ROWS; a++) {
                    const long k = s * block + i * ROWS + a;
                    signals[k] = NAME(where)(top[k], e[s * ROWS + a] + zero);
                }
        for (long l = last; l > 0; l--) {
            const vec *in = h + (l - 1) * layer, *t = at->t + (l - 1) * groups * units;
            vec *gl = g + NAME(start)(j, l), *from_above = q + l * layer, *below = q + (l - 1) * layer;
            GROUPS(NAME(back)(WIDTH, 1, 0, units, (const REAL *)(in + s * block), from_above + s * block + i * ROWS, NULL,
                              gl + i * units));
            GROUPS(NAME(down)(WIDTH, units, (const REAL *)(from_above + s * block), t + i * units,
                              in + s * block + i * ROWS, below + s * block + i * ROWS));
        }
        GROUPS(NAME(back)(WIDTH, 0, 0, d, x + s * d * ROWS, q + s * block + i * ROWS, NULL, g + i * d));
    }
    return total;
}

INLINE double NAME(squares)(const vec *a, const vec *b, long count) {
    vec s = {0};
    for (long k = 0; k < count; k++) s += (a[k] - b[k]) * (a[k] - b[k]);
    return NAME(lane_sum)(s);
}

INLINE double NAME(added)(const job *j, long parity) {
    double total = 0;
    for (int t = 0; t < j->meeting.of; t++) total += j->sums[8 * t + parity];
    return total;
}

/* The transposes that signals go back by. */
static void NAME(transpose)(const job *j, weights *at) {
    const long groups = j->groups, units = j->units;
    for (long l = 1; l < j->hidden; l++) {
        const REAL *w = (const REAL *)(at->w + NAME(start)(j, l)), *gain = (const REAL *)at->v;
        REAL *t = (REAL *)(at->t + (l - 1) * groups * units);
        for (long i = 0; i < groups; i++)
            for (long k = 0; k < units; k++)
                for (int a = 0; a < LANES; a++) {
                    REAL number = w[(k / LANES * units + i * LANES + a) * LANES + k % LANES];
                    t[(i * units + k) * LANES + a] = l == j->hidden - 1 ? gain[k] * number : number;
                }
    }
}

/* Number i of the skip path's gradient, every thread's added up. */
INLINE REAL NAME(skip_slope)(const job *j, long i, long parity) {
    rows sum = {0};
    for (int t = 0; t < j->meeting.of; t++) sum += j->k[(2 * t + parity) * j->d + i];
    REAL total = 0;
    for (int a = 0; a < ROWS; a++) total += sum[a];
    return j->skip * total;
}

/* Nesterov's momentum: from θ, which lies `now`, on along θ − `ago`. */
#define ONWARD(now, ago) \
    do { \
        if (j->taken >= 0 && s + 1 < j->steps) { \
            const __typeof__(now) here = now; \
            now = here + onward * (here - ago), ago = here; \
        } \
    } while (0)

/* Step s down the gradient, which is every thread's G added up; returns ‖θ − θ_0‖² after it. */
static double NAME(step_down)(const job *j, weights *at, const vec *g, long apart, long s) {
    double moved = 0;
    const REAL onward = (REAL)(j->taken + s + 1) / (REAL)(j->taken + s + 4);
    for (long i = 0; j->skip >= 0 && i < j->d; i++) {
        at->c[i] -= j->step * (NAME(skip_slope)(j, i, s % 2) + j->ridge * (at->c[i] - j->c0[i]));
        ONWARD(at->c[i], at->oc[i]);
        moved += (at->c[i] - j->c0[i]) * (at->c[i] - j->c0[i]);
    }
    for (long l = 0; l < j->hidden; l++) {
        const long count = NAME(numbers_in)(j, l), begin = NAME(start)(j, l);
        const int last = l == j->hidden - 1;
        for (long i = 0; i < j->groups; i++) {
            const vec one = (vec){0} + 1, gain = last ? at->v[i] : one;
            vec slope = {0}, squares = {0}, gap;
            for (long k = begin + i * count; k < begin + (i + 1) * count; k++) {
                vec sum = g[k];
                for (int t = 1; t < j->meeting.of; t++) sum += g[t * apart + k];
                slope += at->w[k] * sum;
                at->w[k] -= j->step * (sum * gain + j->ridge * (at->w[k] - j->w0[k]));
                ONWARD(at->w[k], at->ow[k]);
                gap = at->w[k] - j->w0[k];
                squares += gap * gap;
            }
            if (last) {
                at->v[i] -= j->step * (slope + j->ridge * (at->v[i] - j->v0[i]));
                ONWARD(at->v[i], at->ov[i]);
                gap = at->v[i] - j->v0[i];
                squares += gap * gap;
            }
            moved += NAME(lane_sum)(squares);
        }
    }
    NAME(transpose)(j, at);
    return moved;
}

/* Momentum goes on from θ and the θ before it to where the next gradient is taken. */
static void NAME(extrapolate)(const job *j, weights *at, long size) {
    const REAL onward = (REAL)j->taken / (REAL)(j->taken + 3);
    const long s = -1; /* before the first step */
    for (long k = 0; k < size; k++) ONWARD(at->w[k], at->ow[k]);
    for (long i = 0; i < j->groups; i++) ONWARD(at->v[i], at->ov[i]);
    for (long i = 0; j->skip >= 0 && i < j->d; i++) ONWARD(at->c[i], at->oc[i]);
}

/* Every thread steps weights of its own, all by the same sums: so they meet once a step, and no line of the cache
 * is written that another thread reads in its sweep. G has two places for each thread, by the parity of the step. */
static void NAME(descent)(job *j, int me) {
    const int of = j->meeting.of;
    const long size = NAME(start)(j, j->hidden), from = j->blocks * me / of, to = j->blocks * (me + 1) / of;
    const long room = j->hidden * j->groups * ROWS * SPAN;
    weights *at = j->own + me;
    if (j->taken >= 0 && j->steps) NAME(extrapolate)(j, at, size);
    double moved = NAME(squares)(at->w, j->w0, size) + NAME(squares)(at->v, j->v0, j->groups);
    for (long i = 0; j->skip >= 0 && i < j->d; i++) moved += (at->c[i] - j->c0[i]) * (at->c[i] - j->c0[i]);
    NAME(transpose)(j, at);
    for (long s = 0;; s++) {
        const long parity = s % 2;
        vec *g = j->g + (2 * me + parity) * size;
        rows *along_x = j->k + (2 * me + parity) * j->d;
        memset(g, 0, size * sizeof *g);
        memset(along_x, 0, j->d * sizeof *along_x);
        j->sums[8 * me + parity] =
            NAME(sweep)(j, at, 0, s < j->steps, from, to, g, along_x, j->h + me * room, j->q + me * room);
        meet(&j->meeting);
        const double loss = (NAME(added)(j, parity) + (double)j->ridge * moved) / 2;
        if (me == 0) j->loss = loss;
        if (s == j->steps || !(loss <= j->hopeless)) return;
        moved = NAME(step_down)(j, at, j->g + parity * size, 2 * size, s);
    }
}

static void NAME(curvature)(job *j, int me) {
    const int of = j->meeting.of;
    const long size = j->groups * j->d, room = j->groups * ROWS * SPAN;
    vec *g = j->g + 2 * me * size;
    rows *along_x = j->k + 2 * me * j->d;
    memset(g, 0, size * sizeof *g);
    memset(along_x, 0, j->d * sizeof *along_x);
    j->sums[8 * me] = NAME(sweep)(j, j->own, 1, 1, j->blocks * me / of, j->blocks * (me + 1) / of, g, along_x,
                                  j->h + me * room, j->q + me * room);
}

typedef struct { job *job_; int me; } NAME(seat);
static void *NAME(sit)(void *at) {
    NAME(seat) *s = at;
    while (!atomic_load_explicit(&s->job_->begun, memory_order_acquire)) sched_yield();
    if (s->job_->y) NAME(descent)(s->job_, s->me);
    else NAME(curvature)(s->job_, s->me);
    return NULL;
}

/* (m, count) row by row ↔ groups×room×LANES, room ≥ count. */
static void NAME(pack)(const REAL *from, vec *to_, long m, long count, long groups, long room) {
    REAL *to = (REAL *)to_;
    memset(to, 0, groups * room * BYTES);
    for (long i = 0; i < m; i++)
        for (long k = 0; k < count; k++) to[(i / LANES * room + k) * LANES + i % LANES] = from[i * count + k];
}

static void NAME(unpack)(const vec *from_, REAL *to, long m, long count, long room) {
    const REAL *from = (const REAL *)from_;
    for (long i = 0; i < m; i++)
        for (long k = 0; k < count; k++) to[i * count + k] = from[(i / LANES * room + k) * LANES + i % LANES];
}

/* W_1 … W_L, each row by row, into one's own form; and back. */
static void NAME(pack_all)(const job *j, REAL *const *from, long m, vec *w, vec *v, REAL *c) {
    for (long l = 0; l < j->hidden; l++)
        NAME(pack)(from[l], w + NAME(start)(j, l), m, l ? m : j->d, j->groups, NAME(numbers_in)(j, l));
    NAME(pack)(from[j->hidden], v, m, 1, j->groups, 1);
    if (j->skip >= 0) memcpy(c, from[j->hidden] + m, j->d * sizeof *c);
}

static void NAME(unpack_all)(const job *j, const vec *w, const vec *v, const REAL *c, REAL *const *to, long m) {
    for (long l = 0; l < j->hidden; l++)
        NAME(unpack)(w + NAME(start)(j, l), to[l], m, l ? m : j->d, NAME(numbers_in)(j, l));
    NAME(unpack)(v, to[j->hidden], m, 1, 1);
    if (j->skip >= 0) memcpy(to[j->hidden] + m, c, j->d * sizeof *c);
}

/* Everything in one piece of memory; 0 without it. */
static char *NAME(prepare)(job *j, long n, long hidden, long m, long d, const REAL *x, int threads) {
    j->n = n, j->hidden = hidden, j->d = d, j->groups = (m + LANES - 1) / LANES, j->units = j->groups * LANES;
    j->blocks = (n + ROWS - 1) / ROWS;
    /* A thread is worth its meetings from some hundred thousand products on; and since each adds up every other's
     * gradient, the more there are the more rows each must have. */
    const long most = n * m * (d + (hidden - 1) * m) >> 18;
    if (threads > most) threads = (int)most;
    while (threads > 1 && (long)threads * threads > n) threads--;
    if (threads < 1) threads = 1;
    j->meeting.of = threads;
    const size_t size = NAME(start)(j, hidden), across = (hidden - 1) * j->groups * j->units;
    const size_t one = size + j->groups, room = hidden * j->groups * ROWS * SPAN;
    const size_t for_x = (j->blocks * d * ROWS * sizeof(REAL) + 63) / 64 * 64;
    const size_t for_k = (2 * threads * d * sizeof *j->k + 63) / 64 * 64, for_c = (2 + 2 * threads) * d * sizeof *j->c0;
    const size_t all = 2 * one + threads * (2 * one + across + 2 * size + 2 * room);
    const size_t others = threads * (64 + sizeof *j->own) + for_k + for_c;
    char *memory = aligned_alloc(64, (all * BYTES + for_x + others + 63) / 64 * 64);
    if (!memory) return 0;
    vec *at = (vec *)memory;
    j->w0 = at, at += size, j->v0 = at, at += j->groups, j->tw = at, at += size, j->tv = at, at += j->groups;
    j->g = at, at += 2 * threads * size, j->h = at, at += threads * room, j->q = at, at += threads * room;
    j->x = (REAL *)(at + threads * (2 * one + across)), j->k = (rows *)((char *)j->x + for_x);
    j->sums = (double *)((char *)j->k + for_k), j->own = (weights *)(j->sums + 8 * threads);
    j->c0 = (REAL *)(j->own + threads), j->tc = j->c0 + d;
    for (int t = 0; t < threads; t++, at += 2 * one + across) {
        vec *ago = at + one + across;
        j->own[t] = (weights){at, at + size, at + one, j->tc + (2 * t + 1) * d, ago, ago + size, j->tc + (2 * t + 2) * d};
    }
    memset(j->x, 0, for_x);
    for (long i = 0; i < n; i++)
        for (long k = 0; k < d; k++) j->x[(i / ROWS * d + k) * ROWS + i % ROWS] = x[i * d + k];
    return memory;
}

/* The caller is the first thread; as many others join as can be had. */
static int NAME(together)(job *j) {
    int of = j->meeting.of, made = 1;
    pthread_t *ids = malloc(of * sizeof *ids);
    NAME(seat) *seats = malloc(of * sizeof *seats);
    if (ids && seats) {
        for (int t = 0; t < of; t++) seats[t] = (NAME(seat)){j, t};
        while (made < of && !pthread_create(&ids[made], NULL, NAME(sit), &seats[made])) made++;
        j->meeting.of = made;
        atomic_store(&j->begun, 1);
        NAME(sit)(&seats[0]);
        for (int t = 1; t < made; t++) pthread_join(ids[t], NULL);
    }
    int done = ids && seats;
    free(ids), free(seats);
    return done;
}

/* J steps from θ, which comes out as where they led; the loss there, or −1 without memory. With momentum `ago` is θ one
 * step before, and comes out likewise; `taken` steps led to both. */
static double NAME(descend)(long n, long hidden, long m, long d, const REAL *x, const REAL *y, REAL *const *initial,
                            REAL *const *theta, REAL *const *ago, long taken, double skip, double ridge, double step,
                            long steps, double hopeless, int threads) {
    job j = {.y = y, .ridge = (REAL)ridge, .step = (REAL)step, .skip = (REAL)skip, .steps = steps, .hopeless = hopeless,
             .taken = ago ? taken : -1};
    char *memory = NAME(prepare)(&j, n, hidden, m, d, x, threads);
    if (!memory) return -1;
    NAME(pack_all)(&j, initial, m, j.w0, j.v0, j.c0);
    for (int t = 0; t < j.meeting.of; t++) {
        NAME(pack_all)(&j, theta, m, j.own[t].w, j.own[t].v, j.own[t].c);
        if (ago) NAME(pack_all)(&j, ago, m, j.own[t].ow, j.own[t].ov, j.own[t].oc);
    }
    int done = NAME(together)(&j);
    NAME(unpack_all)(&j, j.own->w, j.own->v, j.own->c, theta, m);
    if (ago) NAME(unpack_all)(&j, j.own->ow, j.own->ov, j.own->oc, ago, m);
    free(memory);
    return done ? j.loss : -1;
}

/* One hidden layer: `vector` becomes ΦᵀΦ·vector, Φ the features at θ_0; returns ‖Φ·vector‖², or −1 without memory. */
static double NAME(curve)(long n, long m, long d, const REAL *x, REAL *const *initial, REAL *const *vector,
                          double skip, int threads) {
    job j = {.skip = (REAL)skip};
    char *memory = NAME(prepare)(&j, n, 1, m, d, x, threads);
    if (!memory) return -1;
    NAME(pack_all)(&j, initial, m, j.own->w, j.own->v, j.own->c);
    NAME(pack_all)(&j, vector, m, j.tw, j.tv, j.tc);
    int done = NAME(together)(&j);
    const long size = j.groups * d;
    for (long i = 0; i < j.groups; i++) {
        vec slope = {0};
        for (long k = i * d; k < (i + 1) * d; k++) {
            vec g = j.g[k];
            for (int t = 1; t < j.meeting.of; t++) g += j.g[2 * t * size + k];
            slope += j.own->w[k] * g;
            j.g[k] = g * j.own->v[i];
        }
        j.tv[i] = slope;
    }
    for (long i = 0; i < d; i++) j.tc[i] = NAME(skip_slope)(&j, i, 0);
    double total = NAME(added)(&j, 0);
    NAME(unpack_all)(&j, j.g, j.tv, j.tc, vector, m);
    free(memory);
    return done ? total : -1;
}
#undef LANES
#undef vec
#undef bits
#undef job
#undef weights
#undef rows
#undef ONWARD
#undef INPUT
#undef GROUPS

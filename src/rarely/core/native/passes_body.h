/* One precision, one processor's form.
 *
 *   x   blocks of ROWS rows, d×ROWS each, padded with rows of 0
 *   W   groups of LANES units, d×LANES each, padded with units of 0, which stay 0
 */
#define LANES (BYTES / (int)sizeof(REAL))
#define vec NAME(vec)
#define bits NAME(bits)
#define job NAME(job)

typedef REAL vec __attribute__((vector_size(BYTES), aligned(BYTES)));
typedef WHOLE bits __attribute__((vector_size(BYTES), aligned(BYTES)));

typedef struct { vec *w, *v; } NAME(weights); /* groups×d, groups */

typedef struct {
    long n, groups, d, blocks, steps;
    REAL *x;
    const REAL *y;          /* NULL: the curvature, whose residuals are slopes along (tw, tv) */
    NAME(weights) *own;     /* for each thread */
    vec *w0, *v0;
    vec *tw, *tv;           /* the direction of the curvature */
    REAL ridge, step;
    vec *g, *h;             /* for each thread: 2×groups×d, SPAN×groups×ROWS */
    double *sums;           /* for each thread, a cache line: Σe² by parity */
    double hopeless, loss;
    gate meeting;
    atomic_int begun;       /* once it is known how many threads there are */
} job;

/* 1[t > 0]·e, lane by lane. */
INLINE vec NAME(where)(vec t, REAL e) {
    const vec zero = {0};
    return (vec)((bits)(e + zero) & (bits)(t > zero));
}

INLINE REAL NAME(lane_sum)(vec u) {
    REAL s[LANES] __attribute__((aligned(BYTES)));
    *(vec *)s = u;
    for (int width = LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++) s[l] += s[l + width];
    return s[0];
}

/* h = relu(Wx) of WIDTH groups and a block of rows; adds h·v to u. For the curvature adds v·(Tx) 1[h > 0] + h·tv. */
INLINE void NAME(ahead)(const int WIDTH, const int curved, long d, const REAL *restrict x, const vec *restrict w,
                        const vec *restrict v, const vec *restrict tw, const vec *restrict tv, vec *restrict h, vec *u) {
    const vec zero = {0};
    vec sum[WIDE][ROWS], along[WIDE][ROWS];
    UNROLL for (int c = 0; c < WIDTH; c++)
        UNROLL for (int a = 0; a < ROWS; a++) sum[c][a] = zero;
    for (long k = 0; k < d; k++)
        UNROLL for (int a = 0; a < ROWS; a++)
            UNROLL for (int c = 0; c < WIDTH; c++) sum[c][a] += x[k * ROWS + a] * w[c * d + k];
    if (curved) {
        UNROLL for (int c = 0; c < WIDTH; c++)
            UNROLL for (int a = 0; a < ROWS; a++) along[c][a] = zero;
        for (long k = 0; k < d; k++)
            UNROLL for (int a = 0; a < ROWS; a++)
                UNROLL for (int c = 0; c < WIDTH; c++) along[c][a] += x[k * ROWS + a] * tw[c * d + k];
    }
    UNROLL for (int c = 0; c < WIDTH; c++)
        UNROLL for (int a = 0; a < ROWS; a++) {
            bits on = (bits)(sum[c][a] > zero);
            vec t = (vec)((bits)sum[c][a] & on);
            h[c * ROWS + a] = t;
            if (curved) u[a] += (vec)((bits)along[c][a] & on) * v[c] + t * tv[c];
            else u[a] += t * v[c];
        }
}

/* Adds e 1[h > 0] xᵀ to G. */
INLINE void NAME(back)(const int WIDTH, long d, const REAL *restrict x, const REAL *restrict e, const vec *restrict h,
                       vec *restrict g) {
    vec q[WIDE][ROWS];
    UNROLL for (int c = 0; c < WIDTH; c++)
        UNROLL for (int a = 0; a < ROWS; a++) q[c][a] = NAME(where)(h[c * ROWS + a], e[a]);
    for (long k = 0; k < d; k++) {
        vec sum[WIDE];
        UNROLL for (int c = 0; c < WIDTH; c++) sum[c] = g[c * d + k];
        UNROLL for (int a = 0; a < ROWS; a++)
            UNROLL for (int c = 0; c < WIDTH; c++) sum[c] += x[k * ROWS + a] * q[c][a];
        UNROLL for (int c = 0; c < WIDTH; c++) g[c * d + k] = sum[c];
    }
}

/* One pass over the blocks [from, to): Σe², and with `learning` G.
 *
 * SPAN blocks go together: the weights and G of a group are then read from the nearest cache, and the sums over
 * units that all of `back` waits for come less often. */
INLINE double NAME(sweep)(const job *j, const NAME(weights) *at, const int curved, int learning, long from, long to,
                          vec *restrict g, vec *restrict h) {
    const long d = j->d, groups = j->groups;
    double total = 0;
    for (long b = from; b < to; b += SPAN) {
        const int span = to - b < SPAN ? (int)(to - b) : SPAN;
        const REAL *x = j->x + b * d * ROWS;
        vec u[SPAN * ROWS];
        REAL e[SPAN * ROWS];
        long i = 0;
        memset(u, 0, sizeof u);
#define AHEAD(WIDTH) \
    for (int s = 0; s < span; s++) \
        NAME(ahead)(WIDTH, curved, d, x + s * d * ROWS, at->w + i * d, at->v + i, j->tw + i * d, j->tv + i, \
                    h + (s * groups + i) * ROWS, u + s * ROWS)
        for (; i + WIDE <= groups; i += WIDE) AHEAD(WIDE);
        for (; i < groups; i++) AHEAD(1);
#undef AHEAD
        for (int a = 0; a < span * ROWS; a++) {
            const long row = b * ROWS + a;
            e[a] = NAME(lane_sum)(u[a]);
            if (!curved) e[a] = row < j->n ? e[a] - j->y[row] : 0;
            total += (double)e[a] * (double)e[a];
        }
        if (!learning) continue;
#define BACK(WIDTH) \
    for (int s = 0; s < span; s++) \
        NAME(back)(WIDTH, d, x + s * d * ROWS, e + s * ROWS, h + (s * groups + i) * ROWS, g + i * d)
        for (i = 0; i + WIDE <= groups; i += WIDE) BACK(WIDE);
        for (; i < groups; i++) BACK(1);
#undef BACK
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

/* One step down the gradient, which is every thread's G added up; returns ‖θ − θ_0‖² after it. */
static double NAME(step_down)(const job *j, NAME(weights) *at, const vec *g, long apart) {
    const long d = j->d;
    double moved = 0;
    for (long i = 0; i < j->groups; i++) {
        vec slope = {0}, squares = {0}, gap;
        for (long k = i * d; k < (i + 1) * d; k++) {
            vec sum = g[k];
            for (int t = 1; t < j->meeting.of; t++) sum += g[t * apart + k];
            slope += at->w[k] * sum;
            at->w[k] -= j->step * (sum * at->v[i] + j->ridge * (at->w[k] - j->w0[k]));
            gap = at->w[k] - j->w0[k];
            squares += gap * gap;
        }
        at->v[i] -= j->step * (slope + j->ridge * (at->v[i] - j->v0[i]));
        gap = at->v[i] - j->v0[i];
        moved += NAME(lane_sum)(squares + gap * gap);
    }
    return moved;
}

/* Every thread steps weights of its own, all by the same sums: so they meet once a step, and no line of the cache
 * is written that another thread reads in its sweep. G has two places for each thread, by the parity of the step. */
static void NAME(descent)(job *j, int me) {
    const int of = j->meeting.of;
    const long d = j->d, size = j->groups * d, from = j->blocks * me / of, to = j->blocks * (me + 1) / of;
    NAME(weights) *at = j->own + me;
    vec *h = j->h + me * j->groups * ROWS * SPAN;
    double moved = NAME(squares)(at->w, j->w0, size) + NAME(squares)(at->v, j->v0, j->groups);
    for (long s = 0;; s++) {
        const long parity = s % 2;
        vec *g = j->g + (2 * me + parity) * size;
        memset(g, 0, size * sizeof *g);
        j->sums[8 * me + parity] = NAME(sweep)(j, at, 0, s < j->steps, from, to, g, h);
        meet(&j->meeting);
        const double loss = (NAME(added)(j, parity) + (double)j->ridge * moved) / 2;
        if (me == 0) j->loss = loss;
        if (s == j->steps || !(loss <= j->hopeless)) return;
        moved = NAME(step_down)(j, at, j->g + parity * size, 2 * size);
    }
}

static void NAME(curvature)(job *j, int me) {
    const int of = j->meeting.of;
    const long size = j->groups * j->d;
    vec *g = j->g + 2 * me * size;
    memset(g, 0, size * sizeof *g);
    j->sums[8 * me] = NAME(sweep)(j, j->own, 1, 1, j->blocks * me / of, j->blocks * (me + 1) / of, g,
                                  j->h + me * j->groups * ROWS * SPAN);
}

typedef struct { job *job_; int me; } NAME(seat);
static void *NAME(sit)(void *at) {
    NAME(seat) *s = at;
    while (!atomic_load_explicit(&s->job_->begun, memory_order_acquire)) sched_yield();
    if (s->job_->y) NAME(descent)(s->job_, s->me);
    else NAME(curvature)(s->job_, s->me);
    return NULL;
}

/* (m, d) row by row ↔ groups×d×LANES. */
static void NAME(pack)(const REAL *from, vec *to_, long m, long d, long groups) {
    REAL *to = (REAL *)to_;
    memset(to, 0, groups * d * BYTES);
    for (long i = 0; i < m; i++)
        for (long k = 0; k < d; k++) to[(i / LANES * d + k) * LANES + i % LANES] = from[i * d + k];
}

static void NAME(unpack)(const vec *from_, REAL *to, long m, long d) {
    const REAL *from = (const REAL *)from_;
    for (long i = 0; i < m; i++)
        for (long k = 0; k < d; k++) to[i * d + k] = from[(i / LANES * d + k) * LANES + i % LANES];
}

/* Everything in one piece of memory; 0 without it. */
static char *NAME(prepare)(job *j, long n, long m, long d, const REAL *x, int threads) {
    j->n = n, j->d = d, j->groups = (m + LANES - 1) / LANES, j->blocks = (n + ROWS - 1) / ROWS;
    /* A thread is worth its meetings from some hundred thousand products on; and since each adds up every other's
     * gradient, the more there are the more rows each must have. */
    long most = n * m * d >> 18;
    if (threads > most) threads = (int)most;
    while (threads > 1 && (long)threads * threads > n) threads--;
    if (threads < 1) threads = 1;
    j->meeting.of = threads;
    const size_t size = j->groups * d, one = size + j->groups, for_x = (j->blocks * d * ROWS * sizeof(REAL) + 63) / 64 * 64;
    const size_t all = 2 * one + threads * (one + 2 * size + j->groups * ROWS * SPAN);
    char *memory = aligned_alloc(64, (all * BYTES + for_x + threads * (64 + sizeof *j->own) + 63) / 64 * 64);
    if (!memory) return 0;
    vec *at = (vec *)memory;
    j->w0 = at, at += size, j->v0 = at, at += j->groups, j->tw = at, at += size, j->tv = at, at += j->groups;
    j->g = at, at += 2 * threads * size, j->h = at, at += threads * j->groups * ROWS * SPAN;
    j->x = (REAL *)(at + threads * one), j->sums = (double *)((char *)j->x + for_x);
    j->own = (NAME(weights) *)(j->sums + 8 * threads);
    for (int t = 0; t < threads; t++, at += one) j->own[t] = (NAME(weights)){at, at + size};
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

/* J steps from (w, v), which come out as where they led; the loss there, or −1 without memory. */
static double NAME(descend)(long n, long m, long d, const REAL *x, const REAL *y, const REAL *w0, const REAL *v0,
                            REAL *w, REAL *v, double ridge, double step, long steps, double hopeless, int threads) {
    job j = {.y = y, .ridge = (REAL)ridge, .step = (REAL)step, .steps = steps, .hopeless = hopeless};
    char *memory = NAME(prepare)(&j, n, m, d, x, threads);
    if (!memory) return -1;
    NAME(pack)(w0, j.w0, m, d, j.groups), NAME(pack)(v0, j.v0, m, 1, j.groups);
    for (int t = 0; t < j.meeting.of; t++)
        NAME(pack)(w, j.own[t].w, m, d, j.groups), NAME(pack)(v, j.own[t].v, m, 1, j.groups);
    int done = NAME(together)(&j);
    NAME(unpack)(j.own->w, w, m, d), NAME(unpack)(j.own->v, v, m, 1);
    free(memory);
    return done ? j.loss : -1;
}

/* (w, v) become ΦᵀΦ(w, v), Φ the features at (w0, v0); returns ‖Φ(w, v)‖², or −1 without memory. */
static double NAME(curve)(long n, long m, long d, const REAL *x, const REAL *w0, const REAL *v0, REAL *w, REAL *v,
                          int threads) {
    job j = {0};
    char *memory = NAME(prepare)(&j, n, m, d, x, threads);
    if (!memory) return -1;
    NAME(pack)(w0, j.own->w, m, d, j.groups), NAME(pack)(v0, j.own->v, m, 1, j.groups);
    NAME(pack)(w, j.tw, m, d, j.groups), NAME(pack)(v, j.tv, m, 1, j.groups);
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
    double total = NAME(added)(&j, 0);
    NAME(unpack)(j.g, w, m, d), NAME(unpack)(j.tv, v, m, 1);
    free(memory);
    return done ? total : -1;
}
#undef LANES
#undef vec
#undef bits
#undef job

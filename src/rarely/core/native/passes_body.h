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

typedef struct {
    long n, groups, d, blocks, steps;
    REAL *x;
    const REAL *y;          /* NULL: the curvature, whose residuals are slopes along (tw, tv) */
    vec *w, *v, *w0, *v0;   /* groups×d, groups */
    vec *tw, *tv;           /* the direction of the curvature */
    REAL ridge, step;
    vec *g, *h;             /* for each thread: groups×d, groups×ROWS */
    double *sums;           /* for each thread, a cache line: Σe², ‖θ − θ_0‖² of its units */
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

/* One pass over the blocks [from, to): Σe², and with `learning` G. */
INLINE double NAME(sweep)(const job *j, const int curved, int learning, long from, long to, vec *restrict g,
                          vec *restrict h) {
    const long d = j->d, groups = j->groups;
    double total = 0;
    for (long b = from; b < to; b++) {
        const REAL *x = j->x + b * d * ROWS;
        vec u[ROWS];
        REAL e[ROWS];
        long i = 0;
        memset(u, 0, sizeof u);
        for (; i + WIDE <= groups; i += WIDE)
            NAME(ahead)(WIDE, curved, d, x, j->w + i * d, j->v + i, j->tw + i * d, j->tv + i, h + i * ROWS, u);
        for (; i < groups; i++)
            NAME(ahead)(1, curved, d, x, j->w + i * d, j->v + i, j->tw + i * d, j->tv + i, h + i * ROWS, u);
        UNROLL for (int a = 0; a < ROWS; a++) {
            long row = b * ROWS + a;
            e[a] = NAME(lane_sum)(u[a]);
            if (!curved) e[a] = row < j->n ? e[a] - j->y[row] : 0;
            total += (double)e[a] * (double)e[a];
        }
        if (!learning) continue;
        for (i = 0; i + WIDE <= groups; i += WIDE) NAME(back)(WIDE, d, x, e, h + i * ROWS, g + i * d);
        for (; i < groups; i++) NAME(back)(1, d, x, e, h + i * ROWS, g + i * d);
    }
    return total;
}

INLINE double NAME(squares)(const vec *a, const vec *b, long count) {
    vec s = {0};
    for (long k = 0; k < count; k++) s += (a[k] - b[k]) * (a[k] - b[k]);
    return NAME(lane_sum)(s);
}

INLINE double NAME(added)(const job *j, int which) {
    double total = 0;
    for (int t = 0; t < j->meeting.of; t++) total += j->sums[8 * t + which];
    return total;
}

/* Steps the units of [low, high) down the gradient, which is every thread's G added up. */
static void NAME(step_down)(job *j, long low, long high) {
    const long d = j->d, size = j->groups * d;
    for (long i = low; i < high; i++) {
        vec slope = {0};
        for (long k = i * d; k < (i + 1) * d; k++) {
            vec g = j->g[k];
            for (int t = 1; t < j->meeting.of; t++) g += j->g[t * size + k];
            slope += j->w[k] * g;
            j->w[k] -= j->step * (g * j->v[i] + j->ridge * (j->w[k] - j->w0[k]));
        }
        j->v[i] -= j->step * (slope + j->ridge * (j->v[i] - j->v0[i]));
    }
}

static void NAME(descent)(job *j, int me) {
    const int of = j->meeting.of;
    const long size = j->groups * j->d, from = j->blocks * me / of, to = j->blocks * (me + 1) / of;
    const long low = j->groups * me / of, high = j->groups * (me + 1) / of;
    vec *g = j->g + me * size, *h = j->h + me * j->groups * ROWS;
    for (long s = 0;; s++) {
        j->sums[8 * me + 1] = NAME(squares)(j->w + low * j->d, j->w0 + low * j->d, (high - low) * j->d)
                              + NAME(squares)(j->v + low, j->v0 + low, high - low);
        memset(g, 0, size * sizeof *g);
        j->sums[8 * me] = NAME(sweep)(j, 0, s < j->steps, from, to, g, h);
        meet(&j->meeting);
        double loss = (NAME(added)(j, 0) + (double)j->ridge * NAME(added)(j, 1)) / 2;
        if (me == 0) j->loss = loss;
        if (s == j->steps || !(loss <= j->hopeless)) return;
        NAME(step_down)(j, low, high);
        meet(&j->meeting);
    }
}

static void NAME(curvature)(job *j, int me) {
    const int of = j->meeting.of;
    vec *g = j->g + me * j->groups * j->d;
    memset(g, 0, j->groups * j->d * sizeof *g);
    j->sums[8 * me] = NAME(sweep)(j, 1, 1, j->blocks * me / of, j->blocks * (me + 1) / of, g,
                                  j->h + me * j->groups * ROWS);
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
    /* A thread is worth its meetings from some ten thousand products on. */
    long most = n * m * d / 16384;
    if (threads > most) threads = (int)most;
    if (threads > j->blocks) threads = (int)j->blocks;
    if (threads < 1) threads = 1;
    j->meeting.of = threads;
    size_t size = j->groups * d, all = 3 * (size + j->groups) + threads * (size + j->groups * ROWS);
    size_t for_x = (j->blocks * d * ROWS * sizeof(REAL) + 63) / 64 * 64;
    char *memory = lines(all * BYTES + for_x + 64 * threads);
    if (!memory) return 0;
    vec *at = (vec *)memory;
    j->w = at, at += size, j->w0 = at, at += size, j->tw = at, at += size;
    j->v = at, at += j->groups, j->v0 = at, at += j->groups, j->tv = at, at += j->groups;
    j->g = at, at += threads * size, j->h = at, at += threads * j->groups * ROWS;
    j->x = (REAL *)at, j->sums = (double *)((char *)at + for_x);
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
    NAME(pack)(w, j.w, m, d, j.groups), NAME(pack)(v, j.v, m, 1, j.groups);
    int done = NAME(together)(&j);
    NAME(unpack)(j.w, w, m, d), NAME(unpack)(j.v, v, m, 1);
    free(memory);
    return done ? j.loss : -1;
}

/* (w, v) become ΦᵀΦ(w, v), Φ the features at (w0, v0); returns ‖Φ(w, v)‖², or −1 without memory. */
static double NAME(curve)(long n, long m, long d, const REAL *x, const REAL *w0, const REAL *v0, REAL *w, REAL *v,
                          int threads) {
    job j = {0};
    char *memory = NAME(prepare)(&j, n, m, d, x, threads);
    if (!memory) return -1;
    NAME(pack)(w0, j.w, m, d, j.groups), NAME(pack)(v0, j.v, m, 1, j.groups);
    NAME(pack)(w, j.tw, m, d, j.groups), NAME(pack)(v, j.tv, m, 1, j.groups);
    int done = NAME(together)(&j);
    const long size = j.groups * d;
    for (long i = 0; i < j.groups; i++) {
        vec slope = {0};
        for (long k = i * d; k < (i + 1) * d; k++) {
            vec g = j.g[k];
            for (int t = 1; t < j.meeting.of; t++) g += j.g[t * size + k];
            slope += j.w[k] * g;
            j.g[k] = g * j.v[i];
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

typedef struct {
    int n, m, d, steps, threads;
    const REAL *x, *y, *w0, *v0; /* x: blocks of ROWS rows, d×ROWS each; w0: d×m */
    REAL ridge, step;
    REAL *w, *v;          /* d×m, m */
    REAL *g, *gv, *h;     /* for each thread: d×m, m, ROWS×m */
    double *loss;         /* for each thread */
    double hopeless, last;
    int taken;
    atomic_int stop;
    barrier gate;
} NAME(job);

typedef REAL NAME(vec) __attribute__((vector_size(64), aligned(64)));
typedef WHOLE NAME(bits) __attribute__((vector_size(64), aligned(64)));

/* One pass over blocks [from, to): adds to g (without the gain w2) and gv, returns Σe². */
CLONES static double NAME(sweep)(int from, int to, int n, int m, int d, const REAL *restrict x, const REAL *restrict y,
                          const REAL *restrict w_, const REAL *restrict v_, REAL *restrict g_, REAL *restrict gv_,
                          REAL *restrict h_) {
    const int M = m / LANES;
    const NAME(vec) *w = (const NAME(vec) *)w_, *v = (const NAME(vec) *)v_;
    NAME(vec) *g = (NAME(vec) *)g_, *gv = (NAME(vec) *)gv_, *h = (NAME(vec) *)h_;
    const NAME(vec) zero = {0};
    double total = 0;
    for (int b = from; b < to; b++) {
        const REAL *restrict xb = x + (long)b * d * ROWS;
        REAL e[ROWS];
        NAME(vec) u[ROWS];
        for (int a = 0; a < ROWS; a++) u[a] = zero;
        for (int j = 0; j < M; j++) {
            NAME(vec) acc[ROWS];
            for (int a = 0; a < ROWS; a++) acc[a] = zero;
            for (int k = 0; k < d; k++) {
                NAME(vec) wk = w[(long)k * M + j];
                for (int a = 0; a < ROWS; a++) acc[a] += xb[k * ROWS + a] * wk;
            }
            for (int a = 0; a < ROWS; a++) {
                acc[a] = (NAME(vec))((NAME(bits))acc[a] & (acc[a] > zero));
                h[j * ROWS + a] = acc[a];
                u[a] += acc[a] * v[j];
            }
        }
        for (int a = 0; a < ROWS; a++) {
            int i = b * ROWS + a;
            REAL s = 0;
            for (int l = 0; l < LANES; l++) s += u[a][l];
            e[a] = i < n ? s - y[i] : 0;
            total += (double)e[a] * (double)e[a];
        }
        for (int j = 0; j < M; j++) {
            NAME(vec) q[ROWS], s = gv[j];
            for (int a = 0; a < ROWS; a++) {
                NAME(vec) t = h[j * ROWS + a];
                s += e[a] * t;
                q[a] = (NAME(vec))((NAME(bits))(e[a] + zero) & (t > zero));
            }
            gv[j] = s;
            for (int k = 0; k < d; k++) {
                NAME(vec) r = g[(long)k * M + j];
                for (int a = 0; a < ROWS; a++) r += xb[k * ROWS + a] * q[a];
                g[(long)k * M + j] = r;
            }
        }
    }
    return total;
}

static void NAME(work)(NAME(job) *job, int me) {
    int m = job->m, d = job->d, T = job->threads, blocks = (job->n + ROWS - 1) / ROWS;
    long size = (long)d * m;
    REAL *g = job->g + me * size, *gv = job->gv + (long)me * m;
    int from = (long)blocks * me / T, to = (long)blocks * (me + 1) / T;
    /* Each thread also updates its share of the units. */
    int low = (long)(m / LANES) * me / T * LANES, high = (long)(m / LANES) * (me + 1) / T * LANES;
    for (int s = 0; s < job->steps; s++) {
        memset(g, 0, size * sizeof *g);
        memset(gv, 0, m * sizeof *gv);
        job->loss[me * 8] = NAME(sweep)(from, to, job->n, m, d, job->x, job->y, job->w, job->v, g, gv,
                                        job->h + (long)me * ROWS * m);
        meet(&job->gate);
        if (me == 0) {
            double loss = 0, moved = 0;
            for (int t = 0; t < T; t++) loss += job->loss[t * 8];
            for (long i = 0; i < size; i++) { double z = job->w[i] - job->w0[i]; moved += z * z; }
            for (int j = 0; j < m; j++) { double z = job->v[j] - job->v0[j]; moved += z * z; }
            job->last = loss / 2 + (double)job->ridge * moved / 2;
            if (!(job->last <= job->hopeless)) atomic_store(&job->stop, 1);
            else job->taken++;
        }
        meet(&job->gate);
        if (atomic_load(&job->stop)) return;
        for (int k = 0; k < d; k++)
            for (int j = low; j < high; j++) {
                REAL total = 0;
                for (int t = 0; t < T; t++) total += job->g[t * size + (long)k * m + j];
                long i = (long)k * m + j;
                job->w[i] -= job->step * (total * job->v[j] + job->ridge * (job->w[i] - job->w0[i]));
            }
        for (int j = low; j < high; j++) {
            REAL total = 0;
            for (int t = 0; t < T; t++) total += job->gv[(long)t * m + j];
            job->v[j] -= job->step * (total + job->ridge * (job->v[j] - job->v0[j]));
        }
        meet(&job->gate);
    }
}

typedef struct { NAME(job) *job; int me; } NAME(seat);
static void *NAME(sit)(void *arg) { NAME(seat) *s = arg; NAME(work)(s->job, s->me); return NULL; }

/* w (d×m) and v (m) go in as the start and come out as the end; returns the steps taken, or −1 without memory. */
int NAME(descend)(int n, int m, int d, const REAL *x, const REAL *y, const REAL *w0, const REAL *v0, REAL *w, REAL *v,
                  double ridge, double step, int steps, double hopeless, int threads) {
    int blocks = (n + ROWS - 1) / ROWS;
    if (threads > blocks) threads = blocks > 0 ? blocks : 1;
    long size = (long)d * m;
    NAME(job) job = {.n = n, .m = m, .d = d, .steps = steps, .threads = threads, .x = x, .y = y, .w0 = w0, .v0 = v0,
                     .ridge = ridge, .step = step, .w = w, .v = v, .hopeless = hopeless};
    job.gate.of = threads;
    job.g = aligned_alloc(64, ((threads * size * sizeof(REAL) + 63) / 64) * 64);
    job.gv = aligned_alloc(64, ((threads * (long)m * sizeof(REAL) + 63) / 64) * 64);
    job.h = aligned_alloc(64, ((threads * (long)ROWS * m * sizeof(REAL) + 63) / 64) * 64);
    job.loss = calloc(threads * 8, sizeof(double));
    pthread_t *threads_ = malloc(threads * sizeof(pthread_t));
    NAME(seat) *seats = malloc(threads * sizeof(NAME(seat)));
    if (!job.g || !job.gv || !job.h || !job.loss || !threads_ || !seats) return -1;
    for (int t = 0; t < threads; t++) seats[t] = (NAME(seat)){&job, t};
    for (int t = 1; t < threads; t++) pthread_create(&threads_[t], NULL, NAME(sit), &seats[t]);
    NAME(work)(&job, 0);
    for (int t = 1; t < threads; t++) pthread_join(threads_[t], NULL);
    free(job.g); free(job.gv); free(job.h); free(job.loss); free(threads_); free(seats);
    return job.taken;
}

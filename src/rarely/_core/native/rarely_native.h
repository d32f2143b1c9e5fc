/* The functions of the library, and the structs that they take; `loader.py` mirrors both.
 *
 * Every number is a ptrdiff_t or a double, so that the layout is the same with every compiler. The caller checks shapes.
 */
#ifndef RARELY_NATIVE_H
#define RARELY_NATIVE_H
#include <stddef.h>

#ifdef _WIN32
#define RARELY_EXPORT __declspec(dllexport)
#else
#define RARELY_EXPORT __attribute__((visibility("default")))
#endif

/* A network without biases: W_1 is (units, dim), W_2 … W_{L−1} are (units, units), W_L is (1, units), or with a skip
 * path (1, units + dim). Every array is row by row, of float (number_bytes 4) or double (8). */
struct rarely_training_task {
    ptrdiff_t number_bytes, samples, dim, units, hidden_layers, threads;
    const void *contexts;    /* (samples, dim) */
    const void *targets;     /* (samples,) */
    const void *const *initial; /* θ_0, an array for each layer */
    void *const *weights;    /* rarely_descend: θ, replaced; rarely_curvature: a vector v, replaced by ΦᵀΦv */
    void *const *previous;   /* θ one step before, replaced; NULL without momentum */
    ptrdiff_t taken;         /* steps that led to `weights`, for momentum */
    ptrdiff_t steps;
    double skip;             /* strength of the skip path, below 0 where there is none */
    double ridge, step_size;
    double hopeless;         /* no step is taken from a loss above this */
    double result;           /* out: the loss at `weights`; rarely_curvature: ‖Φv‖² */
    /* Contexts with blocks: group g has the next group_samples[g] samples of sample_order, whose contexts are 0 but in
     * the first `shared` columns of column_order and in the group's own, the next group_columns[g]. Columns may be
     * left over, which are 0 in every sample. With groups 0 the rest is not read. */
    ptrdiff_t groups, shared;
    const ptrdiff_t *sample_order, *column_order, *group_samples, *group_columns;
};

/* Inner products of `past` features with new ones. Candidates are lanes, in blocks of 8·width; with
 * width 0 each is contiguous, and `blocks` is how many, 1, 2 or 4. */
struct rarely_cross_task {
    ptrdiff_t width, blocks, past, layers, threads;
    const ptrdiff_t *sizes;           /* numbers of each layer's inputs and signals in turn; signals of size 0 count as 1 */
    const double *const *old_factors; /* each (past, size) */
    const double *const *new_factors; /* each (blocks, size, 8·width), or (blocks, size) */
    double *out;                      /* (past, blocks·8·width), or (blocks, past) */
};

/* L⁻¹·y by panels of 128 rows. */
struct rarely_solve_task {
    ptrdiff_t width, blocks, done, rows, threads;
    const double *const *left;    /* of panel i, the rows left of its diagonal block: (128, 128·i) */
    const double *const *inverse; /* the inverse of its diagonal block: (128, 128) */
    double *solution;             /* (rows, blocks·8·width), or (blocks, rows): solved to row `done`, then the right side */
};

/* Features of `model/kernels.py`: inputs (count, ·) and signals of each layer in turn. */
struct rarely_kernel_side {
    ptrdiff_t count;
    const double *raw, *centred, *learned, *columns, *clocks; /* x; directions of u and z; s; (time, side of a change) */
    const double *raw_lengths, *lengths, *learned_lengths; /* 1, 3 and 1 each: √weight times what scales the kernel */
};

/* The weighted kernels between them; see evidence.c. */
struct rarely_kernel_task {
    ptrdiff_t raw, centred, learned, columns; /* numbers in a row of each, which may be 0 */
    struct rarely_kernel_side left, right;
    ptrdiff_t row_step, column_step;
    double *out;
};

/* How rounds are scored by kernels: features of the arms of one round, k with those of past rounds, and L⁻¹k. */
struct rarely_dual_task {
    ptrdiff_t raw, centred, learned, columns; /* as in rarely_kernel_task */
    ptrdiff_t width, blocks;            /* as in rarely_solve_task, for the arms of a round */
    ptrdiff_t predicted;                /* coefficients of the mean; of the first rows of `past` unless `points` has rows */
    struct rarely_kernel_side past, points;
    double most;                        /* of a centred number */
    double reward_center, reward_scale, time, side;
    const double *center, *rates, *sizes; /* (dim,) */
    const double *metric;               /* (dim, dim), or NULL */
    const double *roots;                /* (6,): √weight of linear, network, products, constant, learned, columns */
    const double *coefficients;
    const double *const *left, *const *inverse; /* panels of L */
    double *x, *u, *z, *s, *clocks, *x_lengths, *u_lengths, *z_lengths, *s_lengths; /* out: features of the arms there are */
    double *norms;                      /* (arms,) */
    double *solution;                   /* (past, blocks·8·width), or (blocks, past) */
    double *k;                          /* (points, arms), where there are points */
};

/* Consecutive rounds of a linear policy, of at most 128 parameters, or of one without a model: see `steps.c`. Rounds have
 * `arms` arms each, of which those in `present` are there; `rows`, `gains` and `costs` have numbers of these alone. What
 * is marked "in place" is changed also where the call fails. */
struct rarely_step_task {
    ptrdiff_t rounds, arms, dim;
    ptrdiff_t slots;      /* whether rounds are the slots of one slate: `rows`, `gains` and `costs` have those of the first */
    ptrdiff_t parameters; /* p: dim, or dim + 1 where a constant is appended; 0 without a model */
    ptrdiff_t rule;       /* one of `enum rule` */
    ptrdiff_t advances;   /* whether Z takes in the chosen rounds */
    ptrdiff_t disjoint;   /* in place: whether no column is other than 0 for two arms of a round */
    ptrdiff_t offered;    /* in place: arms so far */
    ptrdiff_t version, row; /* of the policy, and the row of the history that the first round gets */
    ptrdiff_t arm;        /* out: that of the last round */
    double epsilon;       /* of a mixture */
    double per_deviation, ridge, reward_spread;
    double log_det;       /* in place: that of the running Z */
    double unexplored, picked, least_known; /* in place: the sums of `ArmStats` */
    const double *center, *spread; /* (dim,); NULL where contexts stay as they come */
    const double *theta;           /* (p,) */
    const double *scoring;         /* W of the Z that bonuses come from, (p, p); NULL for the running one */
    double *factor, *matrix;       /* W and Z, (p, p), in place */
    const double *rows;            /* (the arms there are, dim) */
    struct rarely_dual_task *dual; /* NULL, or for one round of a policy of kernels, whose `parameters` are 1 */
    const double *gains, *costs;   /* (the arms there are,): a round's score is gain·mean + |gain|·bonus − cost; or NULL */
    const double *spends;          /* (the arms there are,) of one round with gains: what an arm takes of a ceiling; or NULL */
    const double *curve;           /* (2, points): rising prices of the ceiling, and what a round spends at each of them */
    ptrdiff_t points, rounds_left;
    double total, spent, price;    /* the ceiling; what was spent, in place; out: the price of the round */
    unsigned char *present;        /* (rounds, arms); NULL where all are; of a slate the first row, the others are out */
    const double *uniforms;        /* (rounds,); NULL where the most probable arm is chosen */
    const double *shares;          /* (rounds,): what a mixture gives each arm; NULL without one */
    const double *normal;          /* tables of the normal distribution, see gaussian_kernels.h */
    const ptrdiff_t *given;        /* (rounds,): the arms, where the rule is to choose these */
    double *work;                  /* scratch of 6·arms numbers, and of a slate (arms + 15)·(p + 5) more */
    double *scores;                /* out: (3, rounds, arms): means, bonuses, probabilities */
    double *log_dets;              /* (rounds,) */
    unsigned char *held_out;       /* (rounds,) */
    double *chosen;                /* the tables of the history, from row 0 on: contexts, (·, dim); */
    double *known;                 /* probability, mean and bonus of the chosen arm; */
    ptrdiff_t *numbers;            /* arm, version and 0 */
};

/* These return 0, or 1 where there was no memory; rarely_step one of `enum trouble`. */
RARELY_EXPORT int rarely_descend(struct rarely_training_task *task);
RARELY_EXPORT int rarely_curvature(struct rarely_training_task *task);
RARELY_EXPORT int rarely_cross(const struct rarely_cross_task *task);
RARELY_EXPORT int rarely_solve(const struct rarely_solve_task *task);
RARELY_EXPORT int rarely_step(struct rarely_step_task *task);
RARELY_EXPORT int rarely_kernel(const struct rarely_kernel_task *task);

/* Rewards of `count` contexts of `dim` numbers join a ridge estimate of at most 128 parameters; see regress in steps_kernels.h.
 * Returns whether the estimate is finite. */
RARELY_EXPORT int rarely_regress(ptrdiff_t order, ptrdiff_t dim, ptrdiff_t count, const double *rows,
                                 const double *rewards, double *block);

/* The probability of each of `count` Gaussians to be the highest; see gaussian.c. Returns 1 where there was no
 * memory, 2 where deviations cannot be compared: they are not finite, or nearly so. */
RARELY_EXPORT int rarely_highest(ptrdiff_t count, const double *means, const double *deviations, double tolerance,
                                 int lowest, const double *tables, double *out);

/* matrix, symmetric of this order, becomes its lower factor; returns 1 where it is not positive definite. */
RARELY_EXPORT int rarely_factor(ptrdiff_t order, double *matrix);
/* inverse, zeros of this order, becomes that of the lower triangle. */
RARELY_EXPORT void rarely_invert(ptrdiff_t order, const double *lower, double *inverse);

/* The instruction set in use; another one, for tests: returns 1 where this processor does not have it. */
RARELY_EXPORT const char *rarely_form(void);
RARELY_EXPORT int rarely_use_form(const char *name);
/* The checksum of the sources. */
RARELY_EXPORT unsigned rarely_sources(void);

#endif

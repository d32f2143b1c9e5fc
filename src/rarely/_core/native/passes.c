/* Full-gradient passes over a network without biases. Activations never leave the nearest caches.
 *
 *   h_l = relu(W_l h_{l−1}),   u = v · h_{L−1} + s c · x,   e = u − y,   loss = Σ e²/2 + λ‖θ − θ_0‖²/2
 *   q_{L−1} = e 1[h_{L−1} > 0],   q_{l−1} = 1[h_{l−1} > 0]·(W_lᵀ q_l), the first time with the gain, W_lᵀ(v∘q_l)
 *   G_l = Σ_i q_l h_{l−1}ᵀ,   ∂/∂W_{L−1} = v∘G + λ(W − W_0), below without v,   ∂/∂v_j = W_j·G_j + λ(v_j − v_0j)
 *
 * where W_L = [v, c], and without a skip path (s < 0) W_L = v.
 *
 * With one hidden layer the two products cost 2·2·n·m·d operations, and everything else is kept below that: the gain v
 * is applied to G and not to n rows, and ∂/∂v needs no sum of its own over rows, because Σ_i e_i h_ij = W_j·G_j.
 *
 * Where contexts have blocks, samples come in groups, and the first layer multiplies a group's own columns and the shared
 * ones alone: all others are 0 in it.
 *
 * A tile is ROWS rows by TILE vectors of units, so that its ROWS·TILE sums stay in registers; DEPTH is how many inputs
 * the gradient takes at once. Each thread passes over
 * its share of the rows and has a gradient of its own.
 */
#include "forms.h"
#include "rarely_native.h"

/* Strips of rows that go through a layer together: the weights and the gradient of a tile are then read from the
 * nearest cache, and the sums over units, for which the gradient has to wait, come less often. */
#define SPAN 4

/* Threads wait here many thousand times a second: they spin, and yield where another program has the core. */
typedef struct {
    atomic_int arrived, turn;
    int threads;
} barrier;

static void barrier_wait(barrier *at) {
    if (at->threads == 1) return;
    int turn = atomic_load(&at->turn);
    if (atomic_fetch_add(&at->arrived, 1) == at->threads - 1) {
        atomic_store(&at->arrived, 0);
        atomic_store(&at->turn, turn + 1);
        return;
    }
    for (int spins = 0; atomic_load_explicit(&at->turn, memory_order_acquire) == turn;)
        if (spins < 4000) spins++;
        else thread_yield();
}

/* Without groups all samples are one, and all columns are shared. */
static ptrdiff_t group_count(const struct rarely_training_task *task) { return task->groups ? task->groups : 1; }

static ptrdiff_t group_samples(const struct rarely_training_task *task, ptrdiff_t group) {
    return task->groups ? task->group_samples[group] : task->samples;
}

/* Strips of all groups, the last of each padded. */
static ptrdiff_t strip_count(const struct rarely_training_task *task, ptrdiff_t strip_rows) {
    ptrdiff_t count = 0;
    for (ptrdiff_t g = 0; g < group_count(task); g++) count += (group_samples(task, g) + strip_rows - 1) / strip_rows;
    return count;
}

/* Columns of all strips together. */
static ptrdiff_t strip_columns(const struct rarely_training_task *task, ptrdiff_t strip_rows) {
    ptrdiff_t count = 0;
    for (ptrdiff_t g = 0; g < group_count(task); g++)
        count += (group_samples(task, g) + strip_rows - 1) / strip_rows *
                 (task->groups ? task->shared + task->group_columns[g] : task->dim);
    return count;
}

/* A thread is worth its waiting from some hundred thousand products on; and since each one adds up every other one's
 * gradient, the more there are the more rows each must have. */
static int useful_threads(const struct rarely_training_task *task, ptrdiff_t inputs) {
    const ptrdiff_t most = (task->units * (inputs + task->samples * (task->hidden_layers - 1) * task->units)) >> 18;
    ptrdiff_t threads = task->threads < most ? task->threads : most;
    while (threads > 1 && threads * threads > task->samples) threads--;
    return threads < 1 ? 1 : (int)threads;
}

#ifdef __x86_64__
BEGIN_FORM(AVX512)
#define FORM avx512
#define VECTOR_BYTES 64
#define ROWS 8
#define TILE 2
#define DEPTH 4
#include "passes_form.h"
END_FORM
BEGIN_FORM(AVX2)
#define FORM avx2
#define VECTOR_BYTES 32
#define ROWS 4
#define TILE 2
#define DEPTH 2
#include "passes_form.h"
END_FORM
#endif

#define FORM base
#define VECTOR_BYTES 16
#ifdef __x86_64__
#define ROWS 4 /* 16 registers */
#define DEPTH 2
#else
#define ROWS 8 /* 32 registers */
#define DEPTH 4
#endif
#define TILE 2
#include "passes_form.h"

int rarely_descend(struct rarely_training_task *task) {
    return task->number_bytes == 4 ? CHOOSE(descend, f32)(task) : CHOOSE(descend, f64)(task);
}

int rarely_curvature(struct rarely_training_task *task) {
    return task->number_bytes == 4 ? CHOOSE(curvature, f32)(task) : CHOOSE(curvature, f64)(task);
}

/* Full-gradient passes over a network without biases, fused: activations never leave the nearest caches.
 *
 *   h_l = relu(W_l h_{l−1}),   u = v · h_{L−1} + s c · x,   e = u − y,   loss = Σ e²/2 + λ‖θ − θ_0‖²/2
 *   q_{L−1} = e 1[h_{L−1} > 0],   q_{l−1} = 1[h_{l−1} > 0]·(W_lᵀ q_l), the first time with the gain, W_lᵀ(v∘q_l)
 *   G_l = Σ_i q_l h_{l−1}ᵀ,   ∂/∂W_{L−1} = v∘G + λ(W − W_0), below without v,   ∂/∂v_j = W_j·G_j + λ(v_j − v_0j)
 *
 * where W_L = [v, c], and without a skip path (s < 0) W_L = v.
 *
 * With one hidden layer the two products cost 2·2·n·m·d operations, and everything else is kept below that: the gain v
 * is applied to G and not to n rows, and ∂/∂v needs no sum of its own over rows, for Σ_i e_i h_ij = W_j·G_j.
 *
 * Rows are taken ROWS at a time, units WIDE vectors at a time, so that ROWS·WIDE sums stay in registers. Each
 * thread sweeps its share of the rows into a gradient of its own.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "forms.h"

/* Threads meet here many thousand times a second: they spin, and yield if another program has the core. */
typedef struct { atomic_int arrived, turn; int of; } gate;

static void meet(gate *g) {
    if (g->of == 1) return;
    int turn = atomic_load(&g->turn);
    if (atomic_fetch_add(&g->arrived, 1) == g->of - 1) {
        atomic_store(&g->arrived, 0);
        atomic_store(&g->turn, turn + 1);
        return;
    }
    for (int spins = 0; atomic_load_explicit(&g->turn, memory_order_acquire) == turn;)
        if (spins < 4000) spins++;
        else sched_yield();
}

#define SPAN 4

/* Each processor's form of the passes, from one text: BYTES in a vector, ROWS and WIDE by its registers. */
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
#define TARGET v4
#define BYTES 64
#define ROWS 8
#define WIDE 2
#include "passes_each.h"
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define TARGET v3
#define BYTES 32
#define ROWS 4
#define WIDE 2
#include "passes_each.h"
#pragma GCC pop_options

#define FACE(precision, REAL) \
    double descend_##precision(long n, long hidden, long m, long d, const REAL *x, const REAL *y, REAL *const *initial, \
                               REAL *const *theta, REAL *const *ago, long taken, double skip, double ridge, double step, \
                               long steps, double hopeless, int threads) { \
        return BEST(descend, precision)(n, hidden, m, d, x, y, initial, theta, ago, taken, skip, ridge, step, steps, \
                                        hopeless, threads); \
    } \
    double curve_##precision(long n, long m, long d, const REAL *x, REAL *const *initial, REAL *const *vector, \
                             double skip, int threads) { \
        return BEST(curve, precision)(n, m, d, x, initial, vector, skip, threads); \
    }
FACE(f32, float)
FACE(f64, double)

/* Which form this processor has, 0 for none; and the checksum of the sources that this was built from. */
int form(void) { return HAS("x86-64-v4") ? 4 : HAS("x86-64-v3") ? 3 : 0; }
unsigned sources(void) { return SOURCES; }

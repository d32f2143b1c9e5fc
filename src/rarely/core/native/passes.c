/* Full-gradient passes over one hidden layer, fused: activations never leave the first cache.
 *
 *   u_i = v · relu(W x_i),   e_i = u_i − y_i,   loss = Σ e_i²/2 + λ‖θ − θ_0‖²/2
 *   G_j = Σ_i e_i 1[W_j·x_i > 0] x_i,   ∂/∂W_j = v_j G_j + λ(W_j − W_0j),   ∂/∂v_j = W_j·G_j + λ(v_j − v_0j)
 *
 * Two passes over the data cost 2·2·n·m·d operations, and everything else is kept below that: the gain v_j
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
    double descend_##precision(long n, long m, long d, const REAL *x, const REAL *y, const REAL *w0, const REAL *v0, \
                               REAL *w, REAL *v, double ridge, double step, long steps, double hopeless, int threads) { \
        return BEST(descend, precision)(n, m, d, x, y, w0, v0, w, v, ridge, step, steps, hopeless, threads); \
    } \
    double curve_##precision(long n, long m, long d, const REAL *x, const REAL *w0, const REAL *v0, REAL *w, REAL *v, \
                             int threads) { \
        return BEST(curve, precision)(n, m, d, x, w0, v0, w, v, threads); \
    }
FACE(f32, float)
FACE(f64, double)

/* Which form this processor has, 0 for none; and the checksum of the sources that this was built from. */
int form(void) { return HAS("x86-64-v4") ? 4 : HAS("x86-64-v3") ? 3 : 0; }
unsigned sources(void) { return SOURCES; }

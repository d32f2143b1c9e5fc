/* J steps of full-gradient descent for one hidden layer, fused: activations never leave the cache.
 *
 *   u_i = w2 · relu(W x_i),  e_i = u_i − y_i,  loss = Σ e_i²/2 + λ‖θ − θ_0‖²/2
 *   ∂/∂W  = Σ e_i (w2 ∘ 1[h_i > 0]) x_iᵀ + λ(W − W_0),   ∂/∂w2 = Σ e_i h_i + λ(w2 − w2_0)
 *
 * W is held as d×m (units contiguous), m padded to whole vectors with units that stay 0.
 */
#include <stdatomic.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 8
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

typedef struct { atomic_int arrived, turn; int of; } barrier;

static void meet(barrier *b) {
    int turn = atomic_load(&b->turn);
    if (atomic_fetch_add(&b->arrived, 1) == b->of - 1) {
        atomic_store(&b->arrived, 0);
        atomic_store(&b->turn, turn + 1);
    } else
        for (int spin = 0; atomic_load(&b->turn) == turn; spin++)
            if (spin > 2000) sched_yield();
}

#define REAL float
#define WHOLE int
#define LANES 16
#define NAME(x) CAT(x, _f32)
#include "pass_body.h"
#undef REAL
#undef WHOLE
#undef LANES
#undef NAME
#define REAL double
#define WHOLE long
#define LANES 8
#define NAME(x) CAT(x, _f64)
#include "pass_body.h"

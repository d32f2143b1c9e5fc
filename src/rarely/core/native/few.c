/* Few candidates against many past rounds: one read of the factors, one read of the triangle, and little else.
 *
 *   cross   k_ti = Σ_l (a_tl·b_il)(δ_tl·ε_il)    the inner products of past features with new ones
 *   solve   L⁻¹k by panels of PANEL rows: those left of the diagonal block, and the block's inverse
 *
 * Matrix products of this shape, thousands of rows by four columns, run far below the speed of memory. Here each
 * candidate is one of 8·width lanes, width 1 or 2; unused lanes are 0.
 */
#include <string.h>

#include "forms.h"

#define PRECISION f64
#define PANEL 128
#define WIDTHS 2

#if HAS_FORMS
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
#define TARGET v4
#define TALL 8
#include "few_body.h"
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define TARGET v3
#define TALL 4
#include "few_body.h"
#pragma GCC pop_options
#endif
#define TARGET any
#define TALL 2
#include "few_body.h"

/* `old` holds each layer's inputs and signals in turn, (past, widths); `fresh` the same as (widths, lanes). */
void cross(int width, long past, long layers, const long *widths, const double **old, const double **fresh, double *out) {
    BEST(cross, f64)(width, past, layers, widths, old, fresh, out);
}

/* y, (rows, lanes), is the solution up to `done`, whole panels, and from there the right side, which it replaces. */
void solve(int width, long done, long rows, const double **left, const double **inverse, double *y) {
    BEST(solve, f64)(width, done, rows, left, inverse, y);
}

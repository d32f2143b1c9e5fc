/* The kernels among which evidence chooses, between features: `model/kernels.py` in C, whose names these are.
 *
 * Features on the right are lanes, 16 at a time. Inner products of a chunk of rows with them lie in a buffer, and what is
 * made of each number runs over it. arccos is fdlibm's: a rational function of c², or of 1 − |c| beyond |c| = ½. */
#include <math.h>

#include "forms.h"
#include "rarely_native.h"

#define PRECISION f64
#define LANES 16
#define CHUNK 64     /* rows whose products stay in the first-level cache */
#define CLOSE 1e-4   /* see model/tangent_kernel.py */
#define PI 3.14159265358979323846

/* sin θ − θ cos θ. */
static double bend(double angle) {
    const double square = angle * angle;
    if (angle >= 0.1) return sin(angle) - angle * cos(angle);
    return angle * square * (1.0 / 3 - square * (1.0 / 30 - square * (1.0 / 840 - square / 45360)));
}

/* τ of two almost parallel or opposed unit vectors, by ‖a ∓ b‖² in place of their product c. */
static double close_tangent(double gap, double c) {
    const double angle = 2 * asin(sqrt(gap / 4)), bent = bend(angle) / PI;
    if (c < 0) return (gap / 2 - 1) * (angle / PI) + bent;
    return (1 - gap / 2) * (1 - angle / PI) + 1 - (gap / 2 - bent);
}

#ifdef __x86_64__
BEGIN_FORM(AVX512)
#define FORM avx512
#define VECTORS 2 /* of a tile */
#include "evidence_kernels.h"
END_FORM
BEGIN_FORM(AVX2)
#define FORM avx2
#define VECTORS 4
#include "evidence_kernels.h"
END_FORM
#endif

#define FORM base
#define VECTORS 8
#include "evidence_kernels.h"

int rarely_kernel(const struct rarely_kernel_task *task) { return CHOOSE(kernel, f64)(task); }

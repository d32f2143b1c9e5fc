/* Both precisions of one processor's form. */
#define PRECISION f32
#define REAL float
#define WHOLE int
#include "passes_body.h"
#undef PRECISION
#undef REAL
#undef WHOLE
#define PRECISION f64
#define REAL double
#define WHOLE long long
#include "passes_body.h"
#undef PRECISION
#undef REAL
#undef WHOLE
#undef TARGET
#undef BYTES
#undef ROWS
#undef WIDE

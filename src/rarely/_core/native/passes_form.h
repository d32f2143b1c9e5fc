/* Both precisions of one form. */
#define PRECISION f32
#define REAL float
#define NUMBER_BYTES 4
#define WHOLE int
#include "passes_kernels.h"
#undef PRECISION
#undef REAL
#undef NUMBER_BYTES
#undef WHOLE
#define PRECISION f64
#define REAL double
#define NUMBER_BYTES 8
#define WHOLE long long
#include "passes_kernels.h"
#undef PRECISION
#undef REAL
#undef NUMBER_BYTES
#undef WHOLE
#undef FORM
#undef VECTOR_BYTES
#undef ROWS
#undef TILE
#undef DEPTH

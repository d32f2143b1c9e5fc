/* Names that carry precision and processor, and the choice of the form that this processor has.
 *
 * v4 has vectors of 64 bytes and 32 registers (AVX-512), v3 of 32 bytes and 16 (AVX2). With less, NumPy's BLAS is
 * the faster one; and where this does not compile, the package does without it. */
#if !defined(__x86_64__) || !defined(__GNUC__) || defined(__clang__)
#error "made for GCC on x86-64"
#endif

#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define NAME(x) JOIN(x, PRECISION, TARGET)
#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

#define HAS(level) __builtin_cpu_supports(level)
#define BEST(x, precision) (HAS("x86-64-v4") ? JOIN(x, precision, v4) : JOIN(x, precision, v3))

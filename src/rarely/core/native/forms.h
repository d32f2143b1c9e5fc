/* Names that carry precision and processor, and the choice of the best form that this processor has. */
#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define NAME(x) JOIN(x, PRECISION, TARGET)
#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_FORMS 1
#define HAS(feature) __builtin_cpu_supports(feature)
#define HAS_V4 (HAS("avx512f") && HAS("avx512bw") && HAS("avx512cd") && HAS("avx512dq") && HAS("avx512vl"))
#define HAS_V3 (HAS("avx2") && HAS("fma") && HAS("bmi") && HAS("bmi2"))
#define BEST(x, precision) \
    (HAS_V4 ? JOIN(x, precision, v4) : HAS_V3 ? JOIN(x, precision, v3) : JOIN(x, precision, any))
#else
#define HAS_FORMS 0
#define BEST(x, precision) JOIN(x, precision, any)
#endif

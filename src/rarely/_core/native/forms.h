/* One text is compiled once for each instruction set ("form"); the best one of the processor is chosen at run time.
 *
 *   base     vectors of 16 bytes: SSE2 on x86-64, NEON on aarch64; every processor of the architecture has it
 *   avx2     32 bytes, 16 registers
 *   avx512   64 bytes, 32 registers
 */
#ifndef RARELY_FORMS_H
#define RARELY_FORMS_H
#include "portable.h"

/* Lists of features and not "arch=x86-64-v4": for that Clang halves the vectors, and some Clangs ignore it silently. */
#define AVX2 "avx2,fma,bmi,bmi2"
#define AVX512 "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi,bmi2"

enum form { FORM_BASE, FORM_AVX2, FORM_AVX512 };

/* The form in use. */
enum form current_form(void);

#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
/* A name of this precision and form. */
#define NAME(x) JOIN(x, PRECISION, FORM)

/* The function of the form in use. */
#ifdef __x86_64__
#define CHOOSE(x, precision) \
    (current_form() == FORM_AVX512 ? JOIN(x, precision, avx512) \
     : current_form() == FORM_AVX2 ? JOIN(x, precision, avx2) \
                                   : JOIN(x, precision, base))
#else
#define CHOOSE(x, precision) JOIN(x, precision, base)
#endif

#endif

/* Which instruction set this processor has, and which one is in use. */
#include "forms.h"

#include "rarely_native.h"

#ifdef __x86_64__
#include <cpuid.h>
static const char *const NAMES[] = {"sse2", "avx2", "avx512"};

/* Bits of the processor's answers: what it has, and what the system saves when it switches between programs. */
#define CPUID_1_FMA_OSXSAVE_AVX 0x18001000u
#define CPUID_7_BMI_AVX2_BMI2 0x128u
#define CPUID_7_AVX512_F_DQ_CD_BW_VL 0xd0030000u
#define XCR0_AVX 0x6u
#define XCR0_AVX512 0xe6u

/* By hand, because __builtin_cpu_supports needs a part of the compiler's own library that zig does not have. */
static enum form best_form(void) {
    unsigned eax, ebx, ecx, edx, saved, high;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return FORM_BASE;
    if ((ecx & CPUID_1_FMA_OSXSAVE_AVX) != CPUID_1_FMA_OSXSAVE_AVX) return FORM_BASE;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return FORM_BASE;
    if ((ebx & CPUID_7_BMI_AVX2_BMI2) != CPUID_7_BMI_AVX2_BMI2) return FORM_BASE;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if ((saved & XCR0_AVX) != XCR0_AVX) return FORM_BASE;
    if ((ebx & CPUID_7_AVX512_F_DQ_CD_BW_VL) != CPUID_7_AVX512_F_DQ_CD_BW_VL) return FORM_AVX2;
    return (saved & XCR0_AVX512) == XCR0_AVX512 ? FORM_AVX512 : FORM_AVX2;
}
#else
static const char *const NAMES[] = {"neon"};
static enum form best_form(void) { return FORM_BASE; }
#endif

/* The form in use plus 1; 0 before the first question, since asking the processor takes long on a virtual machine. */
static atomic_int chosen;

enum form current_form(void) {
    int known = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!known) atomic_store_explicit(&chosen, known = (int)best_form() + 1, memory_order_relaxed);
    return (enum form)(known - 1);
}

const char *rarely_form(void) { return NAMES[current_form()]; }

int rarely_use_form(const char *name) {
    for (int form = 0; form <= (int)best_form(); form++)
        if (!strcmp(name, NAMES[form])) {
            atomic_store(&chosen, form + 1);
            return 0;
        }
    return 1;
}

unsigned rarely_sources(void) { return RARELY_SOURCES; }

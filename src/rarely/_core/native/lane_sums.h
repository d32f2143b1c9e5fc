/* Sums over the lanes of vectors; REAL, LANES, vec and mask are those of the file that includes this. */
#if LANES == 16
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif LANES == 8
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#elif LANES == 4
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#else
#define EVEN 0, 2
#define ODD 1, 3
#endif

INLINE vec NAME(pair_sums)(vec p, vec q) { return SHUFFLE(p, q, EVEN) + SHUFFLE(p, q, ODD); }

/* The sum over the lanes of each of `count` vectors, a power of 2 up to 16, all at once: vector by vector they would be
 * a tenth of a pass, and a third of short inner products. */
INLINE void NAME(lane_sums)(const int count, const vec *vectors, REAL *restrict sums) {
    vec t[16];
    UNROLL for (int i = 0; i < count; i++) t[i] = vectors[i];
#define HALVE(now) \
    do { \
        UNROLL for (int i = 0; i < (now) / 2; i++) t[i] = NAME(pair_sums)(t[2 * i], t[2 * i + 1]); \
        if ((now) < 2) t[0] = NAME(pair_sums)(t[0], t[0]); \
    } while (0)
    HALVE(count);
    if (LANES > 2) HALVE(count / 2);
    if (LANES > 4) HALVE(count / 4);
    if (LANES > 8) HALVE(count / 8);
#undef HALVE
    memcpy(sums, t, count * sizeof *sums);
}

INLINE REAL NAME(lane_sum)(vec u) {
    REAL sum;
    NAME(lane_sums)(1, &u, &sum);
    return sum;
}

#undef EVEN
#undef ODD

/* Vectors of float32 and rows of bfloat16, for the sources here. */
#ifndef VECTORS_H
#define VECTORS_H
#include <stdint.h>
#include <string.h>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#define LANES 16
#define INLINE static inline __attribute__((always_inline))

typedef uint16_t bf16;
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t veci __attribute__((vector_size(4 * LANES)));
typedef uint32_t vecu __attribute__((vector_size(4 * LANES)));
typedef uint16_t half __attribute__((vector_size(2 * LANES)));

INLINE vec load(const float *p) { vec v; memcpy(&v, p, sizeof v); return v; }
INLINE void store(float *p, vec v) { memcpy(p, &v, sizeof v); }
INLINE vec widen(const bf16 *p) {
    half h;
    memcpy(&h, p, sizeof h);
    return (vec)(__builtin_convertvector(h, vecu) << 16);
}
INLINE float wide(bf16 x) {
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
/* To the nearest, ties to even; not-a-number stays one. */
INLINE void narrow(bf16 *p, vec v) {
    vecu u = (vecu)v, is_nan = (vecu)(v != v);
    u = (u + 0x7fff + ((u >> 16) & 1)) | (is_nan & 0x7fc00000);
    half h = __builtin_convertvector(u >> 16, half);
    memcpy(p, &h, sizeof h);
}
INLINE bf16 nearest(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return x != x ? 0x7fc0 : (u + 0x7fff + ((u >> 16) & 1)) >> 16;
}
INLINE vec all(float x) { return x - (vec){0}; }
INLINE float sum(vec v) {
    typedef float v8 __attribute__((vector_size(32)));
    typedef float v4 __attribute__((vector_size(16)));
    v8 a, b;
    memcpy(&a, &v, 32);
    memcpy(&b, (char *)&v + 32, 32);
    a += b;
    v4 c, d;
    memcpy(&c, &a, 16);
    memcpy(&d, (char *)&a + 16, 16);
    c += d;
    return (c[0] + c[2]) + (c[1] + c[3]);
}
/* The sums of LANES vectors. Pairs of them are folded into one, whose lanes with the bit WIDTH are
 * the second one's, until one vector is left. */
INLINE vec sum_each(vec *v) {
#define LOW(i, w) ((i & ~w) | (i & w ? LANES : 0))
#define LOWS(b, w) LOW((b), w), LOW((b + 1), w), LOW((b + 2), w), LOW((b + 3), w)
#define FOLD(w)                                                                            \
    do {                                                                                   \
        const veci low = {LOWS(0, w), LOWS(4, w), LOWS(8, w), LOWS(12, w)}, high = low | w; \
        for (int i = 0; i < w; i++)                                                        \
            v[i] = __builtin_shuffle(v[i], v[i + w], low) +                                \
                   __builtin_shuffle(v[i], v[i + w], high);                                \
    } while (0)
    FOLD(8);
    FOLD(4);
    FOLD(2);
    FOLD(1);
    return v[0];
#undef FOLD
#undef LOWS
#undef LOW
}
/* Rows and columns of 16 by 16 numbers change places: quarter by quarter, at every size. */
INLINE void transpose(veci *v) {
#define LOW(i, w) (i & w ? LANES + (i & ~w) : i)
#define HIGH(i, w) (i & w ? LANES + i : i | w)
#define ALL(f, w)                                                                             \
    {f(0, w), f(1, w), f(2, w),  f(3, w),  f(4, w),  f(5, w),  f(6, w),  f(7, w),             \
     f(8, w), f(9, w), f(10, w), f(11, w), f(12, w), f(13, w), f(14, w), f(15, w)}
#define SWAP(w)                                                   \
    do {                                                          \
        const veci low = ALL(LOW, w), high = ALL(HIGH, w);        \
        for (int i = 0; i < LANES; i++)                           \
            if (!(i & w)) {                                       \
                veci a = v[i], b = v[i + w];                      \
                v[i] = __builtin_shuffle(a, b, low);              \
                v[i + w] = __builtin_shuffle(a, b, high);         \
            }                                                     \
    } while (0)
    SWAP(8);
    SWAP(4);
    SWAP(2);
    SWAP(1);
#undef SWAP
#undef ALL
#undef HIGH
#undef LOW
}
/* e^x, within 2 units in the last place; 0 below -80, so that nothing is denormal, which is slow. */
INLINE vec exponential(vec x) {
    veci low = x < -80.0f, high = x > 88.0f;
    x = (vec)((veci)x & ~low);
    x = (vec)(((veci)x & ~high) | ((veci)all(88.0f) & high));
    vec n = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to a whole number */
    veci power = (veci)n - 0x4b400000;
    n -= 12582912.0f;
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return (vec)((veci)(p * (vec)((power + 127) << 23)) & ~low);
}

/* Adds to each lane the products of one pair of numbers of a and b. */
INLINE vec add_products(vec sums, const bf16 *a, const bf16 *b) {
#ifdef __AVX512BF16__
    return (vec)_mm512_dpbf16_ps((__m512)sums, (__m512bh)_mm512_loadu_si512(a),
                                 (__m512bh)_mm512_loadu_si512(b));
#else
    vecu u, v;
    memcpy(&u, a, sizeof u);
    memcpy(&v, b, sizeof v);
    return sums + (vec)(u << 16) * (vec)(v << 16) +
           (vec)(u & 0xffff0000) * (vec)(v & 0xffff0000);
#endif
}
#endif

/* What lies between two products of a transformer layer, for rows of bfloat16 on a CPU.
 *
 * A layer is four products of all rows (qkv, o, gate_up, down); after each comes one function of
 * this file, which takes every row through everything that follows until the next product, in one
 * parallel region. All numbers in between are float32.
 *
 * Rows are gathered into units of at most ROWS rows that use the same adapter. An adapter is read
 * once a unit, as it lies: A (pieces * rank, in), then B (rank / 2, out, 2) of each piece, scale
 * included: two ranks side by side, because the processor multiplies bfloat16 in pairs.
 *
 * Sizes (in, out, head dim) are multiples of 2 LANES, ranks of RANKS; the caller sees to it. Knows
 * nothing of Python; errors cannot occur.
 */
#include <omp.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#define LANES 16
#define ROWS 4
#define RANKS 8       /* of B that are read side by side, or twice as many */
#define SPAN 64       /* keys whose scores are kept at a time */
#define MAX_GROUP 16  /* query heads of a key head */
#define MAX_DIM 256   /* of a head */
#define MAX_PIECES 3
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

/* Whose rows are whose: made once for each composition of the batch. */
typedef struct {
    int64_t num_units;
    const int32_t *rows;    /* of all units, one after the other */
    const int32_t *starts;  /* num_units + 1 places in `rows` */
    const int32_t *ranks;   /* of each unit's adapter; 0: it has none */
    const bf16 *const *weights; /* of each unit's adapter: where its first number lies */
    const int32_t *layouts; /* of each unit: which line of `offsets` */
} Units;

/* One fused projection of one layer. */
typedef struct {
    int64_t num_in, num_out;
    int64_t num_pieces;
    int64_t columns[MAX_PIECES + 1]; /* where the pieces begin and end in the output */
    const int64_t *offsets; /* by layout: (1 + MAX_PIECES) of A and each B; -1: not adapted */
    int64_t offsets_stride; /* from one layout's to the next's */
} Target;

/* low (ranks, n) = A x^T, for the rows of x that are named. */
INLINE void shrink(int n, const bf16 *x, const int32_t *rows, int64_t in, const bf16 *a, int ranks,
                   int64_t ahead, float *low) {
    const int side = n <= 2 ? 8 : 4; /* ranks side by side: up to LANES sums at a time */
    for (int r = 0; r < ranks; r += side, a += side * in) {
        vec acc[LANES];
        for (int j = 0; j < LANES; j++) acc[j] = (vec){0};
        for (int64_t c = 0; c < in; c += 2 * LANES)
            for (int k = 0; k < side; k++) {
                __builtin_prefetch(a + k * in + c + ahead);
                for (int i = 0; i < n; i++)
                    acc[k * n + i] =
                        add_products(acc[k * n + i], a + k * in + c, x + rows[i] * in + c);
            }
        store(low + r * n, sum_each(acc));
    }
}

/* y += low B, `side` ranks at a time; y is (n, stride), B is (ranks / 2, out, 2). */
INLINE void expand(int n, int side, float *y, int64_t stride, int64_t out, const bf16 *b,
                   int ranks, int64_t ahead, const float *low) {
    for (int r = 0; r < ranks; r += side, b += side * out) {
        bf16 pairs[RANKS][ROWS][2 * LANES];
        for (int k = 0; k < side / 2; k++)
            for (int i = 0; i < n; i++) {
                const float *first = low + (r + 2 * k) * n + i;
                vecu both = (vecu){0} + (nearest(first[0]) | (uint32_t)nearest(first[n]) << 16);
                memcpy(pairs[k][i], &both, sizeof both);
            }
        for (int64_t c = 0; c < out; c += LANES) {
            vec sums[ROWS];
            for (int i = 0; i < n; i++) sums[i] = load(y + i * stride + c);
            for (int k = 0; k < side / 2; k++) {
                __builtin_prefetch(b + 2 * k * out + 2 * c + ahead);
                for (int i = 0; i < n; i++)
                    sums[i] = add_products(sums[i], b + 2 * k * out + 2 * c, pairs[k][i]);
            }
            for (int i = 0; i < n; i++) store(y + i * stride + c, sums[i]);
        }
    }
}

INLINE void adapt(int n, const Units *units, int64_t unit, const Target *target,
                  const int32_t *rows, const bf16 *x, float *y) {
    int rank = units->ranks[unit];
    const int64_t *offsets = target->offsets + units->layouts[unit] * target->offsets_stride;
    if (!rank || offsets[0] < 0) return;
    const bf16 *weights = units->weights[unit];
    /* While this adapter is read, that of the unit which this thread will most likely take next is
     * fetched: the same numbers of it, for most have the same layout; an address that is nobody's
     * does no harm. */
    int64_t next = unit + omp_get_num_threads();
    int64_t ahead = next < units->num_units ? units->weights[next] - weights : 0;
    float low[MAX_PIECES * rank * ROWS + LANES];
    shrink(n, x, rows, target->num_in, weights + offsets[0], rank * (int)target->num_pieces, ahead,
           low);
    for (int p = 0; p < target->num_pieces; p++) {
        int64_t first = target->columns[p], width = target->columns[p + 1] - first;
        const bf16 *b = weights + offsets[1 + p];
        if (rank % (2 * RANKS))
            expand(n, RANKS, y + first, target->num_out, width, b, rank, ahead, low + p * rank * n);
        else
            expand(n, 2 * RANKS, y + first, target->num_out, width, b, rank, ahead,
                   low + p * rank * n);
    }
}

/* The product's rows with their adapters', in float32: (n, num_out). */
static void finish_product(const Units *units, int64_t unit, const Target *target, const bf16 *x,
                           const bf16 *product, float *y) {
    const int32_t *rows = units->rows + units->starts[unit];
    int n = units->starts[unit + 1] - units->starts[unit];
    int64_t out = target->num_out;
    for (int i = 0; i < n; i++)
        for (int64_t c = 0; c < out; c += LANES)
            store(y + i * out + c, widen(product + rows[i] * out + c));
    switch (n) {
    case 1: adapt(1, units, unit, target, rows, x, y); break;
    case 2: adapt(2, units, unit, target, rows, x, y); break;
    case 3: adapt(3, units, unit, target, rows, x, y); break;
    default: adapt(4, units, unit, target, rows, x, y);
    }
}

/* What a root mean square norm multiplies by, but for its weights. */
INLINE float scale_of(const float *x, int64_t size, float epsilon) {
    vec squares = {0};
    for (int64_t c = 0; c < size; c += LANES) squares += load(x + c) * load(x + c);
    return 1.0f / __builtin_sqrtf(sum(squares) / (float)size + epsilon);
}

/* residual (N, H) float32 += product with adapters; out = its norm. x: the product's input. */
void after_residual(const Units *units, const Target *target, const bf16 *x, const bf16 *product,
                    float *residual, const float *norm, float epsilon, bf16 *out) {
    int64_t size = target->num_out;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t unit = 0; unit < units->num_units; unit++) {
        float y[ROWS * size];
        finish_product(units, unit, target, x, product, y);
        for (int32_t i = units->starts[unit]; i < units->starts[unit + 1]; i++) {
            int64_t row = units->rows[i];
            float *sums = residual + row * size;
            const float *added = y + (i - units->starts[unit]) * size;
            for (int64_t c = 0; c < size; c += LANES)
                store(sums + c, load(sums + c) + load(added + c));
            vec scale = all(scale_of(sums, size, epsilon));
            for (int64_t c = 0; c < size; c += LANES)
                narrow(out + row * size + c, load(sums + c) * scale * load(norm + c));
        }
    }
}

/* residual = the rows' embeddings; out = their norm. */
void embed(int64_t num_rows, const int64_t *ids, const bf16 *table, int64_t size, float *residual,
           const float *norm, float epsilon, bf16 *out) {
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < num_rows; row++) {
        float *sums = residual + row * size;
        for (int64_t c = 0; c < size; c += LANES) store(sums + c, widen(table + ids[row] * size + c));
        vec scale = all(scale_of(sums, size, epsilon));
        for (int64_t c = 0; c < size; c += LANES)
            narrow(out + row * size + c, load(sums + c) * scale * load(norm + c));
    }
}

/* out (N, I) = silu(gate) * up, of a product (N, 2 I) with its adapters. */
void after_gate_up(const Units *units, const Target *target, const bf16 *x, const bf16 *product,
                   bf16 *out) {
    int64_t both = target->num_out, size = both / 2;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t unit = 0; unit < units->num_units; unit++) {
        float y[ROWS * both];
        finish_product(units, unit, target, x, product, y);
        for (int32_t i = units->starts[unit]; i < units->starts[unit + 1]; i++) {
            const float *gate = y + (i - units->starts[unit]) * both, *up = gate + size;
            for (int64_t c = 0; c < size; c += LANES) {
                vec g = load(gate + c);
                narrow(out + units->rows[i] * size + c,
                       g / (1.0f + exponential(-g)) * load(up + c));
            }
        }
    }
}

/* What attention needs to know of the model and of the rows. */
typedef struct {
    int64_t num_heads, num_kv_heads, head_dim;
    const float *cos, *sin;           /* (positions, head dim) */
    const float *q_norm, *k_norm;     /* (head dim), or null */
    float epsilon, scale;             /* of those norms; of the scores */
    int64_t num_attending;            /* rows whose attention is computed here */
    const int32_t *attending;
    const int64_t *positions;         /* of each row in its sequence */
    const int64_t *firsts;            /* of each row: its sequence's first vector in the arena */
    const int64_t *lengths;           /* of each row: tokens its sequence has room for there */
} Attending;

INLINE void rotate(float *head, int64_t dim, const float *cos, const float *sin) {
    int64_t half_dim = dim / 2;
    for (int64_t c = 0; c < half_dim; c += LANES) {
        vec a = load(head + c), b = load(head + half_dim + c);
        store(head + c, a * load(cos + c) - b * load(sin + c));
        store(head + half_dim + c, b * load(cos + half_dim + c) + a * load(sin + half_dim + c));
    }
}

INLINE void norm_head(float *head, int64_t dim, const float *weight, float epsilon) {
    vec scale = all(scale_of(head, dim, epsilon));
    for (int64_t c = 0; c < dim; c += LANES) store(head + c, load(head + c) * scale * load(weight + c));
}

/* One key head's queries of one row, against `span` keys, each of which its value follows; block by
 * block, as in flash attention. */
INLINE void attend_group(int group, int dim, const bf16 *q, float scale, const bf16 *keys,
                         int64_t span, bf16 *out) {
    /* vectors of a head that are summed side by side, as registers allow */
    const int side = group > 8 ? 1 : group > 4 || dim % (4 * LANES) ? 2 : 4;
    float sums[MAX_GROUP * MAX_DIM], scores[MAX_GROUP][SPAN], peaks[MAX_GROUP], totals[MAX_GROUP];
    for (int64_t start = 0; start < span; start += SPAN) {
        int count = span - start < SPAN ? (int)(span - start) : SPAN;
        const bf16 *k = keys + start * 2 * dim, *v = k + dim;
        for (int t = 0; t < count; t += LANES) {
            vec parts[MAX_GROUP][LANES];
            for (int i = 0; i < LANES; i++) {
                const bf16 *key = k + (t + i < count ? t + i : t) * 2 * dim;
                __builtin_prefetch(v + (t + i) * 2 * dim);
                if (dim > 32) __builtin_prefetch(v + (t + i) * 2 * dim + 32);
                for (int g = 0; g < group; g++) {
                    vec acc = {0};
                    for (int c = 0; c < dim; c += 2 * LANES)
                        acc = add_products(acc, q + g * dim + c, key + c);
                    parts[g][i] = acc;
                }
            }
            for (int g = 0; g < group; g++) store(scores[g] + t, sum_each(parts[g]) * scale);
        }
        for (int g = 0; g < group; g++) {
            for (int t = count; t % LANES; t++) scores[g][t] = -__builtin_inff();
            float peak = start ? peaks[g] : scores[g][0];
            for (int t = 0; t < count; t++) peak = scores[g][t] > peak ? scores[g][t] : peak;
            vec total = {0};
            for (int t = 0; t < count; t += LANES) {
                vec e = exponential(load(scores[g] + t) - peak);
                store(scores[g] + t, e);
                total += e;
            }
            float fade = start ? exponential(all(peaks[g] - peak))[0] : 0;
            totals[g] = sum(total) + (start ? totals[g] * fade : 0);
            peaks[g] = peak;
            for (int c = 0; c < dim; c += LANES)
                store(sums + g * dim + c, start ? load(sums + g * dim + c) * fade : (vec){0});
        }
        for (int c = 0; c < dim; c += side * LANES) {
            vec acc[MAX_GROUP][4];
            for (int g = 0; g < group; g++)
                for (int j = 0; j < side; j++) acc[g][j] = load(sums + g * dim + c + j * LANES);
            for (int t = 0; t < count; t++) {
                __builtin_prefetch(k + (SPAN + t) * 2 * dim + c);
                if (side == 4) __builtin_prefetch(k + (SPAN + t) * 2 * dim + c + 32);
                for (int j = 0; j < side; j++) {
                    vec w = widen(v + t * 2 * dim + c + j * LANES);
                    for (int g = 0; g < group; g++) acc[g][j] += w * scores[g][t];
                }
            }
            for (int g = 0; g < group; g++)
                for (int j = 0; j < side; j++) store(sums + g * dim + c + j * LANES, acc[g][j]);
        }
    }
    for (int g = 0; g < group; g++)
        for (int c = 0; c < dim; c += LANES)
            narrow(out + g * dim + c, load(sums + g * dim + c) * (1.0f / totals[g]));
}

static void attend_any(int group, int dim, const bf16 *q, float scale, const bf16 *keys,
                       int64_t span, bf16 *out) {
#define CASE(G, D) if (group == G && dim == D) { attend_group(G, D, q, scale, keys, span, out); return; }
    CASE(1, 64) CASE(2, 64) CASE(3, 64) CASE(4, 64) CASE(7, 64) CASE(8, 64)
    CASE(1, 128) CASE(2, 128) CASE(3, 128) CASE(4, 128) CASE(5, 128) CASE(7, 128) CASE(8, 128)
#undef CASE
    attend_group(group, dim, q, scale, keys, span, out);
}

/* Queries and keys normed (Qwen3) and rotated, keys and values written to the arena (vectors of
 * this layer), then attention of the rows that are named. product (N, heads + 2 kv heads, D) gets
 * the rotated queries back; out (N, heads * D) the attention of those rows. */
void after_qkv(const Units *units, const Target *target, const bf16 *x, bf16 *product,
               const Attending *a, bf16 *vectors, bf16 *out) {
    int64_t size = target->num_out, dim = a->head_dim;
    int64_t heads = a->num_heads, kv_heads = a->num_kv_heads, group = heads / kv_heads;
#pragma omp parallel
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t unit = 0; unit < units->num_units; unit++) {
            float y[ROWS * size];
            finish_product(units, unit, target, x, product, y);
            for (int32_t i = units->starts[unit]; i < units->starts[unit + 1]; i++) {
                int64_t row = units->rows[i], position = a->positions[row];
                float *head = y + (i - units->starts[unit]) * size;
                const float *cos = a->cos + position * dim, *sin = a->sin + position * dim;
                for (int64_t h = 0; h < heads + 2 * kv_heads; h++, head += dim) {
                    const float *norm = h < heads ? a->q_norm : h < heads + kv_heads ? a->k_norm : 0;
                    if (norm) norm_head(head, dim, norm, a->epsilon);
                    if (h < heads + kv_heads) rotate(head, dim, cos, sin);
                    int64_t is_value = h >= heads + kv_heads;
                    int64_t kv_head = h - heads - is_value * kv_heads;
                    int64_t vector = a->firsts[row] + is_value +
                                     2 * (kv_head * a->lengths[row] + position);
                    bf16 *to = h < heads ? product + row * size + h * dim : vectors + vector * dim;
                    for (int64_t c = 0; c < dim; c += LANES) narrow(to + c, load(head + c));
                }
            }
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < a->num_attending; i++) {
            int64_t row = a->attending[i], length = a->lengths[row];
            for (int64_t h = 0; h < kv_heads; h++) {
                const bf16 *keys = vectors + (a->firsts[row] + 2 * h * length) * dim;
                attend_any((int)group, (int)dim, product + row * size + h * group * dim, a->scale,
                           keys, a->positions[row] + 1, out + row * heads * dim + h * group * dim);
            }
        }
    }
}

/* Of each row of logits: the greatest (peaks), and the sums of exp((logit - peak) / heat) over each
 * chunk of its columns (masses; num_chunks of them, the last one may be shorter). */
void chunk_masses(int64_t num_rows, int64_t num_columns, int64_t chunk, const bf16 *logits,
                  const float *heats, float *masses, float *peaks) {
    int64_t num_chunks = (num_columns + chunk - 1) / chunk;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t row = 0; row < num_rows; row++) {
        const bf16 *x = logits + row * num_columns;
        vec top = all(-__builtin_inff());
        float peak = -__builtin_inff();
        int64_t c = 0;
        for (; c + LANES <= num_columns; c += LANES) {
            vec v = widen(x + c);
            veci keep = v <= top; /* false for what is not a number: it becomes the peak */
            top = (vec)(((veci)top & keep) | ((veci)v & ~keep));
        }
        for (int i = 0; i < LANES; i++) peak = top[i] <= peak ? peak : top[i];
        for (; c < num_columns; c++) {
            float v = wide(x[c]);
            peak = v <= peak ? peak : v;
        }
        float rate = 1.0f / heats[row];
        if (rate > 3e38f) rate = 3e38f; /* 0 times infinity would be no number */
        for (int64_t i = 0; i < num_chunks; i++) {
            int64_t start = i * chunk, stop = start + chunk < num_columns ? start + chunk : num_columns;
            vec total = {0};
            for (c = start; c + LANES <= stop; c += LANES)
                total += exponential((widen(x + c) - peak) * rate);
            float mass = sum(total);
            for (; c < stop; c++) mass += exponential(all((wide(x[c]) - peak) * rate))[0];
            masses[row * num_chunks + i] = mass;
        }
        peaks[row] = peak;
    }
}

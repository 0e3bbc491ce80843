/* What lies between two products of a transformer layer, for rows of bfloat16 on a CPU.
 *
 * A layer is four products of all rows (qkv, o, gate_up, down); after each comes one function of
 * this file, which takes every row through everything that follows until the next product, in one
 * parallel region. All numbers in between are float32. Adapters were applied beside the product
 * (products.c), or are here.
 *
 * Sizes (in, out, head dim) are multiples of 2 LANES, ranks of RANKS; the caller sees to it. Knows
 * nothing of Python; errors cannot occur.
 */
#include <omp.h>

#include "adapters.h"

#define SPAN 64       /* keys whose scores are kept at a time */
#define MAX_GROUP 16  /* query heads of a key head */
#define MAX_DIM 256   /* of a head */

/* The product's rows with their adapters', in float32: (n, num_out). If there are deltas, which
 * lie in the order of the units, the product is in float32; else it is in bfloat16, and the adapters
 * are applied here. */
static void finish_product(const Units *units, int64_t unit, const Target *target, const bf16 *x,
                           const void *product, const float *deltas, float *y) {
    const int32_t *rows = units->rows + units->starts[unit];
    int n = units->starts[unit + 1] - units->starts[unit];
    int64_t out = target->num_out;
    if (deltas) {
        deltas += units->starts[unit] * out;
        int has_deltas = is_adapted(units, unit, target);
        for (int i = 0; i < n; i++, deltas += out, y += out) {
            const float *sums = (const float *)product + rows[i] * out;
            for (int64_t c = 0; c < out; c += LANES)
                store(y + c, has_deltas ? load(sums + c) + load(deltas + c) : load(sums + c));
        }
        return;
    }
    for (int i = 0; i < n; i++)
        for (int64_t c = 0; c < out; c += LANES)
            store(y + i * out + c, widen((const bf16 *)product + rows[i] * out + c));
    /* While this adapter is read, that of the unit which this thread will most likely take next is
     * fetched: the same numbers of it, for most have the same layout; an address that is nobody's
     * does no harm. */
    int64_t next = unit + omp_get_num_threads();
    int64_t ahead = next < units->num_units ? units->weights[next] - units->weights[unit] : 0;
    adapt(units, unit, target, x, ahead, 0, y);
}

/* What a root mean square norm multiplies by, but for its weights. */
INLINE float scale_of(const float *x, int64_t size, float epsilon) {
    vec squares = {0};
    for (int64_t c = 0; c < size; c += LANES) squares += load(x + c) * load(x + c);
    return 1.0f / __builtin_sqrtf(sum(squares) / (float)size + epsilon);
}

/* residual (N, H) float32 += product with adapters; out = its norm. x: the product's input. */
void after_residual(const Units *units, const Target *target, const bf16 *x, const void *product,
                    const float *deltas, float *residual, const float *norm, float epsilon,
                    bf16 *out) {
    int64_t size = target->num_out;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t unit = 0; unit < units->num_units; unit++) {
        float y[ROWS * size];
        finish_product(units, unit, target, x, product, deltas, y);
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
void after_gate_up(const Units *units, const Target *target, const bf16 *x, const void *product,
                   const float *deltas, bf16 *out) {
    int64_t both = target->num_out, size = both / 2;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t unit = 0; unit < units->num_units; unit++) {
        float y[ROWS * both];
        finish_product(units, unit, target, x, product, deltas, y);
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
 * this layer), then attention of the rows that are named. product: (N, heads + 2 kv heads, D); out
 * (N, heads * D) gets the attention of those rows, and the others' rotated queries. */
void after_qkv(const Units *units, const Target *target, const bf16 *x, const void *product,
               const float *deltas, const Attending *a, bf16 *vectors, bf16 *out) {
    int64_t size = target->num_out, dim = a->head_dim;
    int64_t heads = a->num_heads, kv_heads = a->num_kv_heads, group = heads / kv_heads;
#pragma omp parallel
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t unit = 0; unit < units->num_units; unit++) {
            float y[ROWS * size];
            finish_product(units, unit, target, x, product, deltas, y);
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
                    bf16 *to = h < heads ? out + (row * heads + h) * dim : vectors + vector * dim;
                    for (int64_t c = 0; c < dim; c += LANES) narrow(to + c, load(head + c));
                }
            }
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < a->num_attending; i++) {
            int64_t row = a->attending[i], length = a->lengths[row];
            for (int64_t h = 0; h < kv_heads; h++) {
                const bf16 *keys = vectors + (a->firsts[row] + 2 * h * length) * dim;
                bf16 *heads_of_key = out + (row * heads + h * group) * dim; /* queries, then results */
                attend_any((int)group, (int)dim, heads_of_key, a->scale, keys,
                           a->positions[row] + 1, heads_of_key);
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

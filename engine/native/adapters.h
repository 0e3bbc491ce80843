/* What adapters add to a product of rows of bfloat16.
 *
 * Rows are gathered into units of at most ROWS rows that use the same adapter. An adapter is read
 * once a unit, as it lies: A (pieces * rank, in), then B (rank / 2, out, 2) of each piece, scale
 * included: two ranks side by side, because the processor multiplies bfloat16 in pairs. All
 * matrices of one fused projection of one layer lie one after the other.
 */
#ifndef ADAPTERS_H
#define ADAPTERS_H
#include "vectors.h"

#define ROWS 4
#define RANKS 8 /* of B that are read side by side, or twice as many */
#define MAX_PIECES 3

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

/* low (ranks, n) = A x^T, for the rows of x that are named. ahead: here and below, numbers from
 * this adapter to another one that is to be fetched meanwhile, at the same places; 0: none is. */
INLINE void shrink(int n, const bf16 *x, const int32_t *rows, int64_t in, const bf16 *a, int ranks,
                   int64_t ahead, float *low) {
    const int side = n <= 2 ? 8 : 4; /* ranks side by side: up to LANES sums at a time */
    for (int r = 0; r < ranks; r += side, a += side * in) {
        vec acc[LANES];
        for (int j = 0; j < LANES; j++) acc[j] = (vec){0};
        for (int64_t c = 0; c < in; c += 2 * LANES)
            for (int k = 0; k < side; k++) {
                if (ahead) __builtin_prefetch(a + k * in + c + ahead);
                for (int i = 0; i < n; i++)
                    acc[k * n + i] =
                        add_products(acc[k * n + i], a + k * in + c, x + rows[i] * in + c);
            }
        store(low + r * n, sum_each(acc));
    }
}

/* y += low B, or = if nothing is there yet; `side` ranks at a time. y is (n, stride), B is
 * (ranks / 2, out, 2). */
INLINE void expand(int n, int side, int is_empty, float *y, int64_t stride, int64_t out,
                   const bf16 *b, int ranks, int64_t ahead, const float *low) {
    for (int r = 0; r < ranks; r += side, b += side * out, is_empty = 0) {
        bf16 pairs[RANKS][ROWS][2 * LANES];
        for (int k = 0; k < side / 2; k++)
            for (int i = 0; i < n; i++) {
                const float *first = low + (r + 2 * k) * n + i;
                vecu both = (vecu){0} + (nearest(first[0]) | (uint32_t)nearest(first[n]) << 16);
                memcpy(pairs[k][i], &both, sizeof both);
            }
        for (int64_t c = 0; c < out; c += LANES) {
            vec sums[ROWS];
            for (int i = 0; i < n; i++)
                sums[i] = is_empty ? (vec){0} : load(y + i * stride + c);
            for (int k = 0; k < side / 2; k++) {
                if (ahead) __builtin_prefetch(b + 2 * k * out + 2 * c + ahead);
                for (int i = 0; i < n; i++)
                    sums[i] = add_products(sums[i], b + 2 * k * out + 2 * c, pairs[k][i]);
            }
            for (int i = 0; i < n; i++) store(y + i * stride + c, sums[i]);
        }
    }
}

INLINE void adapt_rows(int n, const Units *units, int64_t unit, const Target *target,
                       const bf16 *x, int64_t ahead, int is_empty, float *y) {
    int rank = units->ranks[unit];
    const int64_t *offsets = target->offsets + units->layouts[unit] * target->offsets_stride;
    const int32_t *rows = units->rows + units->starts[unit];
    const bf16 *weights = units->weights[unit];
    float low[MAX_PIECES * rank * ROWS + LANES];
    shrink(n, x, rows, target->num_in, weights + offsets[0], rank * (int)target->num_pieces, ahead,
           low);
    for (int p = 0; p < target->num_pieces; p++) {
        int64_t first = target->columns[p], width = target->columns[p + 1] - first;
        const bf16 *b = weights + offsets[1 + p];
        if (rank % (2 * RANKS))
            expand(n, RANKS, is_empty, y + first, target->num_out, width, b, rank, ahead,
                   low + p * rank * n);
        else
            expand(n, 2 * RANKS, is_empty, y + first, target->num_out, width, b, rank, ahead,
                   low + p * rank * n);
    }
}

/* Whether the unit's adapter has weights for this projection. */
INLINE int is_adapted(const Units *units, int64_t unit, const Target *target) {
    return units->ranks[unit] &&
           target->offsets[units->layouts[unit] * target->offsets_stride] >= 0;
}

/* y (rows of the unit, num_out) += what the unit's adapter makes of them; or = if is_empty. */
INLINE void adapt(const Units *units, int64_t unit, const Target *target, const bf16 *x,
                  int64_t ahead, int is_empty, float *y) {
    if (!is_adapted(units, unit, target)) return;
    switch (units->starts[unit + 1] - units->starts[unit]) {
    case 1: adapt_rows(1, units, unit, target, x, ahead, is_empty, y); break;
    case 2: adapt_rows(2, units, unit, target, x, ahead, is_empty, y); break;
    case 3: adapt_rows(3, units, unit, target, x, ahead, is_empty, y); break;
    default: adapt_rows(4, units, unit, target, x, ahead, is_empty, y);
    }
}

/* Bytes of the unit's weights for this projection, and where they begin; 0 if there are none. */
INLINE int64_t weights_of(const Units *units, int64_t unit, const Target *target,
                          const char **start) {
    if (!is_adapted(units, unit, target)) return 0;
    const int64_t *offsets = target->offsets + units->layouts[unit] * target->offsets_stride;
    int64_t last = target->num_pieces - 1;
    int64_t width = target->columns[last + 1] - target->columns[last];
    *start = (const char *)(units->weights[unit] + offsets[0]);
    return 2 * (offsets[1 + last] + units->ranks[unit] * width - offsets[0]);
}
#endif

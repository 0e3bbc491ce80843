/* The tiles of AMX in plain C, so that what is written for them runs where there are none. */
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define __AMX_BF16__ 1
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) tile_configure(config)
#define _tile_release() tile_configure(0)
#define _tile_zero(t) memset(tile_data[t], 0, sizeof tile_data[t])
#define _tile_loadd(t, from, stride) tile_load(t, from, stride)
#define _tile_stored(t, to, stride) tile_store(t, to, stride)
#define _tile_dpbf16ps(c, a, b) tile_multiply(c, a, b)

static _Thread_local uint8_t tile_data[8][16][64];
static _Thread_local uint8_t tile_rows[8], tile_bytes[8]; /* 0: not configured, as the processor starts */

static inline void tile_configure(const void *config) {
    memset(tile_rows, 0, sizeof tile_rows);
    for (int t = 0; config && t < 8; t++) {
        tile_bytes[t] = ((const uint8_t *)config)[16 + 2 * t];
        tile_rows[t] = ((const uint8_t *)config)[48 + t];
    }
}
/* Rows that a tile has not are zero, as after tileload. */
static inline void tile_load(int t, const void *from, int64_t stride) {
    memset(tile_data[t], 0, sizeof tile_data[t]);
    for (int i = 0; i < tile_rows[t]; i++)
        memcpy(tile_data[t][i], (const char *)from + i * stride, tile_bytes[t]);
}
static inline void tile_store(int t, void *to, int64_t stride) {
    for (int i = 0; i < tile_rows[t]; i++)
        memcpy((char *)to + i * stride, tile_data[t][i], tile_bytes[t]);
}
static inline float tile_number(const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, 2);
    uint32_t bits = (uint32_t)half << 16;
    float number;
    memcpy(&number, &bits, 4);
    return number;
}
/* Sizes that do not fit end the program, as the processor would. */
static inline void tile_multiply(int c, int a, int b) {
    if (tile_rows[a] != tile_rows[c] || tile_bytes[b] != tile_bytes[c] ||
        tile_bytes[a] != 4 * tile_rows[b])
        abort();
    for (int m = 0; m < tile_rows[c]; m++)
        for (int n = 0; n < tile_bytes[c] / 4; n++) {
            float sum;
            memcpy(&sum, tile_data[c][m] + 4 * n, 4);
            for (int k = 0; k < tile_bytes[a] / 2; k++)
                sum += tile_number(tile_data[a][m] + 2 * k) *
                       tile_number(tile_data[b][k / 2] + 4 * n + 2 * (k % 2));
            memcpy(tile_data[c][m] + 4 * n, &sum, 4);
        }
}

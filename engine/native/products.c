/* Products of few rows of bfloat16 with a frozen matrix, by the tiles of AMX.
 *
 * The matrix (N, K) lies as oneDNN packs it for its own: in panels of PANEL of its rows, and in these
 * for every 32 columns 16 lines of pairs of columns: (N / 32, K / 32, 16, 32, 2). A decode step reads
 * every panel once, at the speed of memory: while one is multiplied, the one after it is fetched. N
 * and K are multiples of 32; the caller sees to it. With many rows oneDNN is the faster one.
 */
#include <stdint.h>

#ifndef __AMX_BF16__
int may_use_tiles(void) { return 0; }
#else
#include <immintrin.h>
#include <omp.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PANEL 32
#define STEP 1024       /* numbers of a panel for 32 columns: two tiles, line by line */
#define MANY_ROWS 256   /* that are taken through all panels together: they stay in a core's cache */
#define LINE 32         /* numbers of a cache line */

typedef uint16_t bf16;

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} __attribute__((aligned(64))) Tiles;

/* 0 and 1: rows of x; 2 and 3: the panel; 4 to 7: sums. rows: of tile 0 and of the sums over it. */
static void use_tiles(int rows) {
    Tiles tiles = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        tiles.bytes[i] = 64;
        tiles.rows[i] = i == 2 || i == 3 ? 16 : (uint8_t)rows;
    }
    _tile_loadconfig(&tiles);
}

/* Whether the system lets this process use tiles; to be asked once, before any product. */
int may_use_tiles(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static void put(const float *sums, int rows, const float *bias, int64_t num_out, bf16 *out) {
    for (int i = 0; i < rows; i++) {
        __m512 v = _mm512_loadu_ps(sums + 16 * i);
        if (bias) v = _mm512_add_ps(v, _mm512_loadu_ps(bias));
        _mm256_storeu_si256((__m256i *)(out + i * num_out), (__m256i)_mm512_cvtneps_pbh(v));
    }
}

/* 32 rows (or `rows`, at most 16) with one panel. ahead: numbers from this panel to the next one;
 * of each of its steps the lines first … last-1 are fetched meanwhile. */
static inline __attribute__((always_inline)) void multiply(
    int is_pair, int rows, int64_t num_in, int64_t num_out, const bf16 *x, const bf16 *panel,
    int64_t ahead, int first, int last, const float *bias, bf16 *out) {
    float sums[4][256] __attribute__((aligned(64)));
    _tile_zero(4);
    _tile_zero(5);
    if (is_pair) {
        _tile_zero(6);
        _tile_zero(7);
    }
    for (int64_t k = 0; k < num_in; k += 32, panel += STEP) {
        for (int i = first; i < last; i++)
            _mm_prefetch((const char *)(panel + ahead + i * LINE), _MM_HINT_T1);
        _tile_loadd(0, x + k, 2 * num_in);
        _tile_loadd(2, panel, 4 * PANEL);
        _tile_loadd(3, panel + 32, 4 * PANEL);
        _tile_dpbf16ps(4, 0, 2);
        _tile_dpbf16ps(5, 0, 3);
        if (is_pair) {
            _tile_loadd(1, x + 16 * num_in + k, 2 * num_in);
            _tile_dpbf16ps(6, 1, 2);
            _tile_dpbf16ps(7, 1, 3);
        }
    }
    _tile_stored(4, sums[0], 64);
    _tile_stored(5, sums[1], 64);
    if (is_pair) {
        _tile_stored(6, sums[2], 64);
        _tile_stored(7, sums[3], 64);
    }
    for (int i = 0; i < (is_pair ? 4 : 2); i++)
        put(sums[i], is_pair ? 16 : rows, bias ? bias + 16 * (i % 2) : 0, num_out,
            out + (i / 2) * 16 * num_out + 16 * (i % 2));
}

/* out (num_rows, num_out) = x (num_rows, num_in) times the matrix, plus bias (num_out) float32 or
 * null. */
void product(int64_t num_rows, int64_t num_in, int64_t num_out, const bf16 *x, const bf16 *matrix,
             const float *bias, bf16 *out) {
    int64_t num_panels = num_out / PANEL, num_blocks = (num_rows + MANY_ROWS - 1) / MANY_ROWS;
#pragma omp parallel
    {
        use_tiles(16);
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < num_blocks * num_panels; task++) {
            int64_t n = task % num_panels, start = task / num_panels * MANY_ROWS;
            int64_t stop = start + MANY_ROWS < num_rows ? start + MANY_ROWS : num_rows;
            const bf16 *panel = matrix + n * PANEL * num_in;
            const float *own_bias = bias ? bias + n * PANEL : 0;
            int64_t next = task + omp_get_num_threads() < num_blocks * num_panels
                               ? (task + omp_get_num_threads()) % num_panels
                               : n;
            int64_t ahead = (next - n) * PANEL * num_in;
            int turns = (int)((stop - start + 31) / 32), turn = 0;
            for (int64_t row = start; row < stop; row += 32, turn++) {
                const bf16 *rows = x + row * num_in;
                bf16 *to = out + row * num_out + n * PANEL;
                int first = 32 * turn / turns, last = 32 * (turn + 1) / turns;
                if (stop - row >= 32) {
                    multiply(1, 16, num_in, num_out, rows, panel, ahead, first, last, own_bias, to);
                    continue;
                }
                for (int64_t done = 0; done < stop - row; done += 16) {
                    int left = stop - row - done < 16 ? (int)(stop - row - done) : 16;
                    use_tiles(left);
                    multiply(0, left, num_in, num_out, rows + done * num_in, panel, ahead,
                             done ? last : first, last, own_bias, to + done * num_out);
                }
                use_tiles(16);
            }
        }
        _tile_release();
    }
}
#endif

/* Products of rows of bfloat16 with a frozen matrix, and beside them what adapters add.
 *
 * The matrix (N, K) lies in panels of PANEL of its rows, in which pairs of its columns follow each
 * other: (N / 32, K / 2, 32, 2); where there is AMX, oneDNN packs it so, too. A task is one panel
 * with up to MANY_ROWS rows, and after it some units of adapters. To multiply keeps the processor
 * busy and its memory idle, adapters the other way round: so while a panel is multiplied, the
 * weights of the task's units are fetched into the core's own cache, and the panel after it.
 *
 * By the tiles of AMX, or by the products of AVX-512 in bfloat16. N and K are multiples of 32; the
 * caller sees to it.
 */
#include <omp.h>

#include "adapters.h"

enum { NONE, VECTORS, TILES };

#ifdef __AMX_BF16__
#include <sys/syscall.h>
#include <unistd.h>

/* What `product` computes with here. To be asked once, before any product: the system has to let
 * this process use tiles. */
int products_by(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0 ? TILES : NONE;
}
#elif defined __AVX512BF16__
int products_by(void) { return VECTORS; }
#else
int products_by(void) { return NONE; }
#endif

#ifdef __AVX512BF16__
#define PANEL 32
#define MANY_ROWS 256 /* that are taken through all panels together: they stay in a core's cache */
#define LINE 64       /* bytes of a cache line */

typedef struct {
    int64_t num_rows, num_in, num_out, num_units;
    const bf16 *x, *matrix;
    const float *bias;  /* null: none */
    const float *shifts; /* of each row, taken off; null: none */
    int is_plain;       /* the matrix is not packed */
    float *sums;        /* the result, */
    bf16 *rounded;      /* or this is */
    const Units *units; /* and the next two: only if there are units */
    const Target *target;
    float *deltas;
} Job;

INLINE void put(const Job *job, int64_t place, __m512 v) {
    if (job->sums)
        _mm512_storeu_ps(job->sums + place, v);
    else
        _mm256_storeu_si256((__m256i *)(job->rounded + place), (__m256i)_mm512_cvtneps_pbh(v));
}

/* Of 16 numbers of a row, what is there before anything is multiplied. */
INLINE __m512 first_sum(const Job *job, int64_t row, const float *bias, int column) {
    __m512 sum = bias ? _mm512_loadu_ps(bias + column) : _mm512_setzero_ps();
    return job->shifts ? _mm512_sub_ps(sum, _mm512_set1_ps(job->shifts[row])) : sum;
}

INLINE void fetch(const char *line) { _mm_prefetch(line, _MM_HINT_T1); }

#ifdef __AMX_BF16__
#define BLOCK 32 /* rows that are multiplied at a time: two tiles */
#define STEP 32  /* columns */

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
static void begin(void) { use_tiles(16); }
static void end(void) { _tile_release(); }

/* 32 rows (or `rows`, at most 16). */
INLINE void multiply_tiles(int is_pair, int rows, const Job *job, int64_t row, int64_t column,
                           const bf16 *panel, const float *bias, const char *lines,
                           int64_t lines_a_step) {
    float sums[4][256] __attribute__((aligned(64)));
    int64_t num_in = job->num_in;
    const bf16 *x = job->x + row * num_in;
    _tile_zero(4);
    _tile_zero(5);
    if (is_pair) {
        _tile_zero(6);
        _tile_zero(7);
    }
    for (int64_t k = 0; k < num_in; k += STEP, panel += STEP * PANEL) {
        for (int64_t i = 0; i < lines_a_step; i++, lines += LINE) fetch(lines);
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
    for (int t = 0; t < (is_pair ? 4 : 2); t++)
        for (int i = 0; i < (is_pair ? 16 : rows); i++) {
            int64_t to = row + t / 2 * 16 + i;
            __m512 v = _mm512_add_ps(_mm512_loadu_ps(sums[t] + 16 * i),
                                     first_sum(job, to, bias, 16 * (t % 2)));
            put(job, to * job->num_out + column + 16 * (t % 2), v);
        }
}

static void multiply(int rows, const Job *job, int64_t row, int64_t column, const bf16 *panel,
                     const float *bias, const char *lines, int64_t lines_a_step) {
    if (rows == BLOCK) {
        multiply_tiles(1, 16, job, row, column, panel, bias, lines, lines_a_step);
        return;
    }
    for (int done = 0; done < rows; done += 16) {
        int count = rows - done < 16 ? rows - done : 16;
        use_tiles(count);
        multiply_tiles(0, count, job, row + done, column, panel, bias, lines,
                       done ? 0 : lines_a_step);
    }
    use_tiles(16);
}

#else
#define BLOCK 12 /* rows that are multiplied at a time: twice as many sums fit the registers */
#define STEP 2   /* columns */

static void begin(void) {}
static void end(void) {}

INLINE void multiply_vectors(const int rows, const Job *job, int64_t row, int64_t column,
                             const bf16 *panel, const float *bias, const char *lines,
                             int64_t lines_a_step) {
    __m512 sums[BLOCK][2];
    int64_t num_in = job->num_in;
    const bf16 *x = job->x + row * num_in;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < 2; j++)
            sums[i][j] = first_sum(job, row + i, bias, 16 * j);
    for (int64_t k = 0; k < num_in; k += STEP, panel += STEP * PANEL) {
        for (int64_t i = 0; i < lines_a_step; i++, lines += LINE) fetch(lines);
        __m512bh left = (__m512bh)_mm512_loadu_si512(panel);
        __m512bh right = (__m512bh)_mm512_loadu_si512(panel + PANEL);
        for (int i = 0; i < rows; i++) {
            int32_t pair;
            memcpy(&pair, x + i * num_in + k, sizeof pair);
            __m512bh both = (__m512bh)_mm512_set1_epi32(pair);
            sums[i][0] = _mm512_dpbf16_ps(sums[i][0], both, left);
            sums[i][1] = _mm512_dpbf16_ps(sums[i][1], both, right);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < 2; j++)
            put(job, (row + i) * job->num_out + column + 16 * j, sums[i][j]);
}

static void multiply(int rows, const Job *job, int64_t row, int64_t column, const bf16 *panel,
                     const float *bias, const char *lines, int64_t lines_a_step) {
    switch (rows) {
#define CASE(N) \
    case N: multiply_vectors(N, job, row, column, panel, bias, lines, lines_a_step); break;
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
        CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#undef CASE
    }
}
#endif

/* What is to be fetched: lines of the weights of some units, then those of one range of memory. */
typedef struct {
    const char *at, *end; /* of what is being fetched */
    int64_t done, unit, last; /* units that are fetched; whose turn comes next; behind the last */
    const char *range, *range_end;
    int64_t num_lines; /* of all that */
} Ahead;

/* The weights of a task's units, and the panel that this thread will most likely take next. */
static Ahead look_ahead(const Job *job, int64_t task, int64_t num_tasks) {
    int64_t first = task * job->num_units / num_tasks, next = task + omp_get_num_threads();
    int64_t num_panels = job->num_out / PANEL, panel_size = PANEL * job->num_in;
    Ahead ahead = {.done = first, .unit = first, .last = (task + 1) * job->num_units / num_tasks};
    for (int64_t unit = first; unit < ahead.last; unit++) {
        const char *start;
        ahead.num_lines += (weights_of(job->units, unit, job->target, &start) + LINE - 1) / LINE;
    }
    if (next < num_tasks) {
        ahead.range = (const char *)(job->matrix + next % num_panels * panel_size);
        ahead.range_end = ahead.range + panel_size * sizeof(bf16);
        ahead.num_lines += panel_size * sizeof(bf16) / LINE;
    }
    return ahead;
}

/* The next lines, at most `most`, that lie together. Returns their number; 0: there are no more. */
INLINE int64_t next_lines(const Job *job, Ahead *ahead, int64_t most, const char **lines) {
    while (ahead->at >= ahead->end) {
        ahead->done = ahead->unit;
        if (ahead->unit < ahead->last) {
            int64_t size = weights_of(job->units, ahead->unit++, job->target, &ahead->at);
            ahead->end = ahead->at + size;
        } else if (ahead->range < ahead->range_end) {
            ahead->at = ahead->range;
            ahead->range = ahead->end = ahead->range_end;
        } else
            return 0;
    }
    int64_t left = (ahead->end - ahead->at + LINE - 1) / LINE, count = left < most ? left : most;
    *lines = ahead->at;
    ahead->at += count * LINE;
    return count;
}

static void apply(const Job *job, int64_t unit) {
    float *y = job->deltas + job->units->starts[unit] * job->num_out;
    adapt(job->units, unit, job->target, job->x, 0, 1, y);
}

/* PANEL rows of a plain matrix, as a panel. */
static void pack(const bf16 *rows, int64_t num_in, bf16 *panel) {
    for (int64_t k = 0; k < num_in; k += 2 * LANES)
        for (int half = 0; half < PANEL; half += LANES) {
            veci pairs[LANES];
            for (int i = 0; i < LANES; i++)
                memcpy(&pairs[i], rows + (half + i) * num_in + k, sizeof *pairs);
            transpose(pairs);
            for (int i = 0; i < LANES; i++)
                memcpy(panel + (k + 2 * i) * PANEL + 2 * half, &pairs[i], sizeof *pairs);
        }
}

/* One panel with the rows of one block, and the task's units, each as soon as it is fetched. */
static void run_task(const Job *job, int64_t task, int64_t num_tasks) {
    int64_t num_panels = job->num_out / PANEL, panel_size = PANEL * job->num_in;
    int64_t start = task / num_panels * MANY_ROWS, column = task % num_panels * PANEL;
    int64_t stop = start + MANY_ROWS < job->num_rows ? start + MANY_ROWS : job->num_rows;
    const bf16 *panel = job->matrix + task % num_panels * panel_size;
    bf16 packed[job->is_plain ? panel_size : 1] __attribute__((aligned(64)));
    if (job->is_plain) {
        pack(panel, job->num_in, packed);
        panel = packed;
    }
    const float *bias = job->bias ? job->bias + column : 0;
    Ahead ahead = look_ahead(job, task, num_tasks);
    int64_t unit = ahead.done;
    int64_t num_steps = job->num_in / STEP;
    int64_t all_steps = num_steps * ((stop - start + BLOCK - 1) / BLOCK);
    int64_t lines_a_step = (ahead.num_lines + all_steps - 1) / all_steps;
    for (int64_t row = start; row < stop; row += BLOCK) {
        const char *lines = 0;
        int64_t due = lines_a_step * num_steps, count = next_lines(job, &ahead, due, &lines);
        int rows = stop - row < BLOCK ? (int)(stop - row) : BLOCK;
        int64_t a_step = count / num_steps;
        multiply(rows, job, row, column, panel, bias, lines, a_step);
        for (int64_t i = a_step * num_steps; count; i = 0) { /* what did not go evenly with steps */
            for (; i < count; i++) fetch(lines + i * LINE);
            due -= count;
            count = due ? next_lines(job, &ahead, due, &lines) : 0;
        }
        for (; unit < ahead.done; unit++) apply(job, unit);
    }
    for (; unit < ahead.last; unit++) apply(job, unit);
}

static void multiply_all(const Job *job) {
    int64_t num_blocks = (job->num_rows + MANY_ROWS - 1) / MANY_ROWS;
    int64_t num_tasks = job->num_out / PANEL * num_blocks;
#pragma omp parallel
    {
        begin();
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < num_tasks; task++) run_task(job, task, num_tasks);
        end();
    }
}

/* out (num_rows, num_out) = x (num_rows, num_in) times the matrix, plus bias (num_out) float32 or
 * null. */
void product(int64_t num_rows, int64_t num_in, int64_t num_out, const bf16 *x, const bf16 *matrix,
             const float *bias, bf16 *out) {
    Job job = {.num_rows = num_rows, .num_in = num_in, .num_out = num_out,
               .x = x, .matrix = matrix, .bias = bias, .rounded = out};
    multiply_all(&job);
}

/* out = x times a matrix that lies as torch has it, (num_out, num_in), less each row's shift. */
void plain_product(int64_t num_rows, int64_t num_in, int64_t num_out, const bf16 *x,
                   const bf16 *matrix, const float *shifts, bf16 *out) {
    Job job = {.num_rows = num_rows, .num_in = num_in, .num_out = num_out, .x = x,
               .matrix = matrix, .is_plain = 1, .shifts = shifts, .rounded = out};
    multiply_all(&job);
}

/* As `product`, in float32, and of every unit that has an adapter what that adds: deltas (num_rows,
 * num_out), in the order of the units. */
void adapted_product(int64_t num_rows, const Units *units, const Target *target, const bf16 *x,
                     const bf16 *matrix, const float *bias, float *out, float *deltas) {
    Job job = {.num_rows = num_rows, .num_in = target->num_in, .num_out = target->num_out,
               .num_units = units->num_units, .x = x, .matrix = matrix, .bias = bias, .sums = out,
               .units = units, .target = target, .deltas = deltas};
    multiply_all(&job);
}
#endif

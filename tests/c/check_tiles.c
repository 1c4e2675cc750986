/*
 * Does the product with tile registers compute what its header says, in each of its forms: with
 * tiles in C, and the CPU's own, which are imitated where it has none? Compared with a slow, simple
 * version, bit for bit.
 */
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <ucontext.h>
#endif

#include "check.h"
#include "core/dtype.h"
#include "kernels/tier.h"
#if defined(__x86_64__)
#include "kernels/tile_registers.h"
#endif

#ifdef RNL_TILES_IN_C
enum { TURNS = 200, MOST_BLOCKS = 4, MOST_GAP = 7, K_OF_TILE = 32 };

/* One product. x and the sums have gaps between their rows. */
typedef struct problem {
    rnl_matrices of;
    rnl_product job;
    int64_t lanes, blocks;
    uint16_t *weights; /* (gates, units, K) */
    float *x, *start, *acc;
    int64_t num_accs;
} problem;

static float *floats(int64_t n)
{
    float *const all = malloc((size_t)(n + 1) * sizeof *all);
    for (int64_t k = 0; all && k < n; k++)
        all[k] = (float)random_below(1 << 20) / (1 << 19) - 1;
    if (!all)
        abort();
    return all;
}

static float value_of(uint16_t bfloat)
{
    return (float)rnl_to_double(RNL_BFLOAT16, bfloat);
}

static uint16_t bfloat_of(float value)
{
    return (uint16_t)rnl_from_double(RNL_BFLOAT16, (double)value);
}

static float flushed(float x)
{
    return fabsf(x) < 0x1p-126F ? copysignf(0, x) : x;
}

/* Weights or x are around the smallest normal number, so that it matters which results are zero. */
static void make_small(float *weights, int64_t num_weights, float *x, int64_t num_x)
{
    static const float numbers[2][5] = {
        {0x1p-126F, 0x1.8p-127F, -0x1.fffffcp-127F, 0x1p-149F, 0x1p-125F},
        {1, -1, 1.5F, -1.25F, 64}};
    const int64_t small = random_below(2);
    for (int64_t k = 0; k < num_weights; k++)
        weights[k] = numbers[small][random_below(5)];
    for (int64_t k = 0; k < num_x; k++)
        x[k] = numbers[!small][random_below(5)];
}

static problem random_problem(int64_t lanes)
{
    static const int64_t rows[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 64, 95, 96, 97, 130, 300};
    static const int64_t widths[] = {1,   2,   5,   31,  32,  33,  63, 64,
                                     100, 255, 256, 257, 300, 520, 700};
    problem p = {.lanes = lanes, .blocks = 1 + random_below(MOST_BLOCKS)};
    p.of = (rnl_matrices){.units = p.blocks * lanes - random_below(lanes),
                          .K = widths[random_below(15)],
                          .gates = (int)(1 + random_below(RNL_MAX_GATES))};
    p.of.row = p.of.K;
    p.job = (rnl_product){.num_sums = p.of.gates + (int)random_below(5 - p.of.gates),
                          .copied_sum = -1,
                          .first = random_below(p.blocks),
                          .backwards = random_below(2),
                          .rows = rows[random_below(15)]};
    p.job.last = p.job.first + 1 + random_below(p.blocks - p.job.first);
    for (int gate = 0; gate < p.of.gates; gate++)
        p.job.sum_of_gate[gate] = gate + p.job.num_sums - p.of.gates;
    if (p.job.num_sums > p.of.gates && random_below(2))
        p.job.copied_sum = 0;
    const int64_t of_row = p.blocks * p.job.num_sums * lanes;
    p.job.x_row = p.of.K + random_below(MOST_GAP);
    p.job.start_row = random_below(2) ? of_row + random_below(2) * lanes : 0;
    p.job.acc_row = of_row + random_below(2) * lanes;
    const int64_t num_weights = p.of.gates * p.of.units * p.of.K, num_x = p.job.rows * p.job.x_row;
    const int64_t num_starts = p.job.start_row ? p.job.rows * p.job.start_row : of_row;
    float *const weights = floats(num_weights);
    p.num_accs = p.job.rows * p.job.acc_row;
    p.x = floats(num_x);
    p.start = floats(num_starts);
    p.acc = floats(p.num_accs);
    if (random_below(4) == 0) {
        make_small(weights, num_weights, p.x, num_x);
        memset(p.start, 0, (size_t)num_starts * sizeof *p.start);
    }
    p.weights = malloc((size_t)num_weights * sizeof *p.weights);
    for (int64_t k = 0; p.weights && k < num_weights; k++)
        p.weights[k] = bfloat_of(weights[k]);
    free(weights);
    for (int gate = 0; gate < p.of.gates; gate++)
        p.of.of_gate[gate] = p.weights + gate * p.of.units * p.of.K;
    return p;
}

/* One sum, in the order of TDPBF16PS. */
static float sum_of(const problem *p, int64_t row, int64_t unit, int gate, float sum)
{
    const uint16_t *const w = (const uint16_t *)p->of.of_gate[gate] + unit * p->of.K;
    const float *const x = p->x + row * p->job.x_row;
    for (int64_t first = 0; first < p->of.K; first += K_OF_TILE) {
        float even = 0, odd = 0;
        for (int64_t k = first; k < p->of.K && k < first + K_OF_TILE; k++) {
            float *const half = k % 2 ? &odd : &even;
            *half = flushed(
                fmaf(flushed(value_of(w[k])), flushed(value_of(bfloat_of(flushed(x[k])))), *half));
        }
        sum = flushed(sum + flushed(even + odd));
    }
    return sum;
}

/* All sums of the blocks; those of no unit are as they were. */
static void slow(const problem *p, float *acc)
{
    for (int64_t row = 0; row < p->job.rows; row++)
        for (int64_t unit = p->job.first * p->lanes; unit < p->job.last * p->lanes; unit++) {
            const int64_t at = unit / p->lanes * p->job.num_sums * p->lanes + unit % p->lanes;
            const float *const start = p->start + row * p->job.start_row + at;
            float *const to = acc + row * p->job.acc_row + at;
            for (int gate = 0; gate < p->of.gates; gate++) {
                const int64_t sum = p->job.sum_of_gate[gate] * p->lanes;
                to[sum] = unit < p->of.units ? sum_of(p, row, unit, gate, start[sum]) : start[sum];
            }
            if (p->job.copied_sum >= 0)
                to[p->job.copied_sum * p->lanes] = start[p->job.copied_sum * p->lanes];
        }
}

/* A call has scratch memory for its widest matrix, which is enough for all others. */
static void check_scratch(const char *form, const rnl_rnn_kernels *kernels, int64_t rows, int64_t K)
{
    const int64_t wider = K + random_below(1000);
    CHECK(kernels->scratch(rows, K) <= kernels->scratch(rows, wider),
          "%s: %" PRId64 " rows need more for K %" PRId64 " than for %" PRId64, form, rows, K,
          wider);
}

static void check_form(const char *form, const rnl_rnn_kernels *kernels)
{
    for (int turn = check_turns(TURNS); turn > 0; turn--) {
        problem p = random_problem(kernels->lanes);
        const int64_t pairs = (p.of.K - 1) / kernels->pair + 1;
        uint16_t *const panel = malloc((size_t)(p.blocks * p.of.gates * pairs * p.lanes) * 4);
        float *const right = malloc((size_t)p.num_accs * sizeof *right);
        p.job.scratch = malloc((size_t)kernels->scratch(p.job.rows, p.of.K));
        if (!panel || !right || !p.job.scratch)
            abort();
        memcpy(right, p.acc, (size_t)p.num_accs * sizeof *right);
        slow(&p, right);
        check_scratch(form, kernels, 1 + random_below(300), 1 + random_below(3000));
        kernels->pack(&p.of, panel);
        p.job.of = &p.of;
        p.job.panel = panel;
        p.job.x = p.x;
        p.job.start = p.start;
        p.job.acc = p.acc;
        kernels->product(&p.job);
        for (int64_t k = 0; k < p.num_accs; k++)
            CHECK(!memcmp(&p.acc[k], &right[k], sizeof right[k]),
                  "%s: sum %" PRId64 " of %" PRId64 " rows, K %" PRId64
                  ", %d gates: %.9g, not %.9g",
                  form, k, p.job.rows, p.of.K, p.of.gates, (double)p.acc[k], (double)right[k]);
        free(p.job.scratch);
        free(panel);
        free(right);
        free(p.weights);
        free(p.x);
        free(p.start);
        free(p.acc);
    }
}

/* -------------------------------------------------------- tile registers that do not exist -- */

#if defined(__x86_64__)
/* A CPU that lacks the tile instructions of kernels/rnn_amx.c raises an exception at each, whose
 * handler computes what the instruction would, by the C form of tile_registers.h. So the compiled
 * kernel itself is tested, with its operands and addresses. */
static long imitated; /* instructions */

/* An instruction with a VEX prefix of three bytes: Intel's manual, volume 2, 2.3.5. */
typedef struct instruction {
    int prefix, opcode, reg, rm, vvvv, nbytes;
    bool reads_memory;
    char *base;
    int64_t index; /* 0: none */
} instruction;

enum { NO_PREFIX, F3 = 2, F2 = 3, CONFIGURE = 0x49, MOVE = 0x4b, MULTIPLY = 0x5c, NO_INDEX = 4 };

static int64_t general_register(const ucontext_t *at, int number)
{
    static const int places[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                 REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                 REG_R12, REG_R13, REG_R14, REG_R15};
    return at->uc_mcontext.gregs[places[number]];
}

static instruction decoded(const ucontext_t *at)
{
    const uint8_t *const bytes = (const uint8_t *)at->uc_mcontext.gregs[REG_RIP];
    if (bytes[0] != 0xc4 || (bytes[1] & 0x1f) != 2) /* of the map 0F38 */
        abort();
    const int way = bytes[4] >> 6, rm = bytes[4] & 7, x = bytes[1] & 0x40 ? 0 : 8,
              b = bytes[1] & 0x20 ? 0 : 8;
    instruction it = {.prefix = bytes[2] & 3,
                      .opcode = bytes[3],
                      .reg = bytes[4] >> 3 & 7,
                      .rm = rm,
                      .vvvv = ~bytes[2] >> 3 & 15,
                      .nbytes = 5,
                      .reads_memory = way != 3};
    if (!it.reads_memory)
        return it;
    int base = rm | b;
    if (rm == 4) { /* base and index are in one more byte */
        const int sib = bytes[it.nbytes++], index = (sib >> 3 & 7) | x;
        base = (sib & 7) | b;
        if (index != NO_INDEX)
            it.index = general_register(at, index) << (sib >> 6);
    }
    if (way == 0 && (base & 7) == 5) /* no base */
        abort();
    it.base = (char *)general_register(at, base);
    if (way == 1) {
        it.base += (int8_t)bytes[it.nbytes];
    } else if (way == 2) {
        int32_t more;
        memcpy(&more, bytes + it.nbytes, sizeof more);
        it.base += more;
    }
    it.nbytes += way == 1 ? 1 : way == 2 ? 4 : 0;
    return it;
}

static void imitate(int signal, siginfo_t *info, void *context)
{
    ucontext_t *const at = context;
    const instruction it = decoded(at);
    (void)signal;
    (void)info;
    if (it.opcode == CONFIGURE && it.prefix == NO_PREFIX && it.reads_memory)
        tiles_shape((const tile_shapes *)(const void *)(it.base + it.index));
    else if (it.opcode == CONFIGURE && it.prefix == NO_PREFIX)
        TILES_RELEASE();
    else if (it.opcode == MOVE && it.prefix == F2)
        TILE_LOAD(it.reg, it.base, it.index);
    else if (it.opcode == MOVE && it.prefix == F3)
        TILE_STORE(it.reg, it.base, it.index);
    else if (it.opcode == MULTIPLY && it.prefix == F3)
        TILE_ADD_PRODUCT(it.reg, it.rm, it.vvvv);
    else
        abort();
    imitated++;
    at->uc_mcontext.gregs[REG_RIP] += it.nbytes;
}

/* From now on. False: this machine has tiles, or lacks what else the kernel uses. */
static bool imitate_tiles(void)
{
    const struct sigaction action = {.sa_sigaction = imitate, .sa_flags = SA_SIGINFO};
    /* the only tier that uses all the rest, on CPUs without tiles */
    return strcmp(rnl_tier_get()->name, "avx512bf16") == 0 && sigaction(SIGILL, &action, NULL) == 0;
}
#endif

int main(void)
{
    check_form("in C", &rnl_rnn_amx_in_c[RNL_ROUNDED]);
#if defined(__x86_64__)
    const bool has_tiles = strcmp(rnl_cpu_tier(), "amx") == 0;
    if (has_tiles || imitate_tiles()) {
        check_form(has_tiles ? "the CPU's" : "imitated", &rnl_rnn_amx[RNL_ROUNDED]);
        CHECK(has_tiles || imitated > 0, "%ld instructions", imitated);
    }
    printf("%ld instructions imitated\n", imitated);
#endif
    return check_end();
}
#else
int main(void)
{
    return check_end(); /* a CPU for which nothing has tiles */
}
#endif

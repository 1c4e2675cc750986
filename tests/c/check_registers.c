/*
 * Are the vector registers as code without AVX needs them: after each kernel of the tier, and after
 * each function of the C API that computes? On Intel's CPUs values in their upper halves delay the
 * code of the caller (kernels/entry.h).
 *
 * The linker replaces the tables of kernels and the functions of the API (--wrap), so that the
 * registers are read before any other code may zero them.
 */
#include <cpuid.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cpu/problem.h"
#include "kernels/tier.h"

enum { TURNS = 600, COPIES = 400, CONVERSIONS = 200, NUM_REGISTERS = 16 };

/* ------------------------------------------------------------------------------- registers -- */

/* Bits of XINUSE, the parts of the registers that are not in their first state. */
enum { UPPER_YMM = 1 << 2, UPPER_ZMM = 1 << 6, TILES = 1 << 18 };

static bool has_avx, has_avx512;
static unsigned witnesses; /* the bits of XINUSE that follow the registers on this CPU */

/* What code without AVX does not know of the first 16 registers. (The others have no such cost.) */
typedef struct uppers {
    uint64_t of_ymm[NUM_REGISTERS][2], of_zmm[NUM_REGISTERS][4];
    unsigned in_use;
} uppers;

/* In the assembler's language: a compiler zeroes what its own code leaves.
 * NOLINTBEGIN(portability-no-assembler) */
#define EACH_REGISTER(DO)                                                                          \
    DO(0)                                                                                          \
    DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
#define FILL_YMM(n) __asm__ volatile("vcmptrueps %ymm" #n ", %ymm" #n ", %ymm" #n);
#define FILL_ZMM(n) __asm__ volatile("vpternlogd $255, %zmm" #n ", %zmm" #n ", %zmm" #n);
#define READ_YMM(n) __asm__ volatile("vextractf128 $1, %%ymm" #n ", %0" : "=m"(now.of_ymm[n]));
#define READ_ZMM(n) __asm__ volatile("vextractf64x4 $1, %%zmm" #n ", %0" : "=m"(now.of_zmm[n]));

static unsigned in_use(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
    return low;
}

static inline void zero_uppers(void)
{
    if (has_avx)
        __asm__ volatile("vzeroupper");
}

static void fill_uppers(void)
{
    if (has_avx512) {
        EACH_REGISTER(FILL_ZMM)
    } else if (has_avx) {
        EACH_REGISTER(FILL_YMM)
    }
}

static inline uppers read_uppers(void)
{
    uppers now;
    if (has_avx) {
        EACH_REGISTER(READ_YMM)
    }
    if (has_avx512) {
        EACH_REGISTER(READ_ZMM)
    }
    now.in_use = witnesses ? in_use() & witnesses : 0;
    return now;
}
/* NOLINTEND(portability-no-assembler) */

static bool are_clean(const uppers *u)
{
    uint64_t bits = u->in_use;
    for (int k = 0; k < NUM_REGISTERS; k++) {
        for (int j = 0; has_avx && j < 2; j++)
            bits |= u->of_ymm[k][j];
        for (int j = 0; has_avx512 && j < 4; j++)
            bits |= u->of_zmm[k][j];
    }
    return bits == 0;
}

/* Find out what this CPU has, and which bits of XINUSE fall with `vzeroupper` (on Intel: both). */
static void look_at_cpu(void)
{
    unsigned a, b, c, d;
    has_avx = __builtin_cpu_supports("avx");
    has_avx512 = __builtin_cpu_supports("avx512f");
    if (has_avx && __get_cpuid_count(13, 1, &a, &b, &c, &d) && a & 1 << 2) {
        fill_uppers();
        const unsigned full = in_use();
        zero_uppers();
        witnesses = (full & ~in_use() & (UPPER_YMM | UPPER_ZMM)) | TILES;
    }
    fill_uppers();
    const uppers full = read_uppers();
    zero_uppers();
    const uppers zero = read_uppers();
    CHECK(!has_avx || (!are_clean(&full) && are_clean(&zero)), "witnesses %x", witnesses);
}

/* ------------------------------------------------------------------------------------ looks -- */

/* Call something that is watched. */
#define WATCH(name, call)                                                                          \
    zero_uppers();                                                                                 \
    call;                                                                                          \
    const uppers after = read_uppers();                                                            \
    CHECK(are_clean(&after), "%s leaves values in the upper halves, XINUSE %x", name, after.in_use)

/* -------------------------------------------------------------------------- kernels of RNNs -- */

/* The kernels of one row of a table, and whether each was called. */
enum { PACK, UNPACK, START, PRODUCT, SCRATCH, DIRECT, ADD_INPUT, GATES, STEP, NUM_ENTRIES };

typedef struct row {
    const rnl_rnn_kernels *kernels;
    bool was_called[NUM_ENTRIES];
} row;

static row rows[2 * RNL_NUM_RNN_KERNELS]; /* of the tier, and those for few units */
static int num_rows;
static row *of_rnn; /* that of the RNN in use */
static bool watches_kernels;

#define KERNEL(entry, name, parameters, arguments)                                                 \
    static void watched_##name parameters                                                          \
    {                                                                                              \
        of_rnn->was_called[entry] = true;                                                          \
        WATCH(#name, of_rnn->kernels->name arguments);                                             \
    }
KERNEL(PACK, pack, (const rnl_matrices *from, void *panel), (from, panel))
KERNEL(UNPACK, unpack, (const rnl_matrices *of, const void *panel, int gate, void *to),
       (of, panel, gate, to))
KERNEL(START, start, (const rnl_start *job), (job))
KERNEL(PRODUCT, product, (const rnl_product *job), (job))
KERNEL(DIRECT, direct, (const rnl_product *job), (job))
KERNEL(ADD_INPUT, add_input, (const rnl_product *job), (job))
KERNEL(GATES, gates, (const rnl_gates *job), (job))
KERNEL(STEP, step, (const rnl_rnn_step *job), (job))

static int64_t watched_scratch(int64_t num_x, int64_t K)
{
    of_rnn->was_called[SCRATCH] = true;
    WATCH("scratch", const int64_t nbytes = of_rnn->kernels->scratch(num_x, K));
    return nbytes;
}

const rnl_rnn_kernels *__real_rnl_rnn_kernels_get(int which, int64_t units);
const rnl_rnn_kernels *__wrap_rnl_rnn_kernels_get(int which, int64_t units);
const rnl_rnn_kernels *__wrap_rnl_rnn_kernels_get(int which, int64_t units)
{
    static rnl_rnn_kernels watched;
    const rnl_rnn_kernels *const kernels = __real_rnl_rnn_kernels_get(which, units);
    if (!watches_kernels)
        return kernels;
    int k = 0;
    while (k < num_rows && rows[k].kernels != kernels)
        k++;
    num_rows += k == num_rows;
    of_rnn = &rows[k];
    of_rnn->kernels = kernels;
    watched = *kernels;
    watched.pack = watched_pack;
    watched.start = watched_start;
    watched.product = watched_product;
    watched.add_input = watched_add_input;
    watched.gates = watched_gates;
    watched.unpack = kernels->unpack ? watched_unpack : NULL;
    watched.scratch = kernels->scratch ? watched_scratch : NULL;
    watched.direct = kernels->direct ? watched_direct : NULL;
    watched.step = kernels->step ? watched_step : NULL;
    return &watched;
}

/* ---------------------------------------------------------------------- functions of the API -- */

#define API(type, name, parameters, arguments)                                                     \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        WATCH(#name, const type result = __real_##name arguments);                                 \
        return result;                                                                             \
    }
#define API_VOID(name, parameters, arguments)                                                      \
    void __real_##name parameters;                                                                 \
    void __wrap_##name parameters;                                                                 \
    void __wrap_##name parameters                                                                  \
    {                                                                                              \
        WATCH(#name, __real_##name arguments);                                                     \
    }
API(rnl_status, rnl_plan_run,
    (const rnl_plan *plan, rnl_dtype from, const void *const *src, rnl_dtype to, void *const *dst,
     const rnl_run_options *options, rnl_report *report, rnl_error *err),
    (plan, from, src, to, dst, options, report, err))
API(rnl_status, rnl_rnn_new,
    (const rnl_spec *spec, const void *weights, const rnl_rnn_options *options, rnl_rnn **rnn,
     rnl_error *err),
    (spec, weights, options, rnn, err))
API_VOID(rnl_rnn_free, (rnl_rnn * rnn), (rnn))
API_VOID(rnl_rnn_update, (rnl_rnn * rnn, const void *weights), (rnn, weights))
API_VOID(rnl_rnn_weights, (const rnl_rnn *rnn, void *weights), (rnn, weights))
API(rnl_status, rnl_rnn_run, (rnl_rnn * rnn, const rnl_rnn_call *call, rnl_error *err),
    (rnn, call, err))
API(rnl_status, rnl_stepper_new,
    (rnl_rnn * rnn, rnl_dtype dtype, rnl_stepper **stepper, rnl_error *err),
    (rnn, dtype, stepper, err))
API_VOID(rnl_stepper_free, (rnl_stepper * stepper), (stepper))
API_VOID(rnl_stepper_run, (rnl_stepper * stepper, const void *x, void *y, int64_t n),
         (stepper, x, y, n))
API_VOID(rnl_stepper_set, (rnl_stepper * stepper, const void *h, const void *c), (stepper, h, c))
API_VOID(rnl_stepper_reset, (rnl_stepper * stepper), (stepper))
API_VOID(rnl_stepper_get, (const rnl_stepper *stepper, void *h, void *c), (stepper, h, c))
/* The kernels of conversions, of which every tier has one. */
API_VOID(rnl_copy, (const rnl_job *job), (job))
API(int64_t, rnl_find_overflow, (const rnl_job *job), (job))

/* ------------------------------------------------------------------------------------ calls -- */

/* A stepper of one sequence, with x and a state that are not zero. */
static void run_stepper(const problem *p, rnl_rnn *rnn)
{
    rnl_stepper *stepper = NULL;
    rnl_error err;
    CHECK(!rnl_stepper_new(rnn, p->dtype, &stepper, &err), "%s", err.text);
    const int64_t L = p->spec.num_layers;
    char *const x = packed(p->x, p->T * p->spec.input_size, p->dtype);
    char *const h = packed(p->h0, L * p->S, p->dtype), *const c = packed(p->c0, L * p->H, p->dtype);
    rnl_stepper_reset(stepper);
    rnl_stepper_set(stepper, h, c);
    for (int64_t t = 0; t < p->T; t++) /* each by itself, then all */
        rnl_stepper_run(stepper, x + t * p->spec.input_size * rnl_dtype_nbytes(p->dtype), NULL, 1);
    rnl_stepper_run(stepper, x, NULL, p->T);
    rnl_stepper_get(stepper, h, c);
    rnl_stepper_free(stepper);
    free(x);
    free(h);
    free(c);
}

/* All the ways to run a random RNN. */
static void run_problem(void)
{
    problem p = random_problem();
    rnl_rnn *const rnn = prepared(&p);
    for (int64_t N = p.N; N > 0; N = N > 1) { /* all sequences, then one */
        answer a = fast(&p, rnn, (slice){0, N, 0, p.T, NULL});
        answer_free(&a);
    }
    if (p.D == 1 && p.N > 0)
        run_stepper(&p, rnn);
    rnl_rnn_free(rnn);
    void *const weights = packed(p.weights, p.num_weights, p.spec.dtype);
    rnl_rnn_options options = p.options;
    options.borrows = 1;
    rnl_rnn *const once = new_rnn(&p.spec, weights, &options);
    if (p.N > 0) {
        answer a = fast(&p, once, (slice){0, 1, 0, p.T > 0, NULL});
        answer_free(&a);
    }
    rnl_rnn_free(once);
    free(weights);
    problem_free(&p);
}

static void check_entries(void)
{
    for (int k = 0; k < num_rows; k++) {
        const rnl_rnn_kernels *const kernels = rows[k].kernels;
        const bool exists[NUM_ENTRIES] = {
            true, kernels->unpack, true, true, kernels->scratch, kernels->direct, true,
            true, kernels->step};
        for (int entry = 0; entry < NUM_ENTRIES; entry++)
            CHECK(rows[k].was_called[entry] == exists[entry], "row %d, entry %d", k, entry);
    }
    CHECK(num_rows >= RNL_NUM_RNN_KERNELS, "%d rows", num_rows);
}

/* One copy of a large matrix, of any two dtypes and any two orders. */
static void check_copy(char *src, char *dst)
{
    enum { ROWS = RNL_TILE_ROWS + 5, COLS = RNL_TILE_COLS + 3 };
    const rnl_grid grids[] = {{COLS, 1}, {1, ROWS}, {2 * COLS, 2}};
    const rnl_job job = {.src_dtype = (rnl_dtype)random_below(RNL_NUM_DTYPES),
                         .dst_dtype = (rnl_dtype)random_below(RNL_NUM_DTYPES),
                         .src = src,
                         .dst = dst,
                         .rows = ROWS,
                         .cols = COLS,
                         .src_grid = grids[random_below(3)],
                         .dst_grid = grids[random_below(3)],
                         .negate = random_below(2),
                         .stream = random_below(2)};
    rnl_copy(&job);
    (void)rnl_find_overflow(&job);
}

/* Weights of an RNN to another layout and dtype: moved, transposed, added and converted. */
static void check_conversion(char *src, char *dst)
{
    static const char *const names[] = {"torch", "keras", "cudnn", "onnx"};
    rnl_spec spec = rnl_spec_default(random_below(2) ? RNL_LSTM : RNL_GRU, 1 + random_below(40),
                                     1 + random_below(40));
    rnl_layout from, to;
    rnl_plan *plan = NULL;
    rnl_error err;
    void *tensors[2][8];
    CHECK(!rnl_layout_named(names[random_below(4)], &from, &err), "%s", err.text);
    CHECK(!rnl_layout_named(names[random_below(4)], &to, &err), "%s", err.text);
    CHECK(!rnl_plan_new(&spec, &from, RNL_HAS_BIAS, &to, RNL_WEIGHTS, &plan, &err), "%s", err.text);
    for (int side = 0; side < 2; side++) {
        const rnl_layout *const layout = side ? &to : &from;
        int64_t n = 0, at = 0;
        CHECK(!rnl_layout_num_tensors(layout, &spec, RNL_HAS_BIAS, &n, &err), "%s", err.text);
        for (int64_t k = 0; k < n; k++) {
            rnl_tensor tensor;
            CHECK(!rnl_layout_tensor(layout, &spec, RNL_HAS_BIAS, k, &tensor, &err), "%s",
                  err.text);
            tensors[side][k] = (side ? dst : src) + at;
            at += tensor.nelems * 8;
        }
    }
    const rnl_dtype wide = (rnl_dtype)random_below(RNL_NUM_DTYPES);
    CHECK(!rnl_plan_run(plan, RNL_FLOAT32, (const void *const *)tensors[0], wide, tensors[1], NULL,
                        NULL, &err),
          "%s", err.text);
    rnl_plan_free(plan);
}

static void check_conversions(void)
{
    enum { NBYTES = 1 << 20 };
    float *const src = malloc(NBYTES);
    char *const dst = malloc(NBYTES);
    if (!src || !dst)
        abort();
    for (size_t k = 0; k < NBYTES / sizeof *src; k++)
        src[k] = (float)random_below(1000) / 1000 + 1;
    for (int turn = 0; turn < check_turns(COPIES); turn++)
        check_copy((char *)src, dst);
    for (int turn = 0; turn < check_turns(CONVERSIONS); turn++)
        check_conversion((char *)src, dst);
    free(src);
    free(dst);
}

int main(void)
{
    printf("tier %s\n", rnl_cpu_tier());
    look_at_cpu();
    rnl_set_num_threads(1); /* the watched kernels are not safe to call from several */
    watches_kernels = true;
    for (int turn = 0; turn < TURNS; turn++) /* all of them, so that each kernel is called */
        run_problem();
    check_entries();
    watches_kernels = false;
    for (int turn = 0; turn < check_turns(TURNS); turn++) {
        rnl_set_num_threads(1 + turn % 2);
        run_problem();
    }
    check_conversions();
    return check_end();
}

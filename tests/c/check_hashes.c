/* Are results the same, bit for bit, on every system? Hashes of plans and of runs are compared with
 * one list for all systems, hashes.inc. A run depends on the width of vectors, a plan on nothing.
 *
 *     check_hashes          compare
 *     check_hashes print    print the rows of hashes.inc
 */
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "cpu/problem.h"
#include "kernels/subnormals.h"
#include "layouts.h"

enum { NUM_PLANS = 1000, NUM_RUNS = 100, MAX_TENSORS = 256, NUM_DTYPES = 4 };

static const struct {
    const char *what, *tiers; /* tiers: those with this result, each between spaces */
    uint64_t hash;
} expected[] = {
#include "hashes.inc"
};
enum { NUM_EXPECTED = sizeof expected / sizeof *expected };

static bool prints;

/* Continue an FNV-1a hash; it does not depend on the order of bytes in memory. */
static uint64_t continued(uint64_t hash, uint64_t value)
{
    for (int k = 0; k < 8; k++)
        hash = (hash ^ (value >> 8 * k & 0xff)) * UINT64_C(0x100000001b3);
    return hash;
}

static const uint64_t START = UINT64_C(0xcbf29ce484222325);

static void compare(const char *what, const char *tier, uint64_t hash)
{
    char word[32];
    snprintf(word, sizeof word, " %s ", tier);
    if (prints) {
        printf("{\"%s\", \"%s\", UINT64_C(0x%016" PRIx64 ")},\n", what, word, hash);
        return;
    }
    int found = 0;
    for (int k = 0; k < NUM_EXPECTED; k++) {
        if (strcmp(expected[k].what, what) != 0 || !strstr(expected[k].tiers, word))
            continue;
        CHECK(expected[k].hash == hash, "%s %s: %016" PRIx64, what, tier, hash);
        found++;
    }
    CHECK(found == 1, "%s %s: %d rows in hashes.inc", what, tier, found);
}

/* --------------------------------------------------------------------------------- plans -- */

typedef struct tensors {
    int64_t n, nelems[MAX_TENSORS];
    void *data[MAX_TENSORS];
} tensors;

/* One RNN's tensors in a layout, filled with numbers. */
static tensors tensors_new(const rnl_layout *layout, const rnl_spec *spec, rnl_dtype dtype)
{
    tensors made = {0};
    rnl_tensor tensor;
    rnl_error err;
    const unsigned optional = rnl_spec_optional(spec);
    CHECK(!rnl_layout_num_tensors(layout, spec, optional, &made.n, &err), "%s", err.text);
    if (made.n > MAX_TENSORS)
        abort();
    for (int64_t k = 0; k < made.n; k++) {
        CHECK(!rnl_layout_tensor(layout, spec, optional, k, &tensor, &err), "%s", err.text);
        double *const numbers = malloc((size_t)(tensor.nelems + 1) * sizeof *numbers);
        if (!numbers)
            abort();
        for (int64_t j = 0; j < tensor.nelems; j++)
            numbers[j] = (double)random_below(1 << 20) / (1 << 19) - 1;
        made.nelems[k] = tensor.nelems;
        made.data[k] = packed(numbers, tensor.nelems, dtype);
        free(numbers);
    }
    return made;
}

static void tensors_free(tensors *t)
{
    for (int64_t k = 0; k < t->n; k++)
        free(t->data[k]);
}

static uint64_t hash_of_tensors(uint64_t hash, const tensors *t, rnl_dtype dtype)
{
    const int64_t nbytes = rnl_dtype_nbytes(dtype);
    for (int64_t k = 0; k < t->n; k++)
        for (int64_t j = 0; j < t->nelems[k]; j++)
            hash = continued(hash, rnl_load_bits(dtype, (char *)t->data[k] + j * nbytes));
    return hash;
}

static uint64_t hash_of_plan(uint64_t hash, const rnl_spec *spec, const rnl_layout *from,
                             const rnl_layout *to)
{
    rnl_plan *plan = NULL;
    rnl_report report = {.rounded_sums = 0};
    rnl_error err;
    rnl_status status = rnl_plan_new(spec, from, rnl_spec_optional(spec), to, RNL_WEIGHTS, &plan,
                                     &err);
    if (status)
        return continued(hash, status);
    const rnl_dtype from_dtype = (rnl_dtype)random_below(NUM_DTYPES);
    const rnl_dtype to_dtype = (rnl_dtype)random_below(NUM_DTYPES);
    tensors src = tensors_new(from, spec, from_dtype), dst = tensors_new(to, spec, to_dtype);
    status = rnl_plan_run(plan, from_dtype, (const void *const *)src.data, to_dtype, dst.data, NULL,
                          &report, &err);
    hash = continued(continued(hash, status), (uint64_t)rnl_plan_num_ops(plan));
    if (!status)
        hash = hash_of_tensors(continued(hash, (uint64_t)report.rounded_sums), &dst, to_dtype);
    tensors_free(&src);
    tensors_free(&dst);
    rnl_plan_free(plan);
    return hash;
}

static void hash_plans(void)
{
    static layouts every;
    uint64_t hashes[4] = {START, START, START, START};
    every = layouts_all();
    for (int k = 0; k < NUM_PLANS; k++) {
        problem p = random_problem();
        const rnl_layout *const from = &every.all[random_below(every.n)];
        const rnl_layout *const to = &every.all[random_below(every.n)];
        hashes[p.spec.cell] = hash_of_plan(hashes[p.spec.cell], &p.spec, from, to);
        problem_free(&p);
    }
    for (int cell = 0; cell < 4; cell++) {
        char what[64];
        snprintf(what, sizeof what, "plans of %s", rnl_name(RNL_NAMES_CELL, cell));
        compare(what, "any", hashes[cell]);
    }
}

/* ---------------------------------------------------------------------------------- runs -- */

static uint64_t hash_of_numbers(uint64_t hash, const double *numbers, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        uint64_t bits;
        memcpy(&bits, &numbers[k], sizeof bits);
        hash = continued(hash, bits);
    }
    return hash;
}

static uint64_t hash_of_run(uint64_t hash, const problem *p)
{
    const int64_t layers = p->spec.num_layers * p->D;
    rnl_rnn *rnn = prepared(p);
    answer a = fast(p, rnn, (slice){0, p->N, 0, p->T, NULL});
    hash = hash_of_numbers(hash, a.y, p->T * p->N * p->D * p->S);
    hash = hash_of_numbers(hash, a.hn, layers * p->N * p->S);
    hash = hash_of_numbers(hash, a.cn, layers * p->N * p->H);
    answer_free(&a);
    rnl_rnn_free(rnn);
    return hash;
}

static void hash_runs(void)
{
    uint64_t hashes[NUM_DTYPES], bfloat16 = START, int8 = START;
    for (int k = 0; k < NUM_DTYPES; k++)
        hashes[k] = START;
    for (int k = 0; k < NUM_RUNS; k++) {
        problem p = random_problem();
        rnl_set_num_threads(1 + k % 3);
        uint64_t *const of_math[] = {&hashes[p.spec.dtype], &bfloat16, &int8};
        uint64_t *const hash = of_math[p.options.math];
        *hash = hash_of_run(*hash, &p);
        problem_free(&p);
    }
    /* some of the problems have subnormal numbers */
    const char *const tier = RNL_FLUSHES ? rnl_cpu_tier() : "plain_with_subnormals";
    for (int k = 0; k < NUM_DTYPES; k++) {
        char what[64];
        snprintf(what, sizeof what, "runs of %s", rnl_name(RNL_NAMES_DTYPE, k));
        compare(what, tier, hashes[k]);
    }
    compare("runs in bfloat16", tier, bfloat16);
    compare("runs in int8", tier, int8);
}

int main(int argc, char **argv)
{
    prints = argc > 1 && strcmp(argv[1], "print") == 0;
    if (!prints)
        printf("tier %s\n", rnl_cpu_tier());
    hash_plans();
    hash_runs();
    return prints ? 0 : check_end();
}

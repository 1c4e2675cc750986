/*
 * Does the forward pass compute what its header says? Compared with a slow, simple version; and
 * with itself, where the bits must be equal.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cpu/problem.h"
#include "forward/team.h"
#include "kernels/subnormals.h"
#include "system/system.h"

enum { TURNS = 1200 };

static bool same(const double *a, const double *b, int64_t n)
{
    return !memcmp(a, b, (size_t)n * sizeof *a);
}

/* ------------------------------------------------- machines with and without other processes -- */

/* The linker replaces the clock, the barrier, and the report of a crowded call (--wrap). How long
 * each wait of each member takes, how much of that is lost, and how many calls were crowded. */
static int64_t wait_ns, lost_ns;
static int crowded_calls;

static _Atomic int64_t now_ns = 1;
static _Thread_local int64_t stopped_at_ns; /* in a wait, so that the wait itself takes no time */

int64_t __wrap_rnl_now_ns(void);
int64_t __wrap_rnl_now_ns(void)
{
    return stopped_at_ns ? stopped_at_ns : atomic_load(&now_ns);
}

bool __real_rnl_barrier_wait(rnl_barrier *barrier, int members);
bool __wrap_rnl_barrier_wait(rnl_barrier *barrier, int members);
bool __wrap_rnl_barrier_wait(rnl_barrier *barrier, int members)
{
    if (members > 1) {
        atomic_fetch_add(&now_ns, wait_ns);
        atomic_fetch_add(&barrier->lost_ns, lost_ns);
    }
    stopped_at_ns = atomic_load(&now_ns);
    const bool all_exist = __real_rnl_barrier_wait(barrier, members);
    stopped_at_ns = 0;
    return all_exist;
}

/* Not passed on: the next call may share again. */
void __wrap_rnl_team_was_crowded(bool crowded);
void __wrap_rnl_team_was_crowded(bool crowded)
{
    crowded_calls += crowded;
}

/* Waits as on several machines. A call is crowded once it has lost a millisecond, and has taken
 * more than twice as long as one thread would have: of two threads one half of that is work. */
static struct {
    int64_t wait_ns, lost_ns;
    bool crowded;
    int calls; /* that were crowded */
} machines[] = {
    {1000, 990, false},       /* many short waits: on any machine */
    {1000000, 700000, false}, /* other processes take some of the time */
    {1000000, 950000, true},
};

/* Does an RNN, or one like it, give the bits of this answer to the whole problem? */
static void check_again(const problem *p, rnl_rnn *rnn, const answer *whole, bool masked,
                        const char *how)
{
    const int64_t layers = p->spec.num_layers * p->D;
    answer again = fast(p, rnn, (slice){0, p->N, 0, p->T, NULL, masked});
    CHECK(same(again.y, whole->y, p->T * p->N * p->D * p->S) &&
              same(again.hn, whole->hn, layers * p->N * p->S) &&
              (p->spec.cell != RNL_LSTM || same(again.cn, whole->cn, layers * p->N * p->H)),
          "%s, %d threads", how, rnl_num_threads());
    answer_free(&again);
}

/* The same bits if the first member goes on alone; and it does so on a crowded machine only. */
static void check_crowds(const problem *p, rnl_rnn *rnn, const answer *whole)
{
    for (size_t k = 0; k < sizeof machines / sizeof *machines; k++)
        for (int threads = 2; threads <= 3; threads++) {
            rnl_set_num_threads(threads);
            wait_ns = machines[k].wait_ns;
            lost_ns = machines[k].lost_ns;
            check_again(p, rnn, whole, false, "on another machine");
            wait_ns = lost_ns = 0;
            machines[k].calls += crowded_calls;
            crowded_calls = 0;
        }
}

/* Among fewer problems there may be none with so much work that calls are shared. */
static void check_crowded_calls(int turns)
{
    const bool enough = turns >= TURNS / 6;
    for (size_t k = 0; k < sizeof machines / sizeof *machines; k++)
        CHECK(machines[k].crowded ? machines[k].calls > 0 || !enough : machines[k].calls == 0,
              "machine %zu: %d calls", k, machines[k].calls);
}

/* The same bits with other numbers of threads, with a mask, for one sequence alone, and step by
 * step. */
static void check_bits(const problem *p, rnl_rnn *rnn, const answer *whole)
{
    const int64_t wide = p->D * p->S, layers = p->spec.num_layers * p->D;
    for (int threads = 1; threads <= 3; threads++) {
        rnl_set_num_threads(threads);
        check_again(p, rnn, whole, false, "alone");
        check_again(p, rnn, whole, true, "with a mask");
    }
    check_crowds(p, rnn, whole);
    rnl_set_num_threads(1);
    for (int64_t n = 0; n < p->N; n++) {
        answer one = fast(p, rnn, (slice){n, 1, 0, p->T, NULL});
        for (int64_t t = 0; t < p->T; t++)
            CHECK(same(one.y + t * wide, whole->y + (t * p->N + n) * wide, wide),
                  "sequence %" PRId64 " alone, step %" PRId64, n, t);
        answer_free(&one);
    }
    if (p->D == 2 || p->spec.num_layers * p->T == 0 || p->dtype < RNL_FLOAT32)
        return;
    answer states = {NULL, NULL, NULL};
    for (int64_t t = 0; t < p->T; t++) {
        answer next = fast(p, rnn, (slice){0, p->N, t, 1, t ? &states : NULL});
        check_one_step(p, t, t ? &states : NULL, &next);
        CHECK(same(next.y, whole->y + t * p->N * wide, p->N * wide), "step %" PRId64, t);
        answer_free(&states);
        states = next;
    }
    CHECK(same(states.hn, whole->hn, layers * p->N * p->S) &&
              (p->spec.cell != RNL_LSTM || same(states.cn, whole->cn, layers * p->N * p->H)),
          "%s", "states after all steps");
    answer_free(&states);
}

/* The same bits for an RNN that borrows its weights: it reads them directly or packs them first. */
static void check_once(const problem *p, rnl_rnn *rnn, const answer *whole)
{
    const int64_t wide = p->D * p->S, layers = p->spec.num_layers * p->D;
    void *weights = packed(p->weights, p->num_weights, p->spec.dtype);
    rnl_rnn_options options = p->options;
    options.borrows = 1;
    rnl_rnn *once = new_rnn(&p->spec, weights, &options);
    for (int64_t n = 0; p->T > 0 && n < p->N; n++) {
        const slice first = {n, 1, 0, 1, NULL};
        answer a = fast(p, rnn, first), b = fast(p, once, first);
        CHECK(same(a.y, b.y, wide) && same(a.hn, b.hn, layers * p->S), "sequence %" PRId64, n);
        answer_free(&a);
        answer_free(&b);
    }
    check_again(p, once, whole, false, "packed by the call");
    rnl_rnn_free(once);
    free(weights);
}

/* Make a call that is so long that poll is called several times. With two threads, each has rows of
 * its own if N is large; else they share all rows. */
static rnl_status run_long(int threads, int64_t N, int (*poll)(void *), void *arg, rnl_error *err)
{
    enum { I = 100, H = 256 };
    static const float x[I]; /* all steps of all sequences */
    rnl_spec spec = rnl_spec_default(RNL_LSTM, I, H);
    spec.num_layers = 2;
    float *weights = calloc((size_t)num_weights_of(&spec), sizeof *weights);
    rnl_rnn *rnn = new_rnn(&spec, weights, NULL);
    rnl_set_num_threads(threads);
    const rnl_rnn_call call = {
        .T = 400 / N, .N = N, .dtype = RNL_FLOAT32, .x = x, .poll = poll, .poll_arg = arg};
    const rnl_status status = rnl_rnn_run(rnn, &call, err);
    rnl_rnn_free(rnn);
    free(weights);
    rnl_set_num_threads(1);
    return status;
}

static int stop_at_once(void *count)
{
    return ++*(int *)count > 1;
}

/* A stopped call returns RNL_E_INTERRUPTED. */
static void check_interrupt(int threads, int64_t N)
{
    int count = 0;
    rnl_error err;
    CHECK(run_long(threads, N, stop_at_once, &count, &err) == RNL_E_INTERRUPTED, "%d threads",
          threads);
    CHECK(count == 2, "%d questions", count);
}

/* A call that has only zeros to write can be stopped too. All steps of y are the same memory, and
 * all bytes of the mask. */
static void check_zeros(int threads, bool masked)
{
    enum { T = 4000, N = 20, H = 2000 };
    static const int64_t lengths[N];
    static const unsigned char mask[1];
    static float weights[H * (H + 1)], x[1], y[N * H];
    rnl_spec spec = rnl_spec_default(RNL_RNN_RELU, 1, H);
    spec.bias = RNL_BIAS_NONE;
    rnl_error err;
    rnl_rnn *rnn = new_rnn(&spec, weights, NULL);
    int count = 0;
    rnl_set_num_threads(threads);
    rnl_rnn_call call = {.T = T,
                         .N = N,
                         .dtype = RNL_FLOAT32,
                         .x = x,
                         .lengths = masked ? NULL : lengths,
                         .mask = masked ? mask : NULL,
                         .y = y,
                         .y_batch = H,
                         .poll_arg = &count};
    memset(y, 0xa5, sizeof y);
    CHECK(!rnl_rnn_run(rnn, &call, &err), "%s", err.text);
    for (int k = 0; k < N * H; k++)
        CHECK(y[k] == 0, "y[%d] is %g", k, (double)y[k]);
    call.poll = stop_at_once;
    CHECK(rnl_rnn_run(rnn, &call, &err) == RNL_E_INTERRUPTED && count == 2, "%d questions", count);
    rnl_rnn_free(rnn);
    rnl_set_num_threads(1);
}

/* The mode of the caller, but for the flags of exceptions. */
static rnl_float_mode flushes_now(void)
{
    return rnl_float_mode_get() & RNL_FLUSHES;
}

static int see_mode(void *seen)
{
    *(rnl_float_mode *)seen = flushes_now();
    return 0;
}

/* The caller and its poll have the mode that the caller set. */
static void check_mode(int threads)
{
    const rnl_float_mode before = rnl_float_mode_get();
    for (int flushes = 0; flushes < 2; flushes++) {
        const rnl_float_mode wanted = flushes ? RNL_FLUSHES : 0;
        rnl_float_mode seen = ~wanted;
        rnl_error err;
        rnl_float_mode_set((before & ~(rnl_float_mode)RNL_FLUSHES) | wanted);
        CHECK(!run_long(threads, 1, see_mode, &seen, &err), "%s", err.text);
        CHECK(flushes_now() == wanted && seen == wanted, "%d threads, %d", threads, flushes);
        rnl_float_mode_set(before);
    }
}

/* One step in each of the caller's modes, of which some flush operands or results alone. */
static void check_stepper_modes(rnl_rnn *rnn, float x, float right)
{
    const rnl_float_mode before = rnl_float_mode_get(), least = RNL_FLUSHES & -RNL_FLUSHES;
    const rnl_float_mode modes[] = {0, RNL_FLUSHES, least, RNL_FLUSHES & ~least};
    for (size_t k = 0; k < sizeof modes / sizeof *modes; k++) {
        rnl_stepper *s = NULL;
        rnl_error err;
        float y = 1;
        CHECK(!rnl_stepper_new(rnn, RNL_FLOAT32, &s, &err), "%s", err.text);
        rnl_float_mode_set((before & ~(rnl_float_mode)RNL_FLUSHES) | modes[k]);
        rnl_stepper_run(s, &x, &y, 1);
        const rnl_float_mode after = flushes_now();
        rnl_float_mode_set(before);
        CHECK(y == right && after == modes[k], "mode %zu: %g", k, (double)y);
        rnl_stepper_free(s);
    }
}

/* A step of h' = relu(w x): x and w x are zero if they are subnormal, on CPUs with such a mode. */
static void check_subnormals(void)
{
    static const struct {
        float x, w;
        bool is_subnormal;
    } cases[] = {{0x1p-126F, 1, false},       {0x1p-127F, 1, true}, {0x1p-127F, 4, true},
                 {0x1p-100F, 0x1p-27F, true}, {1, 0x1p-127F, true}, {1, -0x1p-127F, true}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const bool flushes = RNL_FLUSHES != 0 && cases[k].is_subnormal;
        const float weights[] = {cases[k].w, 0}, x[] = {cases[k].x, cases[k].x};
        const float product = cases[k].x * cases[k].w, right = flushes || product < 0 ? 0 : product;
        float y[2] = {1, 1};
        rnl_spec spec = rnl_spec_default(RNL_RNN_RELU, 1, 1);
        spec.bias = RNL_BIAS_NONE;
        rnl_rnn *rnn = new_rnn(&spec, weights, NULL);
        rnl_error err;
        rnl_rnn_call call = {
            .dtype = RNL_FLOAT32, .N = 1, .x = x, .x_time = 1, .y = y, .y_time = 1};
        for (call.T = 1; call.T <= 2; call.T++) {
            CHECK(!rnl_rnn_run(rnn, &call, &err), "%s", err.text);
            CHECK(y[call.T - 1] == right, "case %zu: %g", k, (double)y[call.T - 1]);
        }
        check_stepper_modes(rnn, x[0], right);
        rnl_rnn_free(rnn);
    }
}

/* h' = o tanh(c) = 2^-127, from c = i g = 2^-126: what the last instruction gives is subnormal. */
static void check_subnormal_result(void)
{
    const float weights[8] = {[2] = 1}; /* of g: the other gates are 1/2 */
    rnl_spec spec = rnl_spec_default(RNL_LSTM, 1, 1);
    spec.bias = RNL_BIAS_NONE;
    rnl_rnn *rnn = new_rnn(&spec, weights, NULL);
    check_stepper_modes(rnn, 0x1p-125F, RNL_FLUSHES ? 0 : 0x1p-127F);
    check_stepper_modes(rnn, 0x1p-124F, 0x1p-126F);
    rnl_rnn_free(rnn);
}

int main(void)
{
    const int turns = check_turns(TURNS);
    printf("tier %s\n", rnl_cpu_tier());
    for (int turn = 0; turn < turns; turn++) {
        problem p = random_problem();
        rnl_rnn *rnn = prepared(&p);
        rnl_set_num_threads(1 + turn % 2);
        answer right = slow(&p), whole = fast(&p, rnn, (slice){0, p.N, 0, p.T, NULL});
        check_close(&p, &right, &whole);
        check_bits(&p, rnn, &whole);
        check_once(&p, rnn, &whole);
        answer_free(&right);
        answer_free(&whole);
        rnl_rnn_free(rnn);
        problem_free(&p);
    }
    check_crowded_calls(turns);
    check_subnormals();
    check_subnormal_result();
    for (int threads = 1; threads <= 2; threads++) {
        check_zeros(threads, false);
        check_zeros(threads, true);
        check_mode(threads);
        for (int64_t N = 1; N <= 40; N += 39)
            check_interrupt(threads, N);
    }
    return check_end();
}

/*
 * Does a stepper compute what a call of the forward pass computes, bit for bit, and is it real-time
 * safe? Allocations and locks are counted.
 */
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocations.h"
#include "check.h"
#include "cpu/problem.h"

enum { TURNS = 600 };

/* -------------------------------------------------------------------- what must not happen -- */

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    taken++;
    return __real_pthread_mutex_lock(mutex);
}

/* ------------------------------------------------------------------------------ a stepper -- */

/* A problem of one sequence: the first of another one, without lengths. */
static problem one_sequence(void)
{
    problem p = random_problem();
    while (p.D == 2 || p.N == 0 || p.T == 0) {
        problem_free(&p);
        p = random_problem();
    }
    p.has_lengths = false;
    return p;
}

/* Arrays of the first sequence: (T, I), states, (T, P), states. */
typedef struct arrays {
    char *x, *h, *c, *y, *hn, *cn;
} arrays;

/* Numbers of the first sequence, in the dtype of x. from: [block][N][width]. */
static char *first_of(const problem *p, const double *from, int64_t blocks, int64_t width)
{
    double *some = malloc((size_t)(blocks * width) * sizeof *some);
    for (int64_t k = 0; k < blocks; k++)
        memcpy(some + k * width, from + k * p->N * width, (size_t)width * sizeof *some);
    char *const to = packed(some, blocks * width, p->dtype);
    free(some);
    return to;
}

/* All the functions that are real-time safe: run all T steps, some at a time. */
static void run(const problem *p, rnl_stepper *s, const arrays *a)
{
    const int64_t nbytes = rnl_dtype_nbytes(p->dtype);
    rnl_stepper_reset(s);
    if (p->has_states)
        rnl_stepper_set(s, a->h, a->c);
    for (int64_t t = 0, n; t < p->T; t += n) {
        n = random_below(p->T - t + 1);
        char *const y = a->y ? a->y + t * p->S * nbytes : NULL;
        rnl_stepper_run(s, a->x + t * p->spec.input_size * nbytes, y, n);
    }
    rnl_stepper_get(s, a->hn, a->cn);
}

static void check_numbers(const problem *p, const char *found, const double *wanted, int64_t n,
                          const char *what)
{
    char *const right = packed(wanted, n, p->dtype);
    CHECK(!memcmp(found, right, (size_t)(n * rnl_dtype_nbytes(p->dtype))),
          "%s: cell %d, dtype %d, I %" PRId64 ", H %" PRId64, what, (int)p->spec.cell,
          (int)p->spec.dtype, p->spec.input_size, p->H);
    free(right);
}

/* In a child that may only read, write and end: SECCOMP_MODE_STRICT kills it for any other system
 * call, such as one of `spoils`. */
static bool child_ends_well(const problem *p, rnl_stepper *s, const arrays *a, bool spoils)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
            _exit(3);
        run(p, s, a);
        if (spoils)
            syscall(SYS_getpid);
        syscall(SYS_exit, 0);
    }
    int ended = -1;
    CHECK(waitpid(child, &ended, 0) == child, "%d", (int)child);
    if (spoils)
        return WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL;
    return WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
}

static void check_real_time(const problem *p, rnl_stepper *s, const arrays *a)
{
    const long before = live;
    taken = 0;
    run(p, s, a);
    CHECK(taken == 0 && live == before, "%ld calls that a live signal cannot wait for", taken);
    void *volatile block = malloc(1);
    free(block);
    CHECK(taken == 1, "%s", "an allocation is seen");
    CHECK(child_ends_well(p, s, a, false), "%s", "a system call");
    CHECK(child_ends_well(p, s, a, true), "%s", "a system call is seen");
}

static void check_problem(bool in_child)
{
    problem p = one_sequence();
    rnl_rnn *rnn = prepared(&p);
    const int64_t L = p.spec.num_layers, nbytes = rnl_dtype_nbytes(p.dtype);
    answer whole = fast(&p, rnn, (slice){0, 1, 0, p.T, NULL});
    const arrays a = {first_of(&p, p.x, p.T, p.spec.input_size),
                      first_of(&p, p.h0, L, p.S),
                      first_of(&p, p.c0, L, p.H),
                      malloc((size_t)(p.T * p.S * nbytes)),
                      malloc((size_t)(L * p.S * nbytes)),
                      malloc((size_t)(L * p.H * nbytes))};
    rnl_error err;
    rnl_stepper *s = NULL;
    CHECK(!rnl_stepper_new(rnn, p.dtype, &s, &err), "%s", err.text);
    /* once more, without y and c, and with y over x if they are of one size */
    arrays ways[] = {a, a, {a.x, a.h, a.c, NULL, a.hn, NULL}, {a.x, a.h, a.c, a.x, a.hn, a.cn}};
    for (int way = 0; way < (p.spec.input_size == p.S ? 4 : 3); way++) {
        run(&p, s, &ways[way]);
        check_numbers(&p, a.hn, whole.hn, L * p.S, "h");
        if (ways[way].y)
            check_numbers(&p, ways[way].y, whole.y, p.T * p.S, "y");
        if (ways[way].cn && p.spec.cell == RNL_LSTM)
            check_numbers(&p, a.cn, whole.cn, L * p.H, "c");
        if (way == 0 && in_child)
            check_real_time(&p, s, &a);
    }
    rnl_stepper_free(s);
    free(a.x);
    free(a.h);
    free(a.c);
    free(a.y);
    free(a.hn);
    free(a.cn);
    answer_free(&whole);
    rnl_rnn_free(rnn);
    problem_free(&p);
}

/* An RNN that borrows its weights, has so many inputs that those of several steps are added at
 * once, and gets new weights. */
static void check_rest(void)
{
    enum { I = 40, H = 20, NELEMS = H * (I + H) };
    static float weights[NELEMS], others[NELEMS];
    for (int k = 0; k < NELEMS; k++)
        others[k] = (float)(weights[k] = (float)random_below(64) / 256) / 2;
    rnl_error err;
    rnl_stepper *s = NULL;
    rnl_spec spec = rnl_spec_default(RNL_RNN_RELU, I, H);
    spec.bias = RNL_BIAS_NONE;
    const rnl_rnn_options borrows = {.borrows = 1};
    rnl_rnn *rnn = new_rnn(&spec, weights, &borrows);
    CHECK(!rnl_stepper_new(rnn, RNL_FLOAT32, &s, &err), "%s", err.text);
    const float x[2 * I] = {1, 2, 3, [I] = 1, 3, 2};
    float both[2 * H], y[2 * H], half[H];
    rnl_stepper_run(s, x, both, 2);
    rnl_stepper_reset(s);
    rnl_stepper_run(s, x, y, 1);
    rnl_stepper_run(s, x + I, y + H, 1);
    CHECK(!memcmp(both, y, sizeof y), "%s", "two steps at once");
    rnl_rnn_update(rnn, others);
    rnl_stepper_reset(s);
    rnl_stepper_run(s, x, half, 1);
    for (int k = 0; k < H; k++)
        CHECK(y[k] > 0 && half[k] == y[k] / 2, "%g, then %g", (double)y[k], (double)half[k]);
    rnl_stepper_run(s, x, half, 0);
    rnl_stepper_free(s);
    rnl_rnn_free(rnn);
    rnl_stepper_free(NULL);
}

int main(void)
{
    const int turns = check_turns(TURNS);
    printf("tier %s\n", rnl_cpu_tier());
    for (int turn = 0; turn < turns; turn++)
        check_problem(turn % 4 == 0);
    check_rest();
    return check_end();
}

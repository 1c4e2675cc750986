/* Run a call: check the arguments, split the call into tasks, place the buffers, run the team. */
#include <inttypes.h>
#include <string.h>

#include "core/lengths.h"
#include "core/status.h"
#include "forward/running.h"
#include "forward/stepper.h"
#include "forward/work.h"
#include "system/system.h"

enum {
    ROWS_AT_ONCE = 96,  /* rows per product of the input: the sums of a few tiles stay in L2 */
    ROWS_OF_DIRECT = 1, /* with more rows, weights are packed first                          */
    ROWS_OF_A_TILE = 6  /* a member with as many rows is at full speed                       */
};

/* Split the call into tasks and return the number of members worth using. */
static int split(rnl_running *run)
{
    const rnl_rnn *rnn = run->rnn;
    const int64_t N = run->call->N, threads = rnl_min(rnl_num_threads(), RNL_MAX_THREADS);
    const double work = rnl_recurrence_work(rnn) * (double)N;
    run->num_tasks = 1;
    if (threads == 1 || work * (double)run->call->T < RNL_WORK_OF_A_CALL)
        return 1;
    if (N >= threads * ROWS_OF_A_TILE) {
        run->num_tasks = (int)threads;
        return (int)threads;
    }
    if (rnl_num_directions(&rnn->spec) == 2) {
        run->num_tasks = 2;
        run->by_direction = true;
    }
    if (rnl_team_is_crowded())
        return run->num_tasks;
    const int64_t members = run->num_tasks * rnl_members_worth(rnn, work);
    return (int)(members < threads ? members : threads / run->num_tasks * run->num_tasks);
}

/* Return the first row of task k. Rows are dealt in turn: the first N % num_tasks have one more.
 */
static int64_t first_row(const rnl_running *run, int k)
{
    const int64_t N = run->call->N, tasks = run->num_tasks;
    return N / tasks * k + rnl_min(k, N % tasks);
}

static void describe_tasks(rnl_running *run, rnl_task *tasks)
{
    const int64_t N = run->call->N;
    const int num_directions = rnl_num_directions(&run->rnn->spec);
    run->tasks = tasks;
    for (int k = 0; k < run->num_tasks; k++) {
        rnl_task *task = &tasks[k];
        memset(task, 0, sizeof *task);
        task->rows = N;
        task->rank_step = 1;
        task->last_direction = num_directions - 1;
        if (run->by_direction)
            task->first_direction = task->last_direction = k;
        else if (run->num_tasks > 1) {
            task->first_row = first_row(run, k);
            task->rows = first_row(run, k + 1) - task->first_row;
            task->first_rank = k;
            task->rank_step = run->num_tasks;
        }
        rnl_barrier_init(&task->barrier);
        atomic_init(&task->stop_at, INT64_MAX);
        atomic_init(&task->alone_from, INT64_MAX);
    }
}

/* Place the buffers of the tasks, and the buffers between layers, in memory and return the size;
 * memory NULL: only the size. */
static rnl_size place_buffers(rnl_running *run, rnl_task *tasks, int members, char *memory)
{
    const rnl_rnn *rnn = run->rnn;
    const rnl_spec *spec = &rnn->spec;
    const int64_t real = rnl_real_nbytes(run), T = run->call->T, N = run->call->N;
    rnl_arena arena = {.memory = memory};
    int64_t widest = spec->skip_input ? run->units : spec->input_size;
    if (spec->num_layers > 1 && rnl_layer_input(spec, 1) > widest)
        widest = rnl_layer_input(spec, 1);
    int64_t most_rows = 0;
    for (int k = 0; k < run->num_tasks; k++) {
        rnl_task *const task = &tasks[k];
        const int64_t rows = task->rows, at_once = rows * run->steps_at_once;
        most_rows = at_once > most_rows ? at_once : most_rows;
        task->input = rnl_arena_take(&arena, at_once, widest, real);
        task->sums = rnl_arena_take(&arena, at_once, rnl_sums_row(rnn), real);
        task->states.h[0] = rnl_arena_take(&arena, rows, run->state, real);
        task->states.h[1] = rnl_arena_take(&arena, rows, run->state, real);
        if (rnl_cell_facts_of(spec->cell)->has_c)
            task->states.c = rnl_arena_take(&arena, rows, run->units, real);
        if (spec->proj_size)
            task->states.full = rnl_arena_take(&arena, rows, run->units, real);
        if (rnn->kind == RNL_STEP_GRU_BEFORE)
            task->states.reset = rnl_arena_take(&arena, rows, run->units, real);
    }
    run->scratch_nbytes = rnl_scratch_nbytes(rnn, most_rows, widest);
    run->scratch = rnl_arena_take(&arena, members, run->scratch_nbytes, 1);
    for (int64_t k = 0; k < rnl_min(2, spec->num_layers - 1); k++) {
        const rnl_size steps = rnl_size_mul(rnl_size_of(T), rnl_size_of(N));
        run->between[k] = rnl_arena_take(&arena, steps.overflow ? INT64_MAX : steps.n,
                                         rnl_layer_input(spec, 1), real);
    }
    if (run->call->lengths || run->call->mask) {
        run->order = (int64_t *)(void *)rnl_arena_take(&arena, N, 1, sizeof(int64_t));
        run->active = (int64_t *)(void *)rnl_arena_take(&arena, T, 1, sizeof(int64_t));
    }
    if (run->call->mask) {
        run->counts = (int64_t *)(void *)rnl_arena_take(&arena, N, 1, sizeof(int64_t));
        run->times = (int64_t *)(void *)rnl_arena_take(&arena, N, T, sizeof(int64_t));
    }
    return arena.used;
}

/* Sort the rows by falling length, with equal lengths in the original order, deal the rows to the
 * tasks, and count the active rows of each time. */
static void sort_rows(const rnl_running *run)
{
    const int64_t T = run->T, N = run->call->N, rank_step = run->tasks->rank_step;
    const int64_t *const lengths = run->lengths;
    int64_t *const active = run->active;
    memset(active, 0, (size_t)T * sizeof *active);
    for (int64_t n = 0; n < N; n++) /* first the number of rows that end at each time ... */
        if (lengths[n] > 0)
            active[lengths[n] - 1]++;
    for (int64_t t = T - 2; t >= 0; t--) /* ... then the number of active rows */
        active[t] += active[t + 1];
    /* rows of length l begin at the number of longer rows: active[l - 1] counts down to it */
    int64_t empty = N;
    for (int64_t n = N; n-- > 0;) {
        int64_t *const end = lengths[n] > 0 ? &active[lengths[n] - 1] : &empty;
        const int64_t place = --*end;
        run->order[run->tasks[place % rank_step].first_row + place / rank_step] = n;
    }
    /* active[l - 1] is now the number of longer rows: count up again */
    for (int64_t n = 0; n < N; n++)
        if (lengths[n] > 0)
            active[lengths[n] - 1]++;
}

/* Did the members of a task wait for each other for so long that a member went on alone? */
static bool was_crowded(const rnl_running *run)
{
    for (int k = 0; k < run->num_tasks; k++)
        if (atomic_load(&run->tasks[k].alone_from) < INT64_MAX)
            return true;
    return false;
}

/* Is the call a single step of a single sequence, too short for threads? */
static bool is_small_step(const rnl_rnn *rnn, const rnl_rnn_call *call)
{
    return call->T == 1 && call->N == 1 && !call->lengths && !call->mask && rnn->panels &&
           !rnn->spec.bidirectional && rnl_recurrence_work(rnn) < RNL_WORK_OF_A_CALL;
}

static rnl_status run_small_step(rnl_rnn *rnn, const rnl_rnn_call *call, rnl_error *err)
{
    rnl_stepper stepper;
    const rnl_size size = rnl_stepper_place(&stepper, rnn, call->dtype, NULL);
    rnl_workspace *const workspace = size.overflow ? NULL : rnl_workspace_take(rnn, size.n);
    if (!workspace)
        return rnl_fail(err, RNL_E_NOMEM, "no memory for a call with T = 1, N = 1");
    rnl_stepper_place(&stepper, rnn, call->dtype, workspace->data);
    rnl_stepper_set(&stepper, call->h0, call->c0);
    rnl_stepper_run(&stepper, call->x, call->y, 1);
    rnl_stepper_get(&stepper, call->hn, call->cn);
    rnl_workspace_give(rnn, workspace);
    return RNL_OK;
}

rnl_status rnl_rnn_run(rnl_rnn *rnn, const rnl_rnn_call *call, rnl_error *err)
{
    rnl_status status = rnl_rnn_check_dtype(rnn, call->dtype, err);
    if (!status)
        status = rnl_lengths_check(call->T, call->N, call->lengths, err);
    if (!status && call->lengths && call->mask)
        status = rnl_fail(err, RNL_E_LAYOUT, "lengths and mask both say which steps count");
    if (!status && !rnn->panels && (double)call->T * (double)call->N > ROWS_OF_DIRECT)
        status = rnl_rnn_pack(rnn, err);
    if (status || call->N == 0)
        return status;
    if (is_small_step(rnn, call))
        return run_small_step(rnn, call, err);
    rnl_running run = {.rnn = rnn,
                       .call = call,
                       .units = rnl_padded(rnn, rnn->blocks),
                       .state = rnl_padded(rnn, rnn->state_blocks),
                       .T = call->T,
                       .lengths = call->lengths,
                       .steps_at_once = rnl_min(call->T, (ROWS_AT_ONCE - 1) / call->N + 1)};
    rnl_task tasks[RNL_MAX_THREADS];
    const int members = split(&run);
    describe_tasks(&run, tasks);
    const rnl_size size = place_buffers(&run, tasks, members, NULL);
    rnl_workspace *const workspace = size.overflow ? NULL : rnl_workspace_take(rnn, size.n);
    if (!workspace)
        return rnl_fail(err, RNL_E_NOMEM, "no memory for a call with T = %" PRId64 ", N = %" PRId64,
                        call->T, call->N);
    place_buffers(&run, tasks, members, workspace->data);
    if (call->mask)
        rnl_mask_read(&run);
    if (run.lengths)
        sort_rows(&run);
    atomic_init(&run.stop, 0);
    atomic_init(&run.stop_layer, INT64_MAX);
    rnl_barrier_init(&run.all);
    run.began_ns = rnl_now_ns();
    run.callers_mode = rnl_flush_subnormals(); /* in this thread; helpers copy the mode */
    const bool all_worked = rnl_team_run(members, rnl_run_member, &run);
    rnl_float_mode_restore(run.callers_mode);
    if (members > run.num_tasks)
        rnl_team_was_crowded(was_crowded(&run));
    if (call->mask && all_worked && !atomic_load(&run.stop) && !rnl_mask_fill(&run))
        atomic_store(&run.stop, 1);
    rnl_workspace_give(rnn, workspace);
    return rnl_team_status(all_worked, atomic_load(&run.stop), err);
}

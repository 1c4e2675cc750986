/* The recurrence: the work of a member of the team in a call, by layers and steps. */
#include <string.h>

#include "forward/running.h"
#include "forward/work.h"
#include "kernels/kernels.h"
#include "system/system.h"

enum {
    NOTICED_NS = 2000000 /* a call that has lost less is not crowded: a sleeping CPU
                            of a virtual machine wakes up in 1 ms, and the time slice
                            of another process is 3 ms                             */
};

/* An array of steps and rows: element (t, row, k) is base[offset_of(t, row) + k], where base is
 * read or write. */
typedef struct series {
    const char *read;
    char *write;
    rnl_dtype dtype;
    int64_t time, batch;
    const int64_t *order; /* row -> row in memory; NULL: equal              */
    const int64_t *times; /* with a mask, (row in memory, T): step -> time in memory */
    int64_t T;
} series;

/* A member of the team that computes blocks of a task, in a layer and direction. */
typedef struct worker {
    rnl_running *run;
    rnl_task *task;
    int64_t layer;
    int direction;
    int member, members;
    int64_t first, last;             /* blocks of hidden units */
    int64_t first_state, last_state; /* blocks of the state    */
    bool polls;                      /* calls the caller's poll */
    rnl_recurrence job;
} worker;

/* ------------------------------------------------------------------------------ stopping -- */

/* Call the caller's poll if enough work was done since the last poll. */
static void poll_caller(const worker *w, int64_t work)
{
    const rnl_rnn_call *call = w->run->call;
    w->task->since_poll += work;
    if (!call->poll || w->task->since_poll < RNL_WORK_OF_A_POLL)
        return;
    w->task->since_poll = 0;
    rnl_float_mode_restore(w->run->callers_mode);
    const int stop = call->poll(call->poll_arg);
    w->run->callers_mode = rnl_flush_subnormals();
    if (stop)
        atomic_store(&w->run->stop, 1);
}

/* Must the task stop? Called between two pieces of a step: the task's first member decides, and all
 * members read the decision by the next wait. */
static bool stops_here(const worker *w, int64_t step, int64_t work)
{
    if (w->member == 0) {
        if (w->polls)
            poll_caller(w, work);
        if (atomic_load_explicit(&w->run->stop, memory_order_relaxed))
            atomic_store(&w->task->stop_at, step);
    }
    return atomic_load_explicit(&w->task->stop_at, memory_order_acquire) <= step;
}

static void wait_for_task(const worker *w)
{
    (void)rnl_barrier_wait(&w->task->barrier, w->members);
}

/* Return the number of a step, counted over all layers and directions. */
static int64_t place_of(const worker *w, int64_t step)
{
    return (w->layer * 2 + w->direction) * w->run->T + step;
}

/* Give all blocks of the task to the first member. */
static void take_all(worker *w)
{
    w->members = 1;
    w->first = w->first_state = 0;
    w->last = w->run->rnn->blocks;
    w->last_state = w->run->rnn->state_blocks;
    rnl_recurrence_blocks(&w->job, w->first, w->last, w->first_state, w->last_state);
}

/* Has the call taken more than twice as long as a single member would have needed for the work of
 * all members? Then the members wait for each other because other processes use the CPUs. */
static bool is_crowded(const worker *w)
{
    const int64_t lost = atomic_load_explicit(&w->task->barrier.lost_ns, memory_order_relaxed);
    if (lost < NOTICED_NS)
        return false;
    const int64_t elapsed = rnl_now_ns() - w->run->began_ns;
    return elapsed > (elapsed - lost) * w->members * 2;
}

/* Wait at the end of a step. In a crowd the first member goes on alone. False: this member has to
 * leave. */
static bool end_step(worker *w, int64_t step)
{
    rnl_task *task = w->task;
    if (w->members == 1)
        return true;
    const int64_t place = place_of(w, step);
    if (w->member == 0 && is_crowded(w))
        atomic_store(&task->alone_from, place);
    if (!rnl_barrier_wait(&task->barrier, w->members))
        return false;
    if (atomic_load_explicit(&task->alone_from, memory_order_acquire) > place)
        return true;
    if (w->member == 0)
        take_all(w);
    return w->member == 0;
}

/* -------------------------------------------------------------------------------- copies -- */

/* Return the first element of a row at a time, counted from the base of the series. */
static int64_t offset_of(const series *s, int64_t time, int64_t row)
{
    const int64_t n = s->order ? s->order[row] : row;
    return (s->times ? s->times[n * s->T + time] : time) * s->time + n * s->batch;
}

/* Return the number of rows, from the first row on, that are at equal distances in memory. */
static int64_t even_rows(const series *s, int64_t time, int64_t first_row, int64_t rows,
                         int64_t *apart)
{
    *apart = s->batch;
    if (!s->order || rows < 2)
        return rows;
    int64_t n = 1, last = offset_of(s, time, first_row), next = offset_of(s, time, first_row + 1);
    *apart = next - last;
    while (next - last == *apart && ++n < rows) {
        last = next;
        next = offset_of(s, time, first_row + n);
    }
    return n;
}

/* Copy some columns of some rows of a series to another series. first_row is a row of the batch. */
static void copy_rows(const series *from, int64_t from_time, const series *to, int64_t to_time,
                      int64_t first_row, int64_t rows, int64_t cols)
{
    rnl_job job = {.src_dtype = from->dtype, .dst_dtype = to->dtype, .cols = cols};
    const int64_t src_nbytes = rnl_dtype_nbytes(from->dtype);
    const int64_t dst_nbytes = rnl_dtype_nbytes(to->dtype);
    for (int64_t k = 0; k < rows; k += job.rows) {
        const int64_t row = first_row + k;
        int64_t from_apart, to_apart; /* at most one of the series has an order */
        job.rows = even_rows(from, from_time, row, rows - k, &from_apart);
        job.rows = even_rows(to, to_time, row, job.rows, &to_apart);
        job.src = from->read + offset_of(from, from_time, row) * src_nbytes;
        job.dst = to->write + offset_of(to, to_time, row) * dst_nbytes;
        job.src_grid = (rnl_grid){from_apart, 1};
        job.dst_grid = (rnl_grid){to_apart, 1};
        rnl_copy(&job);
    }
}

/* Return a buffer of the task as a series. The row numbers are rows of the whole batch. */
static series buffer_series(const worker *w, char *buffer, int64_t time, int64_t batch)
{
    char *const base = buffer - w->task->first_row * batch * rnl_real_nbytes(w->run);
    return (series){
        .read = base, .write = base, .dtype = w->run->rnn->real, .time = time, .batch = batch};
}

/* Return the layer's input, or output. */
static series input_of(const worker *w)
{
    const rnl_running *run = w->run;
    const rnl_rnn_call *call = run->call;
    if (w->layer == 0)
        return (series){.read = call->x,
                        .dtype = call->dtype,
                        .time = call->x_time,
                        .batch = call->x_batch,
                        .order = run->order,
                        .times = run->times,
                        .T = call->T};
    const int64_t width = rnl_layer_input(&run->rnn->spec, w->layer);
    return (series){.read = run->between[(w->layer - 1) & 1],
                    .dtype = run->rnn->real,
                    .time = call->N * width,
                    .batch = width};
}

static series output_of(const worker *w)
{
    const rnl_running *run = w->run;
    const rnl_rnn_call *call = run->call;
    const rnl_spec *spec = &run->rnn->spec;
    if (w->layer == spec->num_layers - 1)
        return (series){.write = call->y,
                        .dtype = call->dtype,
                        .time = call->y_time,
                        .batch = call->y_batch,
                        .order = run->order,
                        .times = run->times,
                        .T = call->T};
    const int64_t width = rnl_layer_input(spec, w->layer + 1);
    return (series){.write = run->between[w->layer & 1],
                    .dtype = run->rnn->real,
                    .time = call->N * width,
                    .batch = width};
}

/* Return the layer and direction of a state of the caller, (L * D, N, width), to read or to write.
 */
static series state_of(const worker *w, const char *read, char *write, int64_t width)
{
    const rnl_running *run = w->run;
    const rnl_dtype dtype = run->call->dtype;
    const int64_t layer = w->layer * rnl_num_directions(&run->rnn->spec) + w->direction;
    const int64_t at = layer * run->call->N * width * rnl_dtype_nbytes(dtype);
    return (series){.read = read ? read + at : NULL,
                    .write = write ? write + at : NULL,
                    .dtype = dtype,
                    .batch = width,
                    .order = run->order};
}

/* -------------------------------------------------------------------------------- states -- */

static void put_state(const worker *w, const void *initial, int64_t width, char *buffer,
                      int64_t padded)
{
    const rnl_task *task = w->task;
    if (!initial) {
        memset(buffer, 0, (size_t)(task->rows * padded * rnl_real_nbytes(w->run)));
        return;
    }
    const series from = state_of(w, initial, NULL, width), to = buffer_series(w, buffer, 0, padded);
    copy_rows(&from, 0, &to, 0, task->first_row, task->rows, width);
}

static void begin_states(const worker *w)
{
    const rnl_running *run = w->run;
    const rnl_spec *spec = &run->rnn->spec;
    for (int k = 0; k < 2; k++)
        put_state(w, run->call->h0, rnl_state_size(spec), w->task->states.h[k], run->state);
    if (rnl_cell_facts_of(spec->cell)->has_c)
        put_state(w, run->call->c0, spec->hidden_size, w->task->states.c, run->units);
}

/* Copy the final states. A row that has ended keeps the state: the length of the row decides which
 * buffer has the state. */
static void end_states(const worker *w)
{
    const rnl_running *run = w->run;
    const rnl_rnn_call *call = run->call;
    const rnl_spec *spec = &run->rnn->spec;
    const rnl_task *task = w->task;
    for (int64_t row = task->first_row; call->hn && row < task->first_row + task->rows; row++) {
        const int64_t length = run->order ? run->lengths[run->order[row]] : run->T;
        const int buffer = w->direction ? 0 : (int)(length & 1);
        const series to = state_of(w, NULL, call->hn, rnl_state_size(spec));
        const series from = buffer_series(w, task->states.h[buffer], 0, run->state);
        copy_rows(&from, 0, &to, 0, row, 1, rnl_state_size(spec));
    }
    if (call->cn && rnl_cell_facts_of(spec->cell)->has_c) {
        const series to = state_of(w, NULL, call->cn, spec->hidden_size);
        const series from = buffer_series(w, task->states.c, 0, run->units);
        copy_rows(&from, 0, &to, 0, task->first_row, task->rows, spec->hidden_size);
    }
}

/* Return the number of rows of the task that have not ended at a time. */
static int64_t active_rows(const worker *w, int64_t time)
{
    const rnl_task *task = w->task;
    if (!w->run->active)
        return task->rows;
    return (w->run->active[time] - task->first_rank + task->rank_step - 1) / task->rank_step;
}

/* ------------------------------------------------------------------------------ products -- */

/* Return the kernel of products from the panels, or from the caller's weights. */
static rnl_product_fn *kernel_of(const worker *w)
{
    const rnl_rnn *rnn = w->run->rnn;
    return rnn->panels ? rnn->kernels->product : rnn->kernels->direct;
}

/* Compute a product in pieces of some rows; between two pieces the task may stop. */
static void multiply(const worker *w, rnl_product job, int64_t step, rnl_product_fn *kernel)
{
    const int64_t real = rnl_real_nbytes(w->run), rows = job.rows;
    const int64_t row_work = rnl_product_work(&job, w->run->rnn->kernels->lanes);
    const int64_t few = RNL_WORK_OF_A_PIECE / (row_work + 1) + 1, many = w->run->rnn->kernels->rows;
    const int64_t at_once = rnl_min(rows, few > many ? few : many);
    for (int64_t row = 0; row < rows; row += at_once) {
        const rnl_product piece = rnl_product_piece(&job, row, at_once, real);
        kernel(&piece);
        if (stops_here(w, step, row_work * piece.rows))
            return;
    }
}

/* Is the input multiplied by a matrix? Otherwise the input itself is added. */
static bool adds_product(const worker *w)
{
    return w->job.input.of->gates > 0;
}

/* Use x in place, without a copy, if the rows of all steps are at equal distances in memory. A
 * single step is always copied: the output may be written over the input. */
static bool reads_in_place(const worker *w, int64_t from, int64_t steps, rnl_product *job)
{
    const rnl_running *run = w->run;
    const series x = input_of(w);
    const int64_t rows = active_rows(w, from), row = w->task->first_row;
    int64_t apart;
    if (job->rows == 0)
        return true;
    if (x.dtype != run->rnn->real || run->call->T == 1 || !adds_product(w) ||
        even_rows(&x, from, row, rows, &apart) < rows)
        return false;
    const int64_t first = offset_of(&x, from, row);
    const bool one_by_one = rows == 1, one_step = job->rows == rows;
    if (one_by_one && offset_of(&x, from + job->rows - 1, row) != first + (job->rows - 1) * x.time)
        return false; /* a mask leaves out a step */
    if (!one_by_one && !one_step && (x.times || job->rows < rows * steps || x.time != rows * apart))
        return false;
    job->x = x.read + first * rnl_real_nbytes(run);
    job->x_row = one_by_one ? x.time : apart;
    return true;
}

/* Copy the inputs of some steps to the buffer of the task. */
static void copy_inputs(const worker *w, int64_t from, int64_t to, rnl_product *job)
{
    const int64_t K = rnl_layer_input(&w->run->rnn->spec, w->layer);
    const series x = input_of(w);
    char *const input = w->task->input;
    job->x = input;
    job->x_row = adds_product(w) ? K : w->run->units;
    for (int64_t t = from, row = 0; t < to; t++) {
        const int64_t rows = active_rows(w, t);
        const series copy = buffer_series(w, input + row * job->x_row * rnl_real_nbytes(w->run), 0,
                                          job->x_row);
        if ((t - from) % w->members == w->member)
            copy_rows(&x, t, &copy, 0, w->task->first_row, rows, K);
        row += rows;
    }
    wait_for_task(w);
}

/* Add the input's product to the sums of some steps. The sums of active rows follow each other.
 * Return the number of these rows. */
static int64_t add_inputs(const worker *w, int64_t from, int64_t to, int64_t now)
{
    rnl_product job = w->job.input;
    job.rows = 0;
    for (int64_t t = from; t < to; t++)
        job.rows += active_rows(w, t);
    job.acc = w->task->sums;
    if (!reads_in_place(w, from, to - from, &job))
        copy_inputs(w, from, to, &job);
    multiply(w, job, now, adds_product(w) ? kernel_of(w) : w->run->rnn->kernels->add_input);
    return job.rows;
}

/* Add the state's product to the sums and compute the gates. */
static void advance(const worker *w, const rnl_rnn_step *job, int64_t now)
{
    const rnl_rnn *rnn = w->run->rnn;
    if (job->state.rows == 1 && rnn->panels) {
        rnl_rnn_step_row(rnn->kernels, job);
        (void)stops_here(w, now, rnl_product_work(&job->state, rnn->kernels->lanes));
    } else {
        multiply(w, job->state, now, kernel_of(w));
        rnn->kernels->gates(&job->gates);
    }
}

/* Compute a step of the recurrence, from the sums of the inputs to the next state. */
static void step(worker *w, char *sums, const char *before, char *after, int64_t rows, int64_t now)
{
    rnl_recurrence *const job = &w->job;
    rnl_recurrence_rows(job, rows);
    rnl_recurrence_sums(job, sums);
    rnl_recurrence_states(job, before, after, now & 1);
    advance(w, &job->step, now);
    if (job->renews) {
        wait_for_task(w);
        advance(w, &job->renew, now);
    }
    if (job->projects) {
        wait_for_task(w);
        multiply(w, job->project, now, kernel_of(w));
    }
}

/* Zero some columns of some rows. */
static void zero_rows(const series *to, int64_t time, int64_t first_row, int64_t rows, int64_t cols)
{
    const int64_t nbytes = rnl_dtype_nbytes(to->dtype);
    char *const dst = to->write + time * to->time * nbytes;
    for (int64_t row = first_row; row < first_row + rows; row++)
        memset(dst + to->order[row] * to->batch * nbytes, 0, (size_t)(cols * nbytes));
}

/* Copy the member's units of the new state to the layer's output. In y, rows that have ended are
 * zero. */
static void put_output(const worker *w, char *after, int64_t time, int64_t rows)
{
    const rnl_running *run = w->run;
    const rnl_task *task = w->task;
    series to = output_of(w);
    if (!to.write)
        return;
    const int64_t width = rnl_state_size(&run->rnn->spec), lanes = run->rnn->kernels->lanes;
    const int64_t from = w->first_state * lanes, end = rnl_min(w->last_state * lanes, width);
    if (from >= end)
        return;
    to.write += (w->direction * width + from) * rnl_dtype_nbytes(to.dtype);
    const series state = buffer_series(w, after + from * rnl_real_nbytes(run), 0, run->state);
    copy_rows(&state, 0, &to, time, task->first_row, rows, end - from);
    if (to.order && !to.times) /* rnl_mask_fill() writes what a mask leaves out */
        zero_rows(&to, time, task->first_row + rows, task->rows - rows, end - from);
}

/* -------------------------------------------------------------------- directions, layers -- */

/* Run the direction's steps from `first` on, at the times from ... to - 1. False: stop. */
static bool run_steps(worker *w, int64_t first, int64_t from, int64_t to)
{
    const rnl_running *run = w->run;
    rnl_task *task = w->task;
    const int64_t sums_row = rnl_sums_row(run->rnn) * rnl_real_nbytes(run);
    const int64_t num_rows = add_inputs(w, from, to, first);
    char *sums = task->sums + (w->direction ? num_rows * sums_row : 0);
    for (int64_t k = 0; k < to - from; k++) {
        const int64_t t = w->direction ? to - 1 - k : from + k, now = first + k;
        const int64_t rows = active_rows(w, t), before = w->direction ? (t + 1) & 1 : t & 1;
        sums -= w->direction ? rows * sums_row : 0;
        step(w, sums, task->states.h[before], task->states.h[!before], rows, now);
        sums += w->direction ? 0 : rows * sums_row;
        put_output(w, task->states.h[!before], t, rows);
        (void)stops_here(w, now, (task->rows - rows) * run->state); /* zeros are work too */
        if (!end_step(w, now) || atomic_load_explicit(&task->stop_at, memory_order_acquire) <= now)
            return false;
    }
    return true;
}

static bool run_direction(worker *w)
{
    const int64_t T = w->run->T;
    if (w->member == 0)
        begin_states(w);
    wait_for_task(w);
    for (int64_t done = 0, steps; done < T; done += steps) {
        steps = rnl_min(w->run->steps_at_once, T - done);
        const int64_t from = w->direction ? T - done - steps : done;
        if (!run_steps(w, done, from, from + steps))
            return false;
    }
    if (w->member == 0)
        end_states(w);
    wait_for_task(w);
    return true;
}

/* Compute a task in a layer, as `member` of the `members` that share the task; k: the number of the
 * member in the team. */
static void run_task(rnl_running *run, rnl_task *task, int64_t layer, int member, int members,
                     int k)
{
    const rnl_rnn *rnn = run->rnn;
    for (int d = task->first_direction; d <= task->last_direction; d++) {
        worker w = {.run = run,
                    .task = task,
                    .layer = layer,
                    .direction = d,
                    .member = member,
                    .members = members,
                    .first = rnn->blocks * member / members,
                    .last = rnn->blocks * (member + 1) / members,
                    .first_state = rnn->state_blocks * member / members,
                    .last_state = rnn->state_blocks * (member + 1) / members,
                    .polls = k == 0,
                    .job = rnl_recurrence_of(rnn, rnl_weights_of(rnn, layer, d), &task->states)};
        rnl_recurrence_blocks(&w.job, w.first, w.last, w.first_state, w.last_state);
        rnl_recurrence_scratch(&w.job, run->scratch + k * run->scratch_nbytes);
        if (atomic_load(&task->alone_from) < place_of(&w, 0)) {
            if (member != 0)
                return;
            take_all(&w);
        }
        if (!run_direction(&w)) {
            if (member == 0)
                atomic_store(&run->stop_layer, layer);
            return;
        }
    }
}

void rnl_run_member(void *arg, int k, int members)
{
    rnl_running *const run = arg;
    const int n = run->num_tasks;
    for (int64_t layer = 0; layer < run->rnn->spec.num_layers; layer++) {
        for (int p = k % n; p < n; p += members) {
            const int sharing = members > n ? (members - p - 1) / n + 1 : 1;
            run_task(run, &run->tasks[p], layer, members > n ? k / n : 0, sharing, k);
        }
        if (!rnl_barrier_wait(&run->all, members) || atomic_load(&run->stop_layer) <= layer)
            return;
    }
}

/* The recurrence: one member's share of a call, by layers and steps. */
#include <string.h>

#include "forward/running.h"
#include "kernels/kernels.h"
#include "system/system.h"

enum {
    WORK_OF_A_PIECE = 1 << 28, /* multiplications between two checks whether to stop: 0.1 s */
    WORK_OF_A_POLL = 1 << 25,  /* multiplications between two calls of the caller's poll   */
    NOTICED_NS = 2000000       /* a call that has lost less than this is not crowded: a
                                  sleeping CPU of a virtual machine wakes up in 1 ms, and
                                  what a scheduler gives to others takes 3               */
};

/* An array of steps and rows: element (t, row, k) is base[t * time + row * batch + k], where base
 * is read or write. */
typedef struct series {
    const char *read;
    char *write;
    rnl_dtype dtype;
    int64_t time, batch;
    const int64_t *order; /* row -> row in memory; NULL: the same */
} series;

/* One member's share of a part, in one layer and direction. */
typedef struct share {
    rnl_running *run;
    rnl_portion *part;
    int64_t layer;
    int direction;
    int member, members;
    int64_t first, last;             /* blocks of hidden units */
    int64_t first_state, last_state; /* blocks of the state    */
    bool polls;                      /* calls the caller's poll */
    rnl_recurrence job;
} share;

/* ------------------------------------------------------------------------------ stopping -- */

/* Call the caller's poll if enough work was done since the last time. */
static void poll_caller(const share *s, int64_t work)
{
    const rnl_rnn_call *call = s->run->call;
    s->part->since_poll += work;
    if (!call->poll || s->part->since_poll < WORK_OF_A_POLL)
        return;
    s->part->since_poll = 0;
    rnl_float_mode_restore(s->run->callers_mode);
    const int stop = call->poll(call->poll_arg);
    s->run->callers_mode = rnl_flush_subnormals();
    if (stop)
        atomic_store(&s->run->stop, 1);
}

/* Between two pieces of a step: the part's first member decides whether to stop, and all members
 * see it by the next wait. */
static bool stops_here(const share *s, int64_t step, int64_t work)
{
    if (s->member == 0) {
        if (s->polls)
            poll_caller(s, work);
        if (atomic_load_explicit(&s->run->stop, memory_order_relaxed))
            atomic_store(&s->part->stop_at, step);
    }
    return atomic_load_explicit(&s->part->stop_at, memory_order_acquire) <= step;
}

static void wait_for_part(const share *s)
{
    (void)rnl_barrier_wait(&s->part->barrier, s->members);
}

/* The number of a step, counted over all layers and directions. */
static int64_t place_of(const share *s, int64_t step)
{
    return (s->layer * 2 + s->direction) * s->run->call->T + step;
}

/* The first member takes over the blocks of all others. */
static void take_all(share *s)
{
    s->members = 1;
    s->first = s->first_state = 0;
    s->last = s->run->rnn->blocks;
    s->last_state = s->run->rnn->state_blocks;
    rnl_recurrence_share(&s->job, s->first, s->last, s->first_state, s->last_state);
}

/* Has the call taken more than twice as long as one member would have needed for the work that all
 * have done, because members wait for each other? Then other processes use the CPUs. */
static bool is_crowded(const share *s)
{
    const int64_t lost = atomic_load_explicit(&s->part->barrier.lost_ns, memory_order_relaxed);
    if (lost < NOTICED_NS)
        return false;
    const int64_t elapsed = rnl_now_ns() - s->run->began_ns;
    return elapsed > (elapsed - lost) * s->members * 2;
}

/* Wait at the end of a step. In a crowd the first member goes on alone. False: this member has to
 * leave. */
static bool end_step(share *s, int64_t step)
{
    rnl_portion *part = s->part;
    if (s->members == 1)
        return true;
    const int64_t place = place_of(s, step);
    if (s->member == 0 && is_crowded(s))
        atomic_store(&part->alone_from, place);
    if (!rnl_barrier_wait(&part->barrier, s->members))
        return false;
    if (atomic_load_explicit(&part->alone_from, memory_order_acquire) > place)
        return true;
    if (s->member == 0)
        take_all(s);
    return s->member == 0;
}

/* -------------------------------------------------------------------------------- copies -- */

/* How many of these rows, the first ones, are at equal distances in memory? */
static int64_t even_rows(const int64_t *order, int64_t rows, int64_t *apart)
{
    *apart = 1;
    if (!order || rows < 2)
        return rows;
    int64_t n = 2;
    *apart = order[1] - order[0];
    while (n < rows && order[n] - order[n - 1] == *apart)
        n++;
    return n;
}

/* Copy some columns of some rows from one series to another. first_row counts in the whole batch.
 */
static void copy_rows(const series *from, int64_t from_time, const series *to, int64_t to_time,
                      int64_t first_row, int64_t rows, int64_t cols)
{
    rnl_job job = {.src_dtype = from->dtype, .dst_dtype = to->dtype, .cols = cols};
    const int64_t src_nbytes = rnl_dtype_nbytes(from->dtype);
    const int64_t dst_nbytes = rnl_dtype_nbytes(to->dtype);
    const char *const src = from->read + from_time * from->time * src_nbytes;
    char *const dst = to->write + to_time * to->time * dst_nbytes;
    const int64_t *const order = from->order ? from->order : to->order; /* of one of them */
    for (int64_t k = 0; k < rows; k += job.rows) {
        const int64_t row = first_row + k;
        int64_t apart;
        job.rows = even_rows(order ? order + row : NULL, rows - k, &apart);
        job.src = src + (from->order ? from->order[row] : row) * from->batch * src_nbytes;
        job.dst = dst + (to->order ? to->order[row] : row) * to->batch * dst_nbytes;
        job.src_grid = (rnl_grid){from->order ? apart * from->batch : from->batch, 1};
        job.dst_grid = (rnl_grid){to->order ? apart * to->batch : to->batch, 1};
        rnl_copy(&job);
    }
}

/* A buffer of the part as a series whose rows count in the whole batch. */
static series of_part(const share *s, char *buffer, int64_t time, int64_t batch)
{
    char *const base = buffer - s->part->first_row * batch * rnl_real_nbytes(s->run);
    return (series){
        .read = base, .write = base, .dtype = s->run->rnn->real, .time = time, .batch = batch};
}

/* The layer's input and output. */
static series input_of(const share *s)
{
    const rnl_running *run = s->run;
    const rnl_rnn_call *call = run->call;
    if (s->layer == 0)
        return (series){.read = call->x,
                        .dtype = call->dtype,
                        .time = call->x_time,
                        .batch = call->x_batch,
                        .order = run->order};
    const int64_t width = rnl_layer_input(&run->rnn->spec, s->layer);
    return (series){.read = run->between[(s->layer - 1) & 1],
                    .dtype = run->rnn->real,
                    .time = call->N * width,
                    .batch = width};
}

static series output_of(const share *s)
{
    const rnl_running *run = s->run;
    const rnl_rnn_call *call = run->call;
    const rnl_spec *spec = &run->rnn->spec;
    if (s->layer == spec->num_layers - 1)
        return (series){.write = call->y,
                        .dtype = call->dtype,
                        .time = call->y_time,
                        .batch = call->y_batch,
                        .order = run->order};
    const int64_t width = rnl_layer_input(spec, s->layer + 1);
    return (series){.write = run->between[s->layer & 1],
                    .dtype = run->rnn->real,
                    .time = call->N * width,
                    .batch = width};
}

/* This layer and direction of one of the caller's states, (L * D, N, width), to read or to write.
 */
static series state_of(const share *s, const char *read, char *write, int64_t width)
{
    const rnl_running *run = s->run;
    const rnl_dtype dtype = run->call->dtype;
    const int64_t layer = s->layer * rnl_num_directions(&run->rnn->spec) + s->direction;
    const int64_t at = layer * run->call->N * width * rnl_dtype_nbytes(dtype);
    return (series){.read = read ? read + at : NULL,
                    .write = write ? write + at : NULL,
                    .dtype = dtype,
                    .batch = width,
                    .order = run->order};
}

/* -------------------------------------------------------------------------------- states -- */

static void put_state(const share *s, const void *given, int64_t width, char *buffer,
                      int64_t padded)
{
    const rnl_portion *part = s->part;
    if (!given) {
        memset(buffer, 0, (size_t)(part->rows * padded * rnl_real_nbytes(s->run)));
        return;
    }
    const series from = state_of(s, given, NULL, width), to = of_part(s, buffer, 0, padded);
    copy_rows(&from, 0, &to, 0, part->first_row, part->rows, width);
}

static void begin_states(const share *s)
{
    const rnl_running *run = s->run;
    const rnl_spec *spec = &run->rnn->spec;
    for (int k = 0; k < 2; k++)
        put_state(s, run->call->h0, rnl_state_size(spec), s->part->states.h[k], run->state);
    if (rnl_cell_facts_of(spec->cell)->has_c)
        put_state(s, run->call->c0, spec->hidden_size, s->part->states.c, run->units);
}

/* A row that has ended keeps its state: its length decides which of the two buffers that is. */
static void end_states(const share *s)
{
    const rnl_running *run = s->run;
    const rnl_rnn_call *call = run->call;
    const rnl_spec *spec = &run->rnn->spec;
    const rnl_portion *part = s->part;
    for (int64_t row = part->first_row; call->hn && row < part->first_row + part->rows; row++) {
        const int64_t length = run->order ? call->lengths[run->order[row]] : call->T;
        const int which = s->direction ? 0 : (int)(length & 1);
        const series to = state_of(s, NULL, call->hn, rnl_state_size(spec));
        const series from = of_part(s, part->states.h[which], 0, run->state);
        copy_rows(&from, 0, &to, 0, row, 1, rnl_state_size(spec));
    }
    if (call->cn && rnl_cell_facts_of(spec->cell)->has_c) {
        const series to = state_of(s, NULL, call->cn, spec->hidden_size);
        const series from = of_part(s, part->states.c, 0, run->units);
        copy_rows(&from, 0, &to, 0, part->first_row, part->rows, spec->hidden_size);
    }
}

/* Rows of the part that have not ended at this time. */
static int64_t active_rows(const share *s, int64_t time)
{
    const rnl_portion *part = s->part;
    if (!s->run->active)
        return part->rows;
    return (s->run->active[time] - part->turn + part->turns - 1) / part->turns;
}

/* ------------------------------------------------------------------------------ products -- */

/* The product from the panels, or from the weights as they were given. */
static rnl_product_fn *kernel_of(const share *s)
{
    const rnl_rnn *rnn = s->run->rnn;
    return rnn->panels ? rnn->kernels->product : rnn->kernels->direct;
}

/* Multiplications of one row. */
static int64_t work_of_row(const share *s, const rnl_product *job)
{
    return job->of->K * job->of->gates * (job->last - job->first) * s->run->rnn->kernels->lanes;
}

/* Compute a product in pieces of its rows; between them the part may stop. */
static void multiply(const share *s, rnl_product job, int64_t step, rnl_product_fn *kernel)
{
    const int64_t real = rnl_real_nbytes(s->run), rows = job.rows;
    const int64_t of_row = work_of_row(s, &job);
    const int64_t few = WORK_OF_A_PIECE / (of_row + 1) + 1, many = s->run->rnn->kernels->rows;
    const int64_t at_once = rnl_min(rows, few > many ? few : many);
    for (int64_t row = 0; row < rows; row += at_once) {
        rnl_product piece = job;
        piece.rows = rnl_min(at_once, rows - row);
        piece.x = (const char *)job.x + row * job.x_row * real;
        piece.start = (const char *)job.start + row * job.start_row * real;
        piece.acc = (char *)job.acc + row * job.acc_row * real;
        kernel(&piece);
        if (stops_here(s, step, of_row * piece.rows))
            return;
    }
}

/* Is the input multiplied by a matrix? Otherwise the input itself is added. */
static bool adds_product(const share *s)
{
    return s->job.input.of->gates > 0;
}

/* Read x where it is if its rows are at equal distances in memory, those of all steps one after the
 * other. A single step is always copied: its output may be written over its input. */
static bool reads_in_place(const share *s, int64_t from, int64_t steps, rnl_product *job)
{
    const rnl_running *run = s->run;
    const series x = input_of(s);
    const int64_t *const order = x.order ? x.order + s->part->first_row : NULL;
    const int64_t rows = active_rows(s, from);
    int64_t apart;
    if (x.dtype != run->rnn->real || run->call->T == 1 || !adds_product(s) ||
        even_rows(order, rows, &apart) < rows)
        return false;
    const bool one_by_one = rows == 1, one_step = job->rows == rows;
    if (!one_by_one && !one_step && (job->rows < rows * steps || x.time != rows * apart * x.batch))
        return false;
    const int64_t first = order ? order[0] : s->part->first_row;
    job->x = x.read + (from * x.time + first * x.batch) * rnl_real_nbytes(run);
    job->x_row = one_by_one ? x.time : apart * x.batch;
    return true;
}

/* Copy the inputs of some steps to the part's buffer. */
static void copy_inputs(const share *s, int64_t from, int64_t to, rnl_product *job)
{
    const int64_t K = rnl_layer_input(&s->run->rnn->spec, s->layer);
    const series x = input_of(s);
    char *const input = s->part->input;
    job->x = input;
    job->x_row = adds_product(s) ? K : s->run->units;
    for (int64_t t = from, row = 0; t < to; t++) {
        const int64_t rows = active_rows(s, t);
        const series copy = of_part(s, input + row * job->x_row * rnl_real_nbytes(s->run), 0,
                                    job->x_row);
        if ((t - from) % s->members == s->member)
            copy_rows(&x, t, &copy, 0, s->part->first_row, rows, K);
        row += rows;
    }
    wait_for_part(s);
}

/* Add the input's share to all sums of some steps, those of active rows one after the other. Return
 * their number. */
static int64_t add_inputs(const share *s, int64_t from, int64_t to, int64_t now)
{
    rnl_product job = s->job.input;
    job.rows = 0;
    for (int64_t t = from; t < to; t++)
        job.rows += active_rows(s, t);
    job.acc = s->part->sums;
    if (!reads_in_place(s, from, to - from, &job))
        copy_inputs(s, from, to, &job);
    multiply(s, job, now, adds_product(s) ? kernel_of(s) : s->run->rnn->kernels->add_input);
    return job.rows;
}

/* Add the state's share to the sums and compute what follows from them. */
static void advance(const share *s, const rnl_rnn_step *job, int64_t now)
{
    const rnl_rnn *rnn = s->run->rnn;
    if (job->state.rows == 1 && rnn->panels) {
        rnl_rnn_step_row(rnn->kernels, job);
        (void)stops_here(s, now, work_of_row(s, &job->state));
    } else {
        multiply(s, job->state, now, kernel_of(s));
        rnn->kernels->gates(&job->gates);
    }
}

/* One step of the recurrence, from the sums of the inputs to the next state. */
static void step(share *s, char *sums, const char *before, char *after, int64_t rows, int64_t now)
{
    rnl_recurrence *const job = &s->job;
    rnl_recurrence_rows(job, rows);
    rnl_recurrence_sums(job, sums);
    rnl_recurrence_states(job, before, after, now & 1);
    advance(s, &job->step, now);
    if (job->renews) {
        wait_for_part(s);
        advance(s, &job->renew, now);
    }
    if (job->projects) {
        wait_for_part(s);
        multiply(s, job->project, now, kernel_of(s));
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

/* Copy the member's units of the new state to the layer's output. In y, those of rows that have
 * ended are zero. */
static void put_output(const share *s, char *after, int64_t time, int64_t rows)
{
    const rnl_running *run = s->run;
    const rnl_portion *part = s->part;
    series to = output_of(s);
    if (!to.write)
        return;
    const int64_t width = rnl_state_size(&run->rnn->spec), lanes = run->rnn->kernels->lanes;
    const int64_t from = s->first_state * lanes, end = rnl_min(s->last_state * lanes, width);
    if (from >= end)
        return;
    to.write += (s->direction * width + from) * rnl_dtype_nbytes(to.dtype);
    const series state = of_part(s, after + from * rnl_real_nbytes(run), 0, run->state);
    copy_rows(&state, 0, &to, time, part->first_row, rows, end - from);
    if (to.order)
        zero_rows(&to, time, part->first_row + rows, part->rows - rows, end - from);
}

/* -------------------------------------------------------------------- directions, layers -- */

/* Run the direction's steps from `first` on, at the times from ... to - 1. False: stop. */
static bool run_steps(share *s, int64_t first, int64_t from, int64_t to)
{
    const rnl_running *run = s->run;
    rnl_portion *part = s->part;
    const int64_t sums_row = rnl_sums_row(run->rnn) * rnl_real_nbytes(run);
    const int64_t num_rows = add_inputs(s, from, to, first);
    char *sums = part->sums + (s->direction ? num_rows * sums_row : 0);
    for (int64_t k = 0; k < to - from; k++) {
        const int64_t t = s->direction ? to - 1 - k : from + k, now = first + k;
        const int64_t rows = active_rows(s, t), before = s->direction ? (t + 1) & 1 : t & 1;
        sums -= s->direction ? rows * sums_row : 0;
        step(s, sums, part->states.h[before], part->states.h[!before], rows, now);
        sums += s->direction ? 0 : rows * sums_row;
        put_output(s, part->states.h[!before], t, rows);
        (void)stops_here(s, now, (part->rows - rows) * run->state); /* zeros are work too */
        if (!end_step(s, now) || atomic_load_explicit(&part->stop_at, memory_order_acquire) <= now)
            return false;
    }
    return true;
}

static bool run_direction(share *s)
{
    const int64_t T = s->run->call->T;
    if (s->member == 0)
        begin_states(s);
    wait_for_part(s);
    for (int64_t done = 0, steps; done < T; done += steps) {
        steps = rnl_min(s->run->steps_at_once, T - done);
        const int64_t from = s->direction ? T - done - steps : done;
        if (!run_steps(s, done, from, from + steps))
            return false;
    }
    if (s->member == 0)
        end_states(s);
    wait_for_part(s);
    return true;
}

/* Compute a part in one layer as `member` of the `members` that share it; k: its number in the
 * team. */
static void run_part(rnl_running *run, rnl_portion *part, int64_t layer, int member, int members,
                     int k)
{
    const rnl_rnn *rnn = run->rnn;
    for (int d = part->first_direction; d <= part->last_direction; d++) {
        share s = {.run = run,
                   .part = part,
                   .layer = layer,
                   .direction = d,
                   .member = member,
                   .members = members,
                   .first = rnn->blocks * member / members,
                   .last = rnn->blocks * (member + 1) / members,
                   .first_state = rnn->state_blocks * member / members,
                   .last_state = rnn->state_blocks * (member + 1) / members,
                   .polls = k == 0,
                   .job = rnl_recurrence_of(rnn, rnl_weights_of(rnn, layer, d), &part->states)};
        rnl_recurrence_share(&s.job, s.first, s.last, s.first_state, s.last_state);
        rnl_recurrence_scratch(&s.job, run->scratch + k * run->scratch_nbytes);
        if (atomic_load(&part->alone_from) < place_of(&s, 0)) {
            if (member != 0)
                return;
            take_all(&s);
        }
        if (!run_direction(&s)) {
            if (member == 0)
                atomic_store(&run->stop_layer, layer);
            return;
        }
    }
}

void rnl_run_member(void *arg, int k, int members)
{
    rnl_running *const run = arg;
    const int n = run->num_parts;
    for (int64_t layer = 0; layer < run->rnn->spec.num_layers; layer++) {
        for (int p = k % n; p < n; p += members) {
            const int sharing = members > n ? (members - p - 1) / n + 1 : 1;
            run_part(run, &run->parts[p], layer, members > n ? k / n : 0, sharing, k);
        }
        if (!rnl_barrier_wait(&run->all, members) || atomic_load(&run->stop_layer) <= layer)
            return;
    }
}

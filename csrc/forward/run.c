/*
 * Run an RNN on the CPU.
 *
 * The work of a call is split into parts: some of the batch's rows, or one direction, or all of it.
 * A part has its own states and room. Members of the team that share a part split its blocks of
 * hidden units, and wait for each other once a step (twice where a second matrix follows the
 * first).
 *
 * With lengths the rows of the batch stand in order of falling length, so that at each time those
 * that are not over are the first ones.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "core/status.h"
#include "forward/prepared.h"
#include "forward/team.h"
#include "kernels/kernels.h"

enum {
    ALIGNMENT = 64,
    MAX_PARTS = 64,
    ROWS_AT_ONCE = 96,          /* of the input's product: some tiles, whose sums stay in L2 */
    ROWS_OF_A_TILE = 6,         /* from here on a member alone with its rows is at full speed */
    WORK_OF_A_MEMBER = 1 << 15, /* multiplications between two waits that are worth a member */
    WORK_OF_A_PIECE = 1 << 28,  /* multiplications between two looks whether to stop: 0.1 s */
    WORK_OF_A_POLL = 1 << 25    /* and between two questions to the caller */
};

/* Rows of a sequence: element (t, row, k) is base[t * time + row * batch + k]. */
typedef struct series {
    char *base;
    rnl_dtype dtype;
    int64_t time, batch;
    const int64_t *order; /* row -> row in memory; NULL: the same */
} series;

typedef struct portion {
    int64_t first_row, rows;
    int first_direction, last_direction; /* last is included */
    char *input, *sums, *h[2], *c, *full, *reset;
    rnl_barrier barrier;
    _Atomic int64_t stop_at; /* the step after which all members of the part leave */
    int64_t since_poll;
} portion;

typedef struct running {
    rnl_rnn *rnn;
    const rnl_rnn_call *call;
    int64_t units, state; /* padded widths */
    int64_t steps_at_once;
    const int64_t *order;  /* NULL without lengths                            */
    const int64_t *active; /* rows that are not over at each time, or NULL    */
    char *between[2];      /* outputs of the layers but the last: REAL (T, N, D * P') */
    int num_parts;
    bool by_direction;
    portion *parts;
    rnl_barrier all;
    atomic_int stop;
    _Atomic int64_t stop_layer; /* after which all members leave */
} running;

/* One member's share of a part, in one layer and direction. */
typedef struct share {
    running *run;
    portion *part;
    const rnl_panels *panels;
    int64_t layer;
    int direction;
    int member, members;
    int64_t first, last;             /* blocks of hidden units */
    int64_t first_state, last_state; /* blocks of the state    */
    bool asks;                       /* the caller, now and then */
} share;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t real_nbytes(const running *run)
{
    return rnl_dtype_nbytes(run->rnn->real);
}

/* ------------------------------------------------------------------------------ stopping -- */

/* Ask the caller, if it is time to. */
static void poll_caller(const share *s, int64_t work)
{
    const rnl_rnn_call *call = s->run->call;
    s->part->since_poll += work;
    if (!call->poll || s->part->since_poll < WORK_OF_A_POLL)
        return;
    s->part->since_poll = 0;
    if (call->poll(call->poll_arg))
        atomic_store(&s->run->stop, 1);
}

/* Between two pieces of a step: the part's first member decides, and all see it at the next wait at
 * the latest. */
static bool stops_here(const share *s, int64_t step, int64_t work)
{
    if (s->member == 0) {
        if (s->asks)
            poll_caller(s, work);
        if (atomic_load_explicit(&s->run->stop, memory_order_relaxed))
            atomic_store(&s->part->stop_at, step);
    }
    return atomic_load_explicit(&s->part->stop_at, memory_order_acquire) <= step;
}

static void wait_for_part(const share *s)
{
    if (s->members > 1)
        rnl_barrier_wait(&s->part->barrier, s->members);
}

/* -------------------------------------------------------------------------------- copies -- */

/* Some columns of some rows from one series at one time to another; rows are counted in the batch.
 */
static void copy_rows(const series *from, int64_t from_time, const series *to, int64_t to_time,
                      int64_t first_row, int64_t rows, int64_t cols)
{
    rnl_job job = {.src_dtype = from->dtype, .dst_dtype = to->dtype, .rows = rows, .cols = cols};
    const int64_t src_nbytes = rnl_dtype_nbytes(from->dtype);
    const int64_t dst_nbytes = rnl_dtype_nbytes(to->dtype);
    const char *const src = from->base + from_time * from->time * src_nbytes;
    char *const dst = to->base + to_time * to->time * dst_nbytes;
    const bool one_by_one = from->order || to->order;
    if (one_by_one)
        job.rows = 1;
    job.src_grid = (rnl_grid){from->batch, 1};
    job.dst_grid = (rnl_grid){to->batch, 1};
    for (int64_t k = 0; k < rows; k += job.rows) {
        const int64_t row = first_row + k;
        job.src = src + (from->order ? from->order[row] : row) * from->batch * src_nbytes;
        job.dst = dst + (to->order ? to->order[row] : row) * to->batch * dst_nbytes;
        if (job.rows > 0)
            rnl_copy(&job);
    }
}

/* A buffer of the part as a series whose rows are counted in the batch. */
static series of_part(const share *s, char *buffer, int64_t time, int64_t batch)
{
    return (series){.base = buffer - s->part->first_row * batch * real_nbytes(s->run),
                    .dtype = s->run->rnn->real,
                    .time = time,
                    .batch = batch};
}

/* What the layer reads, and what it writes. */
static series input_of(const share *s)
{
    const running *run = s->run;
    const rnl_rnn_call *call = run->call;
    if (s->layer == 0)
        return (series){(char *)(uintptr_t)call->x, call->dtype, call->x_time, call->x_batch,
                        run->order};
    const int64_t width = rnl_layer_input(&run->rnn->spec, s->layer);
    return (series){run->between[(s->layer - 1) & 1], run->rnn->real, call->N * width, width, NULL};
}

static series output_of(const share *s)
{
    const running *run = s->run;
    const rnl_rnn_call *call = run->call;
    const rnl_spec *spec = &run->rnn->spec;
    if (s->layer == spec->num_layers - 1)
        return (series){call->y, call->dtype, call->y_time, call->y_batch, run->order};
    const int64_t width = rnl_layer_input(spec, s->layer + 1);
    return (series){run->between[s->layer & 1], run->rnn->real, call->N * width, width, NULL};
}

/* One state of the caller's, (L * D, N, width), of this layer and direction. */
static series state_of(const share *s, const void *state, int64_t width)
{
    const running *run = s->run;
    const int64_t at = s->layer * rnl_num_directions(&run->rnn->spec) + s->direction;
    return (series){(char *)(uintptr_t)state +
                        at * run->call->N * width * rnl_dtype_nbytes(run->call->dtype),
                    run->call->dtype, 0, width, run->order};
}

/* -------------------------------------------------------------------------------- states -- */

static void put_state(const share *s, const void *given, int64_t width, char *buffer,
                      int64_t padded)
{
    const portion *part = s->part;
    if (!given) {
        memset(buffer, 0, (size_t)(part->rows * padded * real_nbytes(s->run)));
        return;
    }
    const series from = state_of(s, given, width), to = of_part(s, buffer, 0, padded);
    copy_rows(&from, 0, &to, 0, part->first_row, part->rows, width);
}

static void begin_states(const share *s)
{
    const running *run = s->run;
    const rnl_spec *spec = &run->rnn->spec;
    for (int k = 0; k < 2; k++)
        put_state(s, run->call->h0, rnl_state_size(spec), s->part->h[k], run->state);
    if (spec->cell == RNL_LSTM)
        put_state(s, run->call->c0, spec->hidden_size, s->part->c, run->units);
}

/* A row that is over keeps the state it had: which of the two buffers that is, its length says. */
static void end_states(const share *s)
{
    const running *run = s->run;
    const rnl_rnn_call *call = run->call;
    const rnl_spec *spec = &run->rnn->spec;
    const portion *part = s->part;
    for (int64_t row = part->first_row; call->hn && row < part->first_row + part->rows; row++) {
        const int64_t length = run->order ? call->lengths[run->order[row]] : call->T;
        const int which = s->direction ? 0 : (int)(length & 1);
        const series to = state_of(s, call->hn, rnl_state_size(spec));
        const series from = of_part(s, part->h[which], 0, run->state);
        copy_rows(&from, 0, &to, 0, row, 1, rnl_state_size(spec));
    }
    if (call->cn && spec->cell == RNL_LSTM) {
        const series to = state_of(s, call->cn, spec->hidden_size);
        const series from = of_part(s, part->c, 0, run->units);
        copy_rows(&from, 0, &to, 0, part->first_row, part->rows, spec->hidden_size);
    }
}

/* Rows of the part that are not over at this time. */
static int64_t active_rows(const share *s, int64_t time)
{
    const portion *part = s->part;
    if (!s->run->active)
        return part->rows;
    const int64_t active = s->run->active[time] - part->first_row;
    return active < 0 ? 0 : least(active, part->rows);
}

/* ------------------------------------------------------------------------------ products -- */

/* A product, in pieces of its rows between which the part may stop. */
static void multiply(const share *s, rnl_product job, int64_t step,
                     void (*kernel)(const rnl_product *))
{
    const int64_t real = real_nbytes(s->run), rows = job.rows;
    const int64_t of_row = job.K * job.gates * (job.last - job.first) * s->run->rnn->kernels->lanes;
    const int64_t at_once = least(rows, WORK_OF_A_PIECE / (of_row + 1) + 1);
    for (int64_t row = 0; row < rows; row += at_once) {
        rnl_product piece = job;
        piece.rows = least(at_once, rows - row);
        piece.x = (const char *)job.x + row * job.x_row * real;
        piece.start = (const char *)job.start + row * job.start_row * real;
        piece.acc = (char *)job.acc + row * job.acc_row * real;
        kernel(&piece);
        if (stops_here(s, step, of_row * piece.rows))
            return;
    }
}

static rnl_product product_of(const share *s, const void *panel, int64_t K, int gates)
{
    const rnl_rnn *rnn = s->run->rnn;
    return (rnl_product){.panel = panel,
                         .K = K,
                         .gates = gates,
                         .slots = rnn->slots,
                         .slot = {0, 1, 2, 3},
                         .copied = -1,
                         .first = s->first,
                         .last = s->last,
                         .acc_row = s->run->units * rnn->slots};
}

/* Is row after row of these steps in memory at equal distances, ready to be read? A single step is
 * always copied: its output may take the place of its input. */
static bool is_even(const share *s, const series *x, int64_t steps)
{
    const running *run = s->run;
    const portion *part = s->part;
    return !x->order && x->dtype == run->rnn->real && run->call->T > 1 && s->panels->w &&
           (part->rows == 1 || steps == 1 || x->time == part->rows * x->batch);
}

/* The input's share of all sums of some steps. */
static void add_inputs(const share *s, int64_t from, int64_t to, int64_t now)
{
    const running *run = s->run;
    const rnl_rnn *rnn = run->rnn;
    const portion *part = s->part;
    const int64_t K = rnl_layer_input(&rnn->spec, s->layer), real = real_nbytes(run);
    const series x = input_of(s);
    rnl_product job = product_of(s, s->panels->w, K, rnn->gates);
    job.copied = rnn->copied;
    job.start = s->panels->start;
    const bool even = is_even(s, &x, to - from);
    if (even) {
        job.x = x.base + (from * x.time + part->first_row * x.batch) * real;
        job.x_row = part->rows == 1 ? x.time : x.batch;
    } else {
        job.x = part->input;
        job.x_row = s->panels->w ? K : run->units;
        const series copy = of_part(s, part->input, part->rows * job.x_row, job.x_row);
        for (int64_t t = from + s->member; t < to; t += s->members)
            copy_rows(&x, t, &copy, t - from, part->first_row, active_rows(s, t), K);
        wait_for_part(s);
    }
    void (*const kernel)(const rnl_product *) = s->panels->w ? rnn->kernels->product
                                                             : rnn->kernels->add_input;
    const int64_t steps = run->active ? 1 : to - from; /* with lengths, step by step */
    for (int64_t t = from; t < to; t += steps) {
        rnl_product some = job;
        some.rows = run->active ? active_rows(s, t) : part->rows * steps;
        some.x = (const char *)job.x + (t - from) * part->rows * job.x_row * real;
        some.acc = part->sums + (t - from) * part->rows * job.acc_row * real;
        multiply(s, some, now, kernel);
    }
}

/* One step of the recurrence: from the sums of the inputs to the next state. */
static void step(const share *s, char *sums, const char *before, char *after, int64_t rows,
                 int64_t now)
{
    const running *run = s->run;
    const rnl_rnn *rnn = run->rnn;
    const portion *part = s->part;
    const rnl_spec *spec = &rnn->spec;
    const int64_t K = rnl_state_size(spec);
    rnl_product job = product_of(s, s->panels->r, K,
                                 rnn->kind == RNL_STEP_GRU_BEFORE ? 2 : rnn->gates);
    if (rnn->kind == RNL_STEP_GRU)
        job.slot[2] = rnn->copied;
    job.backwards = now & 1; /* zig-zag: what was read last is still in the caches */
    job.rows = rows;
    job.x = before;
    job.x_row = run->state;
    job.start = job.acc = sums;
    job.start_row = job.acc_row;
    multiply(s, job, now, rnn->kernels->product);
    rnl_gates gates = {.kind = rnn->kind,
                       .activation = spec->recurrent_activation,
                       .clips = rnn->options.clips,
                       .low = rnn->options.clip_low,
                       .high = rnn->options.clip_high,
                       .slots = rnn->slots,
                       .first = s->first,
                       .last = s->last,
                       .rows = rows,
                       .acc = sums,
                       .acc_row = job.acc_row,
                       .h = before,
                       .c = part->c,
                       .out = spec->proj_size ? part->full : after,
                       .state_row = run->units};
    if (rnn->kind == RNL_STEP_GRU_BEFORE) {
        gates.kind = RNL_STEP_RESET;
        gates.out = part->reset;
        rnn->kernels->gates(&gates);
        wait_for_part(s);
        gates.kind = RNL_STEP_GRU_BEFORE;
        gates.out = after;
        job.panel = s->panels->r_new;
        job.gates = 1;
        job.slot[0] = 2;
        job.x = part->reset;
        multiply(s, job, now, rnn->kernels->product);
    }
    rnn->kernels->gates(&gates);
    if (!spec->proj_size)
        return;
    wait_for_part(s);
    multiply(s,
             (rnl_product){.panel = s->panels->p,
                           .K = spec->hidden_size,
                           .gates = 1,
                           .slots = 1,
                           .copied = -1,
                           .first = s->first_state,
                           .last = s->last_state,
                           .backwards = now & 1,
                           .rows = rows,
                           .x = part->full,
                           .x_row = run->units,
                           .start = rnn->zeros,
                           .acc = after,
                           .acc_row = run->state},
             now, rnn->kernels->product);
}

/* The member's units of the new state, into the layer's output. */
static void put_output(const share *s, char *after, int64_t time, int64_t rows)
{
    const running *run = s->run;
    series to = output_of(s);
    if (!to.base)
        return;
    const int64_t width = rnl_state_size(&run->rnn->spec), lanes = run->rnn->kernels->lanes;
    const int64_t from = s->first_state * lanes, end = least(s->last_state * lanes, width);
    if (from >= end)
        return;
    to.base += (s->direction * width + from) * rnl_dtype_nbytes(to.dtype);
    const series state = of_part(s, after + from * real_nbytes(run), 0, run->state);
    copy_rows(&state, 0, &to, time, s->part->first_row, rows, end - from);
}

/* -------------------------------------------------------------------- directions, layers -- */

/* Steps `first` and later of the direction, at times from ... to - 1. Returns whether to go on. */
static bool run_steps(const share *s, int64_t first, int64_t from, int64_t to)
{
    const running *run = s->run;
    portion *part = s->part;
    const int64_t sums_row = run->units * run->rnn->slots * real_nbytes(run);
    add_inputs(s, from, to, first);
    for (int64_t k = 0; k < to - from; k++) {
        const int64_t t = s->direction ? to - 1 - k : from + k, now = first + k;
        const int64_t rows = active_rows(s, t), before = s->direction ? (t + 1) & 1 : t & 1;
        step(s, part->sums + (t - from) * part->rows * sums_row, part->h[before], part->h[!before],
             rows, now);
        put_output(s, part->h[!before], t, rows);
        (void)stops_here(s, now, 0);
        wait_for_part(s);
        if (atomic_load_explicit(&part->stop_at, memory_order_acquire) <= now)
            return false;
    }
    return true;
}

static bool run_direction(const share *s)
{
    const int64_t T = s->run->call->T;
    if (s->member == 0)
        begin_states(s);
    wait_for_part(s);
    for (int64_t done = 0, steps; done < T; done += steps) {
        steps = least(s->run->steps_at_once, T - done);
        const int64_t from = s->direction ? T - done - steps : done;
        if (!run_steps(s, done, from, from + steps))
            return false;
    }
    if (s->member == 0)
        end_states(s);
    wait_for_part(s);
    return true;
}

/* All of a part in one layer; `member` of `members` that share it. */
static void run_part(running *run, portion *part, int64_t layer, int member, int members, bool asks)
{
    const rnl_rnn *rnn = run->rnn;
    for (int d = part->first_direction; d <= part->last_direction; d++) {
        const share s = {.run = run,
                         .part = part,
                         .panels = rnl_panels_of(rnn, layer, d),
                         .layer = layer,
                         .direction = d,
                         .member = member,
                         .members = members,
                         .first = rnn->blocks * member / members,
                         .last = rnn->blocks * (member + 1) / members,
                         .first_state = rnn->state_blocks * member / members,
                         .last_state = rnn->state_blocks * (member + 1) / members,
                         .asks = asks};
        if (!run_direction(&s)) {
            if (member == 0)
                atomic_store(&run->stop_layer, layer);
            return;
        }
    }
}

/* Member k of the team: a share of one part, or several parts whole. */
static void run_member(void *arg, int k, int members)
{
    running *const run = arg;
    const int n = run->num_parts;
    for (int64_t layer = 0; layer < run->rnn->spec.num_layers; layer++) {
        for (int p = k % n; p < n; p += members) {
            const int sharing = members > n ? (members - p - 1) / n + 1 : 1;
            run_part(run, &run->parts[p], layer, members > n ? k / n : 0, sharing, k == 0);
        }
        rnl_barrier_wait(&run->all, members);
        if (atomic_load(&run->stop_layer) <= layer)
            return;
    }
}

/* ------------------------------------------------------------------------------ the call -- */

static rnl_status check_call(const rnl_rnn *rnn, const rnl_rnn_call *call, rnl_error *err)
{
    const rnl_dtype weights = rnn->spec.dtype;
    if (call->T < 0 || call->N < 0)
        return rnl_fail(err, RNL_E_SPEC, "T is %" PRId64 ", N is %" PRId64 ": need 0 or more",
                        call->T, call->N);
    if (call->dtype != weights && !(call->dtype == RNL_FLOAT32 && weights < RNL_FLOAT32))
        return rnl_fail(
            err, RNL_E_SPEC, "x is %s, the weights are %s: need %s%s",
            rnl_name(RNL_NAMES_DTYPE, (int)call->dtype), rnl_name(RNL_NAMES_DTYPE, (int)weights),
            rnl_name(RNL_NAMES_DTYPE, (int)weights), weights < RNL_FLOAT32 ? " or float32" : "");
    for (int64_t n = 0; call->lengths && n < call->N; n++)
        if (call->lengths[n] < 0 || call->lengths[n] > call->T)
            return rnl_fail(err, RNL_E_SPEC,
                            "length %" PRId64 " of sequence %" PRId64
                            " is not in 0 ... T = %" PRId64,
                            call->lengths[n], n, call->T);
    return RNL_OK;
}

/* Multiplications of one row in one step of the recurrence. */
static double work_of_row(const rnl_rnn *rnn)
{
    const double state = (double)rnl_padded(rnn, rnn->state_blocks);
    const double units = (double)rnl_padded(rnn, rnn->blocks);
    return units * state * (rnn->gates + (rnn->spec.proj_size ? 1 : 0));
}

/* Into how many parts the call is split, and how many members are worth it. */
static int split(running *run)
{
    const rnl_rnn *rnn = run->rnn;
    const int64_t N = run->call->N, threads = least(rnl_num_threads(), MAX_PARTS);
    const double work = work_of_row(rnn) * (double)N;
    run->num_parts = 1;
    if (threads == 1 || work * (double)run->call->T < WORK_OF_A_MEMBER)
        return 1;
    if (N >= threads * ROWS_OF_A_TILE) {
        run->num_parts = (int)threads;
        return (int)threads;
    }
    if (rnl_num_directions(&rnn->spec) == 2) {
        run->num_parts = 2;
        run->by_direction = true;
    }
    const double worth = work / WORK_OF_A_MEMBER;
    const int64_t sharing = worth < (double)rnn->blocks ? (int64_t)worth : rnn->blocks;
    const int64_t members = run->num_parts * (sharing > 1 ? sharing : 1);
    return (int)(members < threads ? members : threads / run->num_parts * run->num_parts);
}

static void describe_parts(running *run, portion *parts)
{
    const int64_t N = run->call->N;
    const int num_directions = rnl_num_directions(&run->rnn->spec);
    run->parts = parts;
    for (int k = 0; k < run->num_parts; k++) {
        portion *p = &parts[k];
        memset(p, 0, sizeof *p);
        p->rows = N;
        p->last_direction = num_directions - 1;
        if (run->by_direction)
            p->first_direction = p->last_direction = k;
        else if (run->num_parts > 1) {
            p->first_row = N * k / run->num_parts;
            p->rows = N * (k + 1) / run->num_parts - p->first_row;
        }
        atomic_init(&p->stop_at, INT64_MAX);
    }
}

/* Hands out pieces of a room; without one it only adds up. */
typedef struct pieces {
    char *data;
    rnl_size used;
} pieces;

static char *piece(pieces *p, int64_t a, int64_t b, int64_t nbytes)
{
    char *const at = p->data ? p->data + p->used.n : NULL;
    rnl_size size = rnl_size_mul(rnl_size_mul(rnl_size_of(a), rnl_size_of(b)), rnl_size_of(nbytes));
    size = rnl_size_add(size, rnl_size_of(ALIGNMENT - 1));
    p->used = rnl_size_add(p->used, (rnl_size){size.n & -ALIGNMENT, size.overflow});
    return at;
}

/* The buffers of the parts and between the layers; adds up only while there is no room. */
static rnl_size furnish(running *run, portion *parts, char *room)
{
    const rnl_rnn *rnn = run->rnn;
    const rnl_spec *spec = &rnn->spec;
    const int64_t real = real_nbytes(run), T = run->call->T, N = run->call->N;
    pieces p = {.data = room};
    for (int k = 0; k < run->num_parts; k++) {
        portion *const some = &parts[k];
        const int64_t rows = some->rows, at_once = rows * run->steps_at_once;
        int64_t widest = spec->skip_input ? run->units : spec->input_size;
        if (spec->num_layers > 1 && rnl_layer_input(spec, 1) > widest)
            widest = rnl_layer_input(spec, 1);
        some->input = piece(&p, at_once, widest, real);
        some->sums = piece(&p, at_once, run->units * rnn->slots, real);
        some->h[0] = piece(&p, rows, run->state, real);
        some->h[1] = piece(&p, rows, run->state, real);
        if (spec->cell == RNL_LSTM)
            some->c = piece(&p, rows, run->units, real);
        if (spec->proj_size)
            some->full = piece(&p, rows, run->units, real);
        if (rnn->kind == RNL_STEP_GRU_BEFORE)
            some->reset = piece(&p, rows, run->units, real);
    }
    for (int64_t k = 0; k < least(2, spec->num_layers - 1); k++) {
        const rnl_size steps = rnl_size_mul(rnl_size_of(T), rnl_size_of(N));
        run->between[k] = piece(&p, steps.overflow ? INT64_MAX : steps.n, rnl_layer_input(spec, 1),
                                real);
    }
    if (run->call->lengths) {
        run->order = (int64_t *)(void *)piece(&p, N, 1, sizeof(int64_t));
        run->active = (int64_t *)(void *)piece(&p, T, 1, sizeof(int64_t));
    }
    return p.used;
}

/* Rows by falling length, in their own order where lengths are equal; how many are active when. */
static void put_in_order(const rnl_rnn_call *call, int64_t *order, int64_t *active)
{
    const int64_t T = call->T, N = call->N;
    memset(active, 0, (size_t)T * sizeof *active);
    for (int64_t n = 0; n < N; n++) /* first how many end when ... */
        if (call->lengths[n] > 0)
            active[call->lengths[n] - 1]++;
    for (int64_t t = T - 2; t >= 0; t--) /* ... then how many are left */
        active[t] += active[t + 1];
    /* rows of length l stand from the number of longer ones on; active[l - 1] counts down to it */
    int64_t empty = N;
    for (int64_t n = N; n-- > 0;) {
        int64_t *const end = call->lengths[n] > 0 ? &active[call->lengths[n] - 1] : &empty;
        order[--*end] = n;
    }
    /* what was counted down is now the number of longer ones: count up again */
    for (int64_t n = 0; n < N; n++)
        if (call->lengths[n] > 0)
            active[call->lengths[n] - 1]++;
}

/* y past the ends of the sequences. */
static void clear_ends(const running *run)
{
    const rnl_rnn_call *call = run->call;
    const rnl_spec *spec = &run->rnn->spec;
    for (int64_t n = 0; call->y && call->lengths && n < call->N; n++) {
        const int64_t length = call->lengths[n];
        rnl_job job = {.src_dtype = call->dtype,
                       .dst_dtype = call->dtype,
                       .rows = call->T - length,
                       .cols = rnl_num_directions(spec) * rnl_state_size(spec),
                       .dst = (char *)call->y + (length * call->y_time + n * call->y_batch) *
                                                    rnl_dtype_nbytes(call->dtype),
                       .dst_grid = {call->y_time, 1}};
        rnl_fill_zero(&job);
    }
}

rnl_status rnl_rnn_run(rnl_rnn *rnn, const rnl_rnn_call *call, rnl_error *err)
{
    const rnl_status status = check_call(rnn, call, err);
    if (status || call->N == 0)
        return status;
    running run = {.rnn = rnn,
                   .call = call,
                   .units = rnl_padded(rnn, rnn->blocks),
                   .state = rnl_padded(rnn, rnn->state_blocks),
                   .steps_at_once = least(call->T, ROWS_AT_ONCE / call->N + 1)};
    portion parts[MAX_PARTS];
    const int members = split(&run);
    describe_parts(&run, parts);
    const rnl_size size = furnish(&run, parts, NULL);
    rnl_room *const room = size.overflow ? NULL : rnl_room_take(rnn, size.n);
    if (!room)
        return rnl_fail(err, RNL_E_NOMEM,
                        "no memory for a call of %" PRId64 " steps of %" PRId64 " sequences",
                        call->T, call->N);
    furnish(&run, parts, room->data);
    if (call->lengths) {
        put_in_order(call, (int64_t *)(uintptr_t)run.order, (int64_t *)(uintptr_t)run.active);
        clear_ends(&run);
    }
    atomic_init(&run.stop, 0);
    atomic_init(&run.stop_layer, INT64_MAX);
    rnl_team_run(members, run_member, &run);
    rnl_room_give(rnn, room);
    if (atomic_load(&run.stop))
        return rnl_fail(err, RNL_E_INTERRUPTED, "interrupted");
    return RNL_OK;
}

/* The places in a tape, the rows of a call, and a crew that stops together. */
#include "forward/tape.h"

#include <inttypes.h>
#include <string.h>

#include "core/status.h"
#include "forward/work.h"
#include "kernels/kernels.h"
#include "system/system.h"

rnl_status rnl_tape_place(const rnl_rnn *rnn, int64_t T, int64_t N, void *memory, rnl_tape *tape,
                          rnl_error *err)
{
    const rnl_spec *const spec = &rnn->spec;
    const int64_t real = rnl_dtype_nbytes(rnn->real), units = rnl_padded(rnn, rnn->blocks);
    const rnl_size rows = rnl_size_mul(rnl_size_of(T), rnl_size_of(N));
    const rnl_size states = rnl_size_add(rows, rnl_size_of(N));
    rnl_arena inputs = {.memory = memory}, a = {.memory = NULL};
    const bool fits = !rows.overflow && !states.overflow;
    tape->x = rnl_arena_take(&inputs, fits ? rows.n : INT64_MAX, spec->input_size, real);
    if (memory)
        a.memory = (char *)memory + inputs.used.n;
    tape->h = rnl_arena_take(&a, states.n, rnl_padded(rnn, rnn->state_blocks), real);
    tape->c = rnl_arena_take(&a, states.n, rnl_cell_facts_of(spec->cell)->has_c ? units : 0, real);
    tape->sums = rnl_arena_take(&a, rows.n, rnl_tape_has_sums(rnn) ? rnl_sums_row(rnn) : 0, real);
    const rnl_size layers = rnl_size_of(spec->num_layers * rnl_num_directions(spec));
    const rnl_size size = rnl_size_add(inputs.used, rnl_size_mul(a.used, layers));
    if (size.overflow)
        return rnl_fail(err, RNL_E_SPEC,
                        "a tape of T = %" PRId64 ", N = %" PRId64 " exceeds 2^63 bytes", T, N);
    tape->apart = a.used.n;
    tape->nbytes = size.n;
    return RNL_OK;
}

/* ----------------------------------------------------------------------------------- rows -- */

void rnl_rows_place(rnl_rows *rows, int64_t T, int64_t N, const int64_t *lengths, rnl_arena *arena)
{
    *rows = (rnl_rows){.T = T, .N = N, .all = !lengths};
    rows->order = (int64_t *)(void *)rnl_arena_take(arena, N, 1, sizeof(int64_t));
    rows->lengths = (int64_t *)(void *)rnl_arena_take(arena, N, 1, sizeof(int64_t));
    rows->first = (int64_t *)(void *)rnl_arena_take(arena, T + 1, 1, sizeof(int64_t));
    if (!arena->memory || !rows->first)
        return;
    int64_t *const place = rows->first; /* at first: the next rank of each length */
    memset(place, 0, (size_t)(T + 1) * sizeof *place);
    for (int64_t n = 0; n < N; n++)
        place[lengths ? lengths[n] : T]++;
    for (int64_t length = T, before = 0; length >= 0; length--) {
        const int64_t equal = place[length];
        place[length] = before;
        before += equal;
    }
    for (int64_t n = 0; n < N; n++) {
        const int64_t length = lengths ? lengths[n] : T, rank = place[length]++;
        rows->order[rank] = n;
        rows->lengths[rank] = length;
    }
    int64_t row = 0, active = N;
    for (int64_t t = 0; t < T; t++) {
        while (active > 0 && rows->lengths[active - 1] <= t)
            active--;
        rows->first[t] = row;
        row += active;
    }
    rows->first[T] = row;
}

static void copy_rows(const rnl_rows *rows, int64_t n, const char *from, rnl_dtype from_dtype,
                      int64_t from_row, char *to, rnl_dtype to_dtype, int64_t to_row, int64_t width,
                      bool gathers)
{
    rnl_job job = {.src_dtype = from_dtype,
                   .dst_dtype = to_dtype,
                   .rows = rows->all ? n : 1,
                   .cols = width,
                   .src_grid = {from_row, 1},
                   .dst_grid = {to_row, 1}};
    for (int64_t rank = 0; width && rank < n; rank += job.rows) {
        const int64_t row = rows->order[rank];
        job.src = from + (gathers ? row : rank) * from_row * rnl_dtype_nbytes(from_dtype);
        job.dst = to + (gathers ? rank : row) * to_row * rnl_dtype_nbytes(to_dtype);
        rnl_copy(&job);
    }
}

void rnl_rows_gather(const rnl_rows *rows, int64_t n, const char *from, rnl_dtype from_dtype,
                     int64_t from_row, char *to, rnl_dtype to_dtype, int64_t to_row, int64_t width)
{
    copy_rows(rows, n, from, from_dtype, from_row, to, to_dtype, to_row, width, true);
}

void rnl_rows_scatter(const rnl_rows *rows, int64_t n, const char *from, rnl_dtype from_dtype,
                      int64_t from_row, char *to, rnl_dtype to_dtype, int64_t to_row, int64_t width)
{
    copy_rows(rows, n, from, from_dtype, from_row, to, to_dtype, to_row, width, false);
}

/* ----------------------------------------------------------------------------------- crew -- */

/* Return the number of members worth having. */
static int crew_size(const rnl_rnn *rnn, int64_t T, int64_t N)
{
    const int64_t threads = rnl_min(rnl_num_threads(), RNL_MAX_THREADS);
    const double work = rnl_recurrence_work(rnn) * (double)N;
    if (threads == 1 || work * (double)T < RNL_WORK_OF_A_CALL || rnl_team_is_crowded())
        return 1;
    return (int)rnl_min(threads, rnl_members_worth(rnn, work));
}

bool rnl_mate_stops(const rnl_mate *mate, int64_t work)
{
    rnl_crew *const crew = mate->crew;
    if (mate->member == 0 && crew->poll && (crew->since_poll += work) >= RNL_WORK_OF_A_POLL) {
        crew->since_poll = 0;
        rnl_float_mode_restore(crew->callers_mode);
        const int stop = crew->poll(crew->poll_arg);
        crew->callers_mode = rnl_flush_subnormals();
        if (stop)
            atomic_store(&crew->stop_at, mate->now);
    }
    return atomic_load_explicit(&crew->stop_at, memory_order_acquire) <= mate->now;
}

bool rnl_mate_wait(const rnl_mate *mate)
{
    return mate->members == 1 || rnl_barrier_wait(&mate->crew->barrier, mate->members);
}

bool rnl_mate_end_step(rnl_mate *mate)
{
    return rnl_mate_wait(mate) &&
           atomic_load_explicit(&mate->crew->stop_at, memory_order_acquire) > mate->now++;
}

void rnl_mate_multiply(const rnl_mate *mate, const rnl_rnn_kernels *kernels, const rnl_product *job,
                       int64_t real_nbytes)
{
    const int64_t row_work = rnl_product_work(job, kernels->lanes);
    const int64_t at_once = RNL_WORK_OF_A_PIECE / (row_work + 1) + 1;
    for (int64_t row = 0; row < job->rows; row += at_once) {
        const rnl_product piece = rnl_product_piece(job, row, at_once, real_nbytes);
        kernels->product(&piece);
        if (rnl_mate_stops(mate, row_work * piece.rows))
            return;
    }
}

rnl_status rnl_crew_run(rnl_crew *crew, const rnl_rnn *rnn, const rnl_rows *rows,
                        void (*member)(void *, int, int), void *arg, rnl_error *err)
{
    rnl_barrier_init(&crew->barrier);
    atomic_init(&crew->stop_at, INT64_MAX);
    crew->callers_mode = rnl_flush_subnormals();
    const bool all_worked = rnl_team_run(crew_size(rnn, rows->T, rows->N), member, arg);
    rnl_float_mode_restore(crew->callers_mode);
    return rnl_team_status(all_worked, atomic_load(&crew->stop_at) < INT64_MAX, err);
}

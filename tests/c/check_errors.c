/* Does every refusal give a status and a message, and change nothing else? Are all sizes safe? */
#include <limits.h>
#include <stdlib.h>

#include "layouts.h"

static rnl_error err; /* of the last call */

/* The message is not empty, is NUL-terminated, and has a useful length. */
static void check_error(rnl_status status, rnl_status expected)
{
    CHECK(status == expected && err.status == expected, "status %d, expected %d: %s", (int)status,
          (int)expected, err.text);
    const size_t length = strnlen(err.text, sizeof err.text);
    CHECK(length >= 10 && length < sizeof err.text - 1, "%zu characters", length);
}

/* Make the call with an output filled with one byte: the status is as expected, no byte changes. */
#define REFUSED(expected, output, call)                                                            \
    do {                                                                                           \
        unsigned char as_was[sizeof(output)];                                                      \
        memset(as_was, 0x5a, sizeof as_was);                                                       \
        memset(&(output), 0x5a, sizeof(output));                                                   \
        err = (rnl_error){.status = RNL_OK};                                                       \
        const rnl_status status = call;                                                            \
        check_error(status, expected);                                                             \
        CHECK(memcmp(&(output), as_was, sizeof as_was) == 0, "written on error: %s", err.text);    \
    } while (0)

static rnl_layout named(const char *name)
{
    rnl_layout layout;
    CHECK(!rnl_layout_named(name, &layout, &err), "%s", err.text);
    return layout;
}

static void check_names(const char *nonsense)
{
    rnl_layout layout = named("concat");
    const rnl_layout before = layout;
    rnl_row_info row;
    int value;
    for (rnl_family family = RNL_NAMES_CELL; family <= RNL_NAMES_SETTING_PLACE; family++) {
        REFUSED(RNL_E_SPEC, value, rnl_parse(family, nonsense, &value, &err));
        for (int k = 0; rnl_name(family, k); k++)
            CHECK(!rnl_parse(family, rnl_name(family, k), &value, &err) && value == k, "%s",
                  rnl_name(family, k));
        CHECK(rnl_name(family, -1) == NULL && rnl_name(family, 1000) == NULL, "%d", (int)family);
    }
    check_error(rnl_layout_set(&layout, nonsense, "hx", &err), RNL_E_LAYOUT);
    check_error(rnl_layout_set(&layout, "inputs", nonsense, &err), RNL_E_LAYOUT);
    check_error(rnl_layout_set(&layout, "version", "9", &err), RNL_E_LAYOUT);
    CHECK(memcmp(&layout, &before, sizeof before) == 0, "%s", "layout changed");
    REFUSED(RNL_E_LAYOUT, layout, rnl_layout_named(nonsense, &layout, &err));
    REFUSED(RNL_E_LAYOUT, row, rnl_row_at(-1, &row, &err));
    REFUSED(RNL_E_LAYOUT, row, rnl_row_at(1000, &row, &err));
    rnl_alias alias;
    REFUSED(RNL_E_LAYOUT, alias, rnl_alias_at(-1, &alias, &err));
    REFUSED(RNL_E_LAYOUT, alias, rnl_alias_at(1000, &alias, &err));
    char name[RNL_MAX_NAME];
    REFUSED(RNL_E_LAYOUT, name, rnl_layout_name_at(&before, -1, name, &err));
    REFUSED(RNL_E_LAYOUT, name, rnl_layout_name_at(&before, 1000, name, &err));
    CHECK(!rnl_setting_at(-1) && !rnl_setting_at(1000), "%s", "a setting beyond the table");
    const int no_family[] = {RNL_NAMES_KIND + 1, -1, INT_MAX, INT_MIN};
    for (int k = 0; k < 4; k++) {
        CHECK(rnl_name((rnl_family)no_family[k], 0) == NULL, "family %d", no_family[k]);
        REFUSED(RNL_E_SPEC, value, rnl_parse((rnl_family)no_family[k], "lstm", &value, &err));
    }
}

/* Every function that checks a spec refuses this one. */
static void check_spec_refused(const rnl_spec *spec, const char *layout_name, rnl_status expected)
{
    const rnl_layout layout = named(layout_name), torch = named("torch");
    const rnl_block block = {.role = RNL_R};
    rnl_tensor tensor;
    rnl_plan *plan;
    rnl_view view;
    int64_t n;
    check_error(rnl_layout_check(&layout, spec, &err), expected);
    REFUSED(expected, n, rnl_layout_num_tensors(&layout, spec, 1, &n, &err));
    REFUSED(expected, tensor, rnl_layout_tensor(&layout, spec, 1, 0, &tensor, &err));
    REFUSED(expected, view, rnl_layout_locate(&layout, spec, 1, &block, &view, &err));
    REFUSED(expected, plan, rnl_plan_new(spec, &torch, 1, &layout, RNL_WEIGHTS, &plan, &err));
}

#define CHECK_BAD_SPEC(cell, field, value)                                                         \
    do {                                                                                           \
        rnl_spec bad = rnl_spec_default(cell, 3, 2);                                               \
        bad.field = value;                                                                         \
        check_error(rnl_spec_check(&bad, &err), RNL_E_SPEC);                                       \
        check_spec_refused(&bad, "torch", RNL_E_SPEC);                                             \
    } while (0)

static void check_bad_specs(void)
{
    const int64_t sizes[] = {0, -1, INT64_MIN};
    for (int k = 0; k < 3; k++) {
        CHECK_BAD_SPEC(RNL_GRU, input_size, sizes[k]);
        CHECK_BAD_SPEC(RNL_GRU, hidden_size, sizes[k]);
        CHECK_BAD_SPEC(RNL_GRU, num_layers, sizes[k]);
    }
    CHECK_BAD_SPEC(RNL_LSTM, cell, (rnl_cell)4);
    CHECK_BAD_SPEC(RNL_LSTM, bias, (rnl_bias)4);
    CHECK_BAD_SPEC(RNL_LSTM, reset, (rnl_reset)2);
    CHECK_BAD_SPEC(RNL_LSTM, recurrent_activation, (rnl_activation)3);
    CHECK_BAD_SPEC(RNL_LSTM, activation, (rnl_state_activation)2);
    CHECK_BAD_SPEC(RNL_LSTM, dtype, (rnl_dtype)4);
    CHECK_BAD_SPEC(RNL_LSTM, num_layers, 65537);
    CHECK_BAD_SPEC(RNL_LSTM, proj_size, INT64_MAX);
    CHECK_BAD_SPEC(RNL_LSTM, proj_size, -1);
    CHECK_BAD_SPEC(RNL_LSTM, proj_size, 2);
    CHECK_BAD_SPEC(RNL_GRU, proj_size, 1);
    CHECK_BAD_SPEC(RNL_LSTM, reset, RNL_RESET_BEFORE);
    CHECK_BAD_SPEC(RNL_RNN_TANH, recurrent_activation, RNL_HARD_SIGMOID);
    CHECK_BAD_SPEC(RNL_RNN_TANH, activation, RNL_RELU);
    CHECK_BAD_SPEC(RNL_RNN_RELU, activation, RNL_RELU);
    CHECK_BAD_SPEC(RNL_LSTM, skip_input, 1);
    CHECK_BAD_SPEC(RNL_GRU, peepholes, 1);
    CHECK_BAD_SPEC(RNL_RNN_RELU, peepholes, 1);
}

/* An LSTM of 2 layers, one direction and 4 gates has none of these blocks, in no layout. */
static void check_bad_blocks(void)
{
    static const rnl_block bad[] = {
        {.role = RNL_W, .gate = 4},          {.role = RNL_R, .gate = -1},
        {.role = RNL_BW, .gate = 100000},    {.role = RNL_BR, .gate = INT_MIN},
        {.role = RNL_PEEP, .gate = 4},       {.role = RNL_P, .gate = 1},
        {.role = RNL_W, .layer = 2},         {.role = RNL_W, .layer = -1},
        {.role = RNL_R, .layer = INT64_MAX}, {.role = RNL_R, .direction = 1},
        {.role = RNL_R, .direction = -1},    {.role = RNL_NO_ROLE},
        {.role = (rnl_role)(RNL_PEEP + 1)},  {.role = (rnl_role)-1},
    };
    const layouts known = layouts_all();
    rnl_spec spec = rnl_spec_default(RNL_LSTM, 3, 2);
    rnl_view view;
    spec.num_layers = 2;
    for (int k = 0; k < known.n; k++)
        for (size_t b = 0; b < sizeof bad / sizeof *bad; b++)
            if (!rnl_layout_check(&known.all[k], &spec, &err))
                REFUSED(RNL_E_SPEC, view,
                        rnl_layout_locate(&known.all[k], &spec, 3, &bad[b], &view, &err));
    const rnl_layout torch = named("torch"); /* 8 tensors */
    const int64_t no_tensor[] = {-1, 8, INT64_MIN, INT64_MAX};
    rnl_tensor tensor;
    for (int k = 0; k < 4; k++)
        REFUSED(RNL_E_LAYOUT, tensor,
                rnl_layout_tensor(&torch, &spec, 1, no_tensor[k], &tensor, &err));
}

/* -------------------------------------------------------- what a layout cannot represent -- */

/* convert/test_conversions.py has the reasons. */
static void check_no_form(void)
{
    rnl_spec spec = rnl_spec_default(RNL_LSTM, 3, INT64_C(1) << 28);
    spec.proj_size = (INT64_C(1) << 28) - 1; /* the longest message has five long numbers */
    check_spec_refused(&spec, "onnx", RNL_E_LOSSY);
    spec = rnl_spec_default(RNL_RNN_RELU, 3, 2);
    check_spec_refused(&spec, "keras-cudnn", RNL_E_LOSSY);
    rnl_layout old = named("cudnn");
    spec.dtype = RNL_BFLOAT16;
    CHECK(!rnl_layout_check(&old, &spec, &err), "%s", err.text);
    CHECK(!rnl_layout_set(&old, "version", "8", &err), "%s", err.text);
    check_error(rnl_layout_check(&old, &spec, &err), RNL_E_SPEC);
}

enum { WEIGHTS = 4 * 2 * 3 + 4 * 2 * 2 + 2 * 4 * 2 };

static int stop(void *arg)
{
    (void)arg;
    return 1;
}

/* A refused run writes neither weights nor report. convert/test_unrepresented.py has the messages.
 */
static void check_runs(void)
{
    static float weights[WEIGHTS], space[WEIGHTS];
    const void *const src[] = {weights, weights + 24, weights + 40, weights + 48};
    void *const dst[] = {space, space, space, space};
    const rnl_layout torch = named("torch"), cudnn = named("cudnn"), onnx = named("onnx");
    rnl_spec spec = rnl_spec_default(RNL_LSTM, 3, 2);
    rnl_plan *plan = NULL, *summed = NULL, *peeping = NULL, *gradient = NULL, *square = NULL;
    rnl_plan *none_made = NULL;
    rnl_report report;
    CHECK(!rnl_plan_new(&spec, &torch, RNL_HAS_BIAS, &cudnn, RNL_WEIGHTS, &plan, &err), "%s",
          err.text);
    CHECK(rnl_plan_num_ops(plan) <= rnl_plan_num_block_ops(plan) &&
              rnl_plan_block_op(plan, 0)->kind == RNL_OP_MOVE,
          "%s", "a step per block, which a plan may join");
    CHECK(!rnl_plan_new(&spec, &onnx, RNL_HAS_PEEPHOLES, &torch, RNL_WEIGHTS, &peeping, &err), "%s",
          err.text);
    spec.bias = RNL_BIAS_INPUT;
    CHECK(!rnl_plan_new(&spec, &torch, RNL_HAS_BIAS, &cudnn, RNL_WEIGHTS, &summed, &err), "%s",
          err.text);
    CHECK(!rnl_plan_new(&spec, &torch, RNL_HAS_BIAS, &cudnn, RNL_GRADIENT, &gradient, &err), "%s",
          err.text);
    CHECK(!rnl_plan_new(&spec, &torch, RNL_HAS_BIAS, &cudnn, RNL_SQUARED_GRADIENT, &square, &err),
          "%s", err.text);
    REFUSED(RNL_E_SPEC, none_made,
            rnl_plan_new(&spec, &torch, RNL_HAS_BIAS, &cudnn, (rnl_kind)3, &none_made, &err));
    /* without biases the gradients of biases are unknown */
    REFUSED(RNL_E_LOSSY, none_made,
            rnl_plan_new(&spec, &torch, 0, &cudnn, RNL_GRADIENT, &none_made, &err));
    for (int k = 0; k < WEIGHTS; k++)
        weights[k] = (float)k;
    weights[0] = -1;
    weights[7] = 65520;                /* the smallest float that is infinite in float16 */
    weights[40] = weights[48] = 3e38f; /* the first bW and bR are finite, their sum is not */
    const rnl_run_options none = {0}, exact = {.exact = 1};
    const struct {
        rnl_status status;
        const rnl_plan *plan;
        rnl_dtype from, to;
        const rnl_run_options *options;
    } refused[] = {
        {RNL_E_LOSSY, peeping, RNL_FLOAT32, RNL_FLOAT32, &none},
        {RNL_E_SPEC, plan, (rnl_dtype)4, RNL_FLOAT32, &none},
        {RNL_E_SPEC, plan, RNL_FLOAT32, (rnl_dtype)-1, &none},
        {RNL_E_LOSSY, plan, RNL_FLOAT32, RNL_FLOAT16, &exact},
        {RNL_E_LOSSY, plan, RNL_FLOAT32, RNL_FLOAT16, &none},
        {RNL_E_LOSSY, summed, RNL_FLOAT32, RNL_FLOAT32, &exact},
        {RNL_E_LOSSY, summed, RNL_FLOAT32, RNL_FLOAT32, &none},
        {RNL_E_LOSSY, gradient, RNL_FLOAT32, RNL_FLOAT32, &none}, /* bW is not bR */
        {RNL_E_LAYOUT, square, RNL_FLOAT32, RNL_FLOAT32, &none},  /* an element is negative */
    };
    for (size_t k = 0; k < sizeof refused / sizeof *refused; k++) {
        REFUSED(refused[k].status, space,
                rnl_plan_run(refused[k].plan, refused[k].from, src, refused[k].to, dst,
                             refused[k].options, NULL, &err));
        REFUSED(refused[k].status, report,
                rnl_plan_run(refused[k].plan, refused[k].from, src, refused[k].to, dst,
                             refused[k].options, &report, &err));
    }
    rnl_plan_free(plan);
    rnl_plan_free(summed);
    rnl_plan_free(gradient);
    rnl_plan_free(square);
    rnl_plan_free(peeping);
    rnl_plan_free(NULL);
}

/* What the tests of the binding cannot ask for; for the rest see run/cpu/test_errors.py. */
static void check_rnns(void)
{
    static const float weights[4 * 2 * (3 + 2 + 2)], x[12];
    static const struct {
        int64_t T, N;
        int dtype;
        rnl_status status;
    } calls[] = {
        {2, 2, RNL_FLOAT16, RNL_E_SPEC}, /* narrower than the weights */
        {-1, 2, RNL_FLOAT32, RNL_E_SPEC},
        {INT64_C(1) << 60, INT64_C(1) << 60, RNL_FLOAT32, RNL_E_NOMEM},
        {1, INT64_C(1) << 57, RNL_FLOAT32, RNL_E_NOMEM}, /* 64 times N is more than an int64 */
        {2, 2, RNL_FLOAT64 + 1, RNL_E_SPEC},
    };
    rnl_spec spec = rnl_spec_default(RNL_LSTM, 3, 2);
    rnl_rnn_options options = {.math = (rnl_cpu_math)(RNL_CPU_MATH_INT8 + 1)};
    rnl_rnn *rnn = NULL;
    rnl_stepper *stepper;
    REFUSED(RNL_E_SPEC, rnn, rnl_rnn_new(&spec, weights, &options, &rnn, &err));
    options.math = RNL_CPU_MATH_BFLOAT16; /* of weights in float32 */
    REFUSED(RNL_E_SPEC, rnn, rnl_rnn_new(&spec, weights, &options, &rnn, &err));
    spec.hidden_size = 0;
    REFUSED(RNL_E_SPEC, rnn, rnl_rnn_new(&spec, weights, NULL, &rnn, &err));
    spec.hidden_size = 2;
    CHECK(!rnl_rnn_new(&spec, weights, NULL, &rnn, &err), "%s", err.text);
    rnl_set_num_threads(64); /* each has a part of the rows */
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
        const rnl_rnn_call call = {.T = calls[k].T,
                                   .N = calls[k].N,
                                   .dtype = (rnl_dtype)calls[k].dtype,
                                   .x = x,
                                   .x_time = 6,
                                   .x_batch = 3};
        check_error(rnl_rnn_run(rnn, &call, &err), calls[k].status);
    }
    CHECK(strstr(err.text, "dtype is 4, need a value of rnl_dtype"), "%s", err.text);
    static const int64_t lengths[1] = {1};
    const rnl_rnn_call both = {.T = 1,
                               .N = 1,
                               .dtype = RNL_FLOAT32,
                               .x = x,
                               .lengths = lengths,
                               .mask = (const unsigned char *)"\1"};
    check_error(rnl_rnn_run(rnn, &both, &err), RNL_E_LAYOUT);
    CHECK(strstr(err.text, "lengths and mask"), "%s", err.text);
    REFUSED(RNL_E_SPEC, stepper,
            rnl_stepper_new(rnn, (rnl_dtype)(RNL_FLOAT64 + 1), &stepper, &err));
    CHECK(strstr(err.text, "dtype is 4, need a value of rnl_dtype"), "%s", err.text);
    rnl_set_num_threads(0);
    rnl_rnn_free(rnn);
    rnl_rnn_free(NULL);
}

/* A conversion with more work than between two polls: the library calls poll, and stops. The values
 * do not matter: the tensors of a side may share memory. */
static void check_interrupt(const char *from, const char *to)
{
    enum { H = 700, ROOM = 9 * H * H };
    const rnl_layout from_layout = named(from), to_layout = named(to);
    const rnl_run_options options = {.poll = stop};
    const rnl_spec spec = rnl_spec_default(RNL_LSTM, H, H);
    rnl_plan *plan = NULL;
    float *const memory = calloc((size_t)2 * ROOM, sizeof *memory);
    const void *const src[] = {memory, memory, memory, memory};
    void *const dst[] = {memory + ROOM, memory + ROOM, memory + ROOM};
    CHECK(memory && !rnl_plan_new(&spec, &from_layout, RNL_HAS_BIAS, &to_layout, RNL_WEIGHTS, &plan,
                                  &err),
          "%s", err.text);
    check_error(rnl_plan_run(plan, RNL_FLOAT32, src, RNL_FLOAT32, dst, &options, NULL, &err),
                RNL_E_INTERRUPTED);
    rnl_plan_free(plan);
    free(memory);
}

/* ---------------------------------------------------------------------------- huge sizes -- */

/* The bytes of the weights as float64, accurate enough to tell 2^63 from a quarter of it. */
static double about_nbytes(const rnl_spec *spec)
{
    const double H = (double)spec->hidden_size, D = spec->bidirectional ? 2 : 1;
    const double state = spec->proj_size ? (double)spec->proj_size : H;
    const double gates = spec->cell == RNL_LSTM ? 4 : spec->cell == RNL_GRU ? 3 : 1;
    const double first = gates * H * ((double)spec->input_size + state);
    const double deep = gates * H * (D * state + state);
    const double projection = spec->proj_size ? H * state : 0;
    return 8 * D * (first + projection + ((double)spec->num_layers - 1) * (deep + projection));
}

static void check_block(const rnl_layout *layout, const rnl_spec *spec, int64_t k)
{
    const rnl_block block = rnl_block_at(spec, k);
    rnl_view view = {.tensor = -2};
    CHECK(!rnl_layout_locate(layout, spec, 3, &block, &view, &err), "%s", err.text);
    CHECK(view_is_inside(layout, spec, 3, &view), "block %" PRId64, k);
}

static void check_size(const rnl_spec *spec, const layouts *known)
{
    const rnl_status status = rnl_spec_check(spec, &err);
    const double nbytes = about_nbytes(spec);
    if (status)
        check_error(status, RNL_E_SPEC);
    CHECK(status || nbytes < 0x1.001p63, "%g bytes taken", nbytes);
    if (spec->num_layers <= 2) /* the library bounds all layers by the widest */
        CHECK(!status || nbytes > 0x1p61, "%g bytes: %s", nbytes, err.text);
    for (int k = 0; k < known->n && !status; k++) {
        if (rnl_layout_check(&known->all[k], spec, &err))
            continue;
        const int64_t n = rnl_num_blocks(spec);
        for (int64_t block = 0; block < n; block += 1 + n / 20)
            check_block(&known->all[k], spec, block);
        check_block(&known->all[k], spec, n - 1);
    }
}

static void check_sizes(void)
{
    const layouts known = layouts_all();
    const int64_t sizes[] = {1, 3, INT64_C(1) << 15, INT64_C(1) << 28, (INT64_C(1) << 30) - 1,
                             (INT64_C(1) << 31) + 1, INT64_C(3) << 57, INT64_C(1) << 62, INT64_MAX,
                             /* I + 2 H + 3 = 2^64: a row of an RNN would wrap around to 0 */
                             INT64_C(6148914691236517204), INT64_C(6148914691236517205)};
    enum { N = sizeof sizes / sizeof sizes[0] };
    const int64_t layers[] = {1, 2, 65536, INT64_MAX};
    for (rnl_cell cell = RNL_LSTM; cell <= RNL_RNN_RELU; cell++)
        for (int k = 0; k < N * N * 4 * 2; k++) {
            if (!check_is_drawn())
                continue;
            rnl_spec spec = rnl_spec_default(cell, sizes[k % N], sizes[k / N % N]);
            spec.num_layers = layers[k / (N * N) % 4];
            spec.bidirectional = k / (N * N * 4);
            check_size(&spec, &known);
            spec.proj_size = spec.hidden_size - 1; /* 0 for H = 1: no projection */
            if (cell == RNL_LSTM)
                check_size(&spec, &known);
        }
}

int main(void)
{
    char endless[5000];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    check_names("nonsense");
    check_names(endless);
    CHECK(!strcmp(rnl_version(), RNL_VERSION), "%s", rnl_version());
    check_bad_specs();
    check_bad_blocks();
    check_no_form();
    check_runs();
    check_rnns();
    check_interrupt("torch", "cudnn");
    check_interrupt("keras-cudnn", "keras"); /* windows that are not a block of the target */
    check_sizes();
    return check_end();
}

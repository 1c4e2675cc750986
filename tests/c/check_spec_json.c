/* Does rnl_spec_from_json() read its text and no byte more, and refuse the rest with a message that
 * names the key? test_spec_json.py compares what it returns with Python's reader. And does
 * rnl_weights_check() tell the weights of a JSON from all others? */
#include <string.h>

#include "guard.h"

/* All keys, an escape, and every kind of value. */
static const char whole[] =
    "{\"schema\": 1, \"cell\": \"l\\u0073tm\", \"input_size\": 5, \"hidden_size\": 7,"
    " \"num_layers\": 2, \"bidirectional\": true, \"proj_size\": 3, \"bias\": \"input\","
    " \"reset\": \"after\", \"recurrent_activation\": \"hard_sigmoid\", \"skip_input\": false,"
    " \"dtype\": \"bfloat16\", \"peepholes\": true, \"activation\": \"relu\","
    " \"crc32\": \"cbf43926\", \"layout\": \"cudnn\", \"nbytes\": -1.5e+3, \"batch_first\": null, \"entry\": \"\xc3\xa9\\n\","
    " \"regions\": [{\"role\": \"W\", \"at\": [0, 1]}, {}, []],"
    " \"config\": {\"cell_clip\": 0.25, \"stateful\": true, \"go_backwards\": false}}\n";

static arena memory; /* ends before a page without access rights */
static rnl_error err;

static rnl_status read_text(const char *text, size_t nbytes, rnl_spec *spec,
                            rnl_rnn_options *options)
{
    char *const at = memory.start + memory.nbytes - nbytes;
    memcpy(at, text, nbytes);
    return rnl_spec_from_json(at, nbytes, spec, options, &err);
}

/* Refused with a message that has these words, and without an output. */
static void check_refused(const char *text, size_t nbytes, rnl_status expected, const char *words)
{
    rnl_spec spec, spec_before;
    rnl_rnn_options options, options_before;
    memset(&spec, 0x5a, sizeof spec);
    memset(&options, 0x5a, sizeof options);
    spec_before = spec;
    options_before = options;
    err = (rnl_error){.status = RNL_OK};
    const rnl_status status = read_text(text, nbytes, &spec, &options);
    CHECK(status == expected && err.status == expected, "status %d: %s", (int)status, text);
    CHECK(strstr(err.text, words), "'%s' lacks '%s'", err.text, words);
    CHECK(strlen(err.text) < sizeof err.text - 1, "%s", err.text);
    CHECK(memcmp(&spec, &spec_before, sizeof spec) == 0 &&
              memcmp(&options, &options_before, sizeof options) == 0,
          "written on error: %s", err.text);
}

/* A text that is cut off is never a spec. */
static void check_cut(void)
{
    rnl_spec spec;
    rnl_rnn_options options;
    CHECK(!read_text(whole, sizeof whole - 1, &spec, &options), "%s", err.text);
    for (size_t n = 0; n < sizeof whole - 2; n++)
        check_refused(whole, n, RNL_E_SPEC, "");
}

/* More brackets than a stack has room for are refused, whatever follows them. */
static void check_depth(void)
{
    enum { MANY = 1 << 20 };
    static char text[MANY + 16];
    const char *const brackets[] = {"[", "{\"a\":"};
    for (int which = 0; which < 2; which++) {
        size_t n = (size_t)sprintf(text, "{\"regions\":");
        while (n < MANY)
            n += (size_t)sprintf(text + n, "%s", brackets[which]);
        check_refused(text, n, RNL_E_SPEC, "arrays and objects");
    }
}

static void check_messages(void)
{
#define SPEC(rest) "{\"schema\":1,\"cell\":\"lstm\",\"input_size\":5,\"hidden_size\":7" rest
    static const struct {
        const char *text, *words;
        rnl_status status;
    } cases[] = {
        {"[]", "byte 0 is [, need '{'", RNL_E_SPEC},
        {"{}", "schema is missing", RNL_E_SPEC},
        {"{\"schema\":1,\"cell\":\"lstm\",\"input_size\":5}", "hidden_size is missing", RNL_E_SPEC},
        {SPEC("} {}"), "byte 58 is {, need the end", RNL_E_SPEC},
        {SPEC(",}"), "need a string", RNL_E_SPEC},
        {SPEC(",\"schema\":1}"), "schema occurs twice", RNL_E_SPEC},
        {SPEC(",\"hidden_size\":7}"), "hidden_size occurs twice", RNL_E_SPEC},
        {SPEC(",\"hidden\":7}"), "unknown field 'hidden'; a spec has cell, input_size", RNL_E_SPEC},
        {SPEC(",\"num_layers\":2.0}"), "num_layers is 2.0, need a whole number", RNL_E_SPEC},
        {SPEC(",\"num_layers\":\"2\"}"), "num_layers is \"2\", need a whole number", RNL_E_SPEC},
        {SPEC(",\"num_layers\":9223372036854775808}"), "need less than 2^63", RNL_E_SPEC},
        {SPEC(",\"num_layers\":-1}"), "num_layers is -1, need at least 1", RNL_E_SPEC},
        {SPEC(",\"num_layers\":01}"), "need ',' or '}'", RNL_E_SPEC},
        {SPEC(",\"proj_size\":9}"), "proj_size is 9, need less than hidden_size 7", RNL_E_SPEC},
        {SPEC(",\"bidirectional\":2}"), "bidirectional is 2, need true or false", RNL_E_SPEC},
        {SPEC(",\"dtype\":\"f4\"}"), "dtype is 'f4', need one of: float16, bfloat16", RNL_E_SPEC},
        {SPEC(",\"dtype\":4}"), "dtype is 4, need a name", RNL_E_SPEC},
        {SPEC(",\"entry\":\"\x01\"}"), "need the end of a string", RNL_E_SPEC},
        {SPEC(",\"entry\":\"\\x\"}"), "after a backslash", RNL_E_SPEC},
        {SPEC(",\"entry\":\"\\u006g\"}"), "a hexadecimal digit", RNL_E_SPEC},
        {SPEC(",\"entry\":\"\\u006G\"}"), "a hexadecimal digit", RNL_E_SPEC},
        {SPEC(",\"entry\":\"\\u00 6\"}"), "a hexadecimal digit", RNL_E_SPEC},
        {SPEC(",\"entry\":NaN}"), "is N, need a value", RNL_E_SPEC},
        {SPEC(",\"config\":[]}"), "which \"config\" is", RNL_E_SPEC},
        {SPEC(",\"config\":{\"cell_clip\":-1}}"), "cell_clip that is -1", RNL_E_SPEC},
        {SPEC(",\"config\":{\"go_backwards\":true}}"), "go_backwards true", RNL_E_LOSSY},
        {SPEC(",\"config\":{\"initial_h\":[[[1]]]}}"), "initial_h [[[1]]]", RNL_E_LOSSY},
        {SPEC(",\"config\":{\"direction\":\"bidirectional\"}}"), "direction \"bi", RNL_E_LOSSY},
        {SPEC(",\"config\":{\"stateful\":}}"), "need a value", RNL_E_SPEC},
        {"{\"schema\":2}", "schema is 2; rnnlayout " RNL_VERSION " reads 1", RNL_E_SPEC},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        check_refused(cases[k].text, strlen(cases[k].text), cases[k].status, cases[k].words);
}

/* The check value in catalogues of CRCs: that of the digits 1 to 9. */
static void check_weights(void)
{
    char weights[] = "123456789";
    char *const at = memory.start + memory.nbytes - (sizeof weights - 1);
    const char *const plain = "{\"schema\":1,\"cell\":\"gru\",\"input_size\":1,\"hidden_size\":1}";
    memcpy(at, weights, sizeof weights - 1);
    CHECK(!rnl_weights_check(whole, sizeof whole - 1, at, 9, &err), "%s", err.text);
    CHECK(!rnl_weights_check(plain, strlen(plain), at, 3, &err), "%s", err.text);
    CHECK(rnl_weights_check(whole, 30, at, 9, &err) == RNL_E_SPEC, "a text that is cut off");
    for (size_t k = 0; k < 9; k++) {
        at[k] ^= 1;
        CHECK(rnl_weights_check(whole, sizeof whole - 1, at, 9, &err) == RNL_E_LAYOUT, "%zu", k);
        CHECK(strstr(err.text, ", and their JSON has \"cbf43926\""), "%s", err.text);
        at[k] ^= 1;
    }
    CHECK(rnl_weights_check(whole, sizeof whole - 1, at, 8, &err) == RNL_E_LAYOUT, "8 bytes");
}

int main(void)
{
    memory = arena_new(1 << 21);
    CHECK(strcmp(rnl_version(), RNL_VERSION) == 0, "%s", rnl_version());
    check_cut();
    check_depth();
    check_messages();
    check_weights();
    return check_end();
}

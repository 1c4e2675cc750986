/* The names of the values of the enums. No other file lists these names. */
#include <string.h>

#include "core/status.h"
#include "model/spec.h"

typedef struct names {
    const char *key; /* in JSON: the field of rnl_spec */
    const char *names[8];
} names;

/* clang-format off */
static const names families[] = {
    [RNL_NAMES_CELL] = {"cell",
                        {[RNL_LSTM] = "lstm", [RNL_GRU] = "gru", [RNL_RNN_TANH] = "rnn_tanh",
                         [RNL_RNN_RELU] = "rnn_relu"}},
    [RNL_NAMES_BIAS] = {"bias",
                        {[RNL_BIAS_DOUBLE] = "double", [RNL_BIAS_INPUT] = "input",
                         [RNL_BIAS_RECURRENT] = "recurrent", [RNL_BIAS_NONE] = "none"}},
    [RNL_NAMES_RESET] = {"reset",
                         {[RNL_RESET_AFTER] = "after", [RNL_RESET_BEFORE] = "before"}},
    [RNL_NAMES_ACTIVATION] = {"recurrent_activation",
                              {[RNL_SIGMOID] = "sigmoid", [RNL_HARD_SIGMOID] = "hard_sigmoid",
                               [RNL_HARD_SIGMOID_KERAS2] = "hard_sigmoid_keras2"}},
    [RNL_NAMES_STATE_ACTIVATION] = {"activation", {[RNL_TANH] = "tanh", [RNL_RELU] = "relu"}},
    [RNL_NAMES_DTYPE] = {"dtype",
                         {[RNL_FLOAT16] = "float16", [RNL_BFLOAT16] = "bfloat16",
                          [RNL_FLOAT32] = "float32", [RNL_FLOAT64] = "float64"}},
    [RNL_NAMES_ROLE] = {"role",
                        {[RNL_NO_ROLE] = "", [RNL_W] = "W", [RNL_R] = "R", [RNL_P] = "P",
                         [RNL_BW] = "bW", [RNL_BR] = "bR", [RNL_PEEP] = "peephole"}},
    [RNL_NAMES_CHECKED] = {"checked",
                           {[RNL_CHECKED_DOCUMENTS] = "documents",
                            [RNL_CHECKED_RECORDED] = "recorded",
                            [RNL_CHECKED_FRAMEWORK] = "framework"}},
    [RNL_NAMES_SETTING_KIND] = {"kind",
                                {[RNL_SETTING_FLAG] = "flag", [RNL_SETTING_NAME] = "name",
                                 [RNL_SETTING_NAME_OR_NULL] = "name or null",
                                 [RNL_SETTING_NUMBER] = "number", [RNL_SETTING_STATES] = "states",
                                 [RNL_SETTING_LENGTHS] = "lengths"}},
    [RNL_NAMES_SETTING_PLACE] = {"place",
                                 {[RNL_SETTING_BEFORE] = "before", [RNL_SETTING_AFTER] = "after",
                                  [RNL_SETTING_EACH_LAYER] = "each layer",
                                  [RNL_SETTING_AXES] = "axes", [RNL_SETTING_CALLS] = "calls",
                                  [RNL_SETTING_ARGUMENT] = "argument"}},
    [RNL_NAMES_KIND] = {"kind",
                        {[RNL_WEIGHTS] = "weights", [RNL_GRADIENT] = "gradient",
                         [RNL_SQUARED_GRADIENT] = "squared_gradient"}},
};
/* clang-format on */

enum { NUM_FAMILIES = sizeof families / sizeof *families };

const char *rnl_name(rnl_family family, int value)
{
    if ((unsigned)family >= NUM_FAMILIES || value < 0 || value >= 8)
        return NULL;
    return families[family].names[value];
}

const char *rnl_family_key(rnl_family family)
{
    return families[family].key;
}

rnl_status rnl_parse(rnl_family family, const char *name, int *value, rnl_error *err)
{
    char all[160] = "";
    const char *known;
    if (!rnl_name(family, 0))
        return rnl_fail(err, RNL_E_SPEC, "family is %d, need 0 to %d", (int)family,
                        NUM_FAMILIES - 1);
    for (int k = 0; (known = rnl_name(family, k)) != NULL; k++) {
        if (strcmp(known, name) == 0) {
            *value = k;
            return RNL_OK;
        }
        rnl_append_name(all, sizeof all, known);
    }
    return rnl_fail(err, RNL_E_SPEC, "%s is '%.40s', need one of: %s", families[family].key, name,
                    all);
}

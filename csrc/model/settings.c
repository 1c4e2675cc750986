/* The table of settings: what changes an RNN but not the weights, and which layouts know the
 * setting. */
#include "model/settings.h"

#include <string.h>

#include "model/spec.h"

#define KERAS {"keras", "keras-cudnn"}
#define BOTH(neutral) {neutral, neutral} /* whatever the number of directions */

static const rnl_setting table[] = {
    /* Keras's RNN(go_backwards=True): y is in the order of computation. In a Bidirectional, y
     * is in the order of the forward layer, and both directions read x from the end. */
    {.key = "go_backwards",
     .kind = RNL_SETTING_FLAG,
     .neutral = BOTH("false"),
     .place = RNL_SETTING_BEFORE,
     .layouts = KERAS,
     .advice = "reverse x along time first"},
    /* Keras's RNN(stateful=True): a call starts from the last state of the call before. */
    {.key = "stateful",
     .kind = RNL_SETTING_FLAG,
     .neutral = BOTH("false"),
     .place = RNL_SETTING_CALLS,
     .layouts = KERAS,
     .advice = "pass the last state to the next call"},
    /* The mask of a layer behind Keras's Masking or Embedding(mask_zero=True): the call of the
     * layer that makes the mask. */
    {.key = "mask",
     .kind = RNL_SETTING_NAME_OR_NULL,
     .neutral = BOTH("null"),
     .place = RNL_SETTING_ARGUMENT,
     .layouts = KERAS,
     .advice = "pass the mask, or lengths, to each call"},
    /* Keras's RNN(zero_output_for_mask=True): y of masked steps is zero, not the last output.
     * Bidirectional sets it. */
    {.key = "zero_output_for_mask",
     .kind = RNL_SETTING_FLAG,
     .neutral = BOTH("false"),
     .place = RNL_SETTING_ARGUMENT,
     .layouts = KERAS,
     .advice = "set y of masked steps to zero"},
    /* Keras 2's RNN(time_major=True): x and y are (T, N, ...). Keras 3 dropped this option. */
    {.key = "time_major",
     .kind = RNL_SETTING_FLAG,
     .neutral = BOTH("false"),
     .place = RNL_SETTING_AXES,
     .layouts = KERAS,
     .advice = "exchange the first two axes of x and y"},
    /* Keras's Bidirectional(merge_mode="sum"); with null, a call returns a list of two. */
    {.key = "merge_mode",
     .kind = RNL_SETTING_NAME_OR_NULL,
     .names = {"sum", "mul", "ave"},
     .neutral = BOTH("\"concat\""),
     .place = RNL_SETTING_AFTER,
     .directions = 2,
     .layouts = KERAS,
     .advice = "join the two directions of y afterwards"},
    /* ONNX's attribute direction: "reverse" is a single direction, which reads x from the end; y is
     * in the order of x. */
    {.key = "direction",
     .kind = RNL_SETTING_NAME,
     .names = {"reverse"},
     .neutral = {"\"forward\"", "\"bidirectional\""},
     .place = RNL_SETTING_EACH_LAYER,
     .directions = 1,
     .layouts = {"onnx"},
     .advice = "reverse x along time first, and y afterwards"},
    /* ONNX's attribute layout: with 1, x, y and the states are batch first. */
    {.key = "layout",
     .kind = RNL_SETTING_FLAG,
     .neutral = BOTH("false"),
     .place = RNL_SETTING_AXES,
     .layouts = {"onnx"},
     .advice = "exchange the first two axes of x, y and the states"},
    /* ONNX's inputs of a node that are constant; the first state in the weights of a NAM model. */
    {.key = "initial_h",
     .kind = RNL_SETTING_STATES,
     .neutral = BOTH("0"),
     .place = RNL_SETTING_EACH_LAYER,
     .layouts = {"onnx", "nam"},
     .advice = "pass it as the initial state"},
    {.key = "initial_c",
     .kind = RNL_SETTING_STATES,
     .neutral = BOTH("0"),
     .place = RNL_SETTING_EACH_LAYER,
     .needs_c = 1,
     .layouts = {"onnx", "nam"},
     .advice = "pass it as the initial state"},
    {.key = "sequence_lens",
     .kind = RNL_SETTING_LENGTHS,
     .place = RNL_SETTING_EACH_LAYER,
     .layouts = {"onnx"},
     .advice = "pass the lengths in the call"},
    /* ONNX's attribute clip: of the sums before each activation. */
    {.key = "clip",
     .kind = RNL_SETTING_NUMBER,
     .place = RNL_SETTING_EACH_LAYER,
     .layouts = {"onnx"},
     .advice = "outputs differ where it clips"},
    /* TFLite's options of LSTMs, which clip c and the projected h. TFLite's 0 means no clip and is
     * not read as a setting: an RNN that clips at 0 is another RNN. */
    {.key = "cell_clip",
     .kind = RNL_SETTING_NUMBER,
     .place = RNL_SETTING_EACH_LAYER,
     .needs_c = 1,
     .layouts = {"tflite"},
     .advice = "outputs differ where it clips the cell state"},
    {.key = "proj_clip",
     .kind = RNL_SETTING_NUMBER,
     .place = RNL_SETTING_EACH_LAYER,
     .needs_c = 1,
     .layouts = {"tflite"},
     .advice = "outputs differ where it clips h"},
};

enum { NUM_SETTINGS = sizeof table / sizeof *table };

const rnl_setting *rnl_setting_at(int k)
{
    return k >= 0 && k < NUM_SETTINGS ? &table[k] : NULL;
}

const rnl_setting *rnl_setting_named(const char *key)
{
    for (int k = 0; k < NUM_SETTINGS; k++)
        if (strcmp(table[k].key, key) == 0)
            return &table[k];
    return NULL;
}

/* Does a value consist of arrays of zeros? In a zero, only the exponent may have other digits. */
static bool is_zeros(rnl_slice value)
{
    bool has_number = false, in_exponent = false;
    for (const char *at = value.at; at < value.at + value.nbytes; at++) {
        if (!strchr("[], \t\r\n0123456789.-+eE", *at))
            return false;
        in_exponent = strchr("eE", *at) || (in_exponent && !strchr(",]", *at));
        if (!in_exponent && *at >= '1' && *at <= '9')
            return false;
        has_number |= *at == '0';
    }
    return has_number;
}

bool rnl_setting_changes(const rnl_setting *setting, rnl_slice value, const rnl_spec *spec)
{
    const char *const neutral = setting->neutral[rnl_num_directions(spec) - 1];
    if (setting->place == RNL_SETTING_AXES || setting->place == RNL_SETTING_CALLS)
        return false;
    if (!neutral)
        return true;
    switch (setting->kind) {
    case RNL_SETTING_FLAG: return !rnl_json_is(value, neutral) && !rnl_json_is(value, "0");
    case RNL_SETTING_STATES: return !is_zeros(value);
    default: return !rnl_json_is(value, neutral);
    }
}

/* Look-ups in the table of settings, for the reader of JSON. */
#ifndef RNL_MODEL_SETTINGS_H
#define RNL_MODEL_SETTINGS_H

#include <stdbool.h>

#include "core/json.h"
#include "rnnlayout.h"

/* Return the setting with this key; NULL: the table lacks the key. */
const rnl_setting *rnl_setting_named(const char *key);

/* Does a value, as JSON, change the numbers of a call in an RNN of this spec? */
bool rnl_setting_changes(const rnl_setting *setting, rnl_slice value, const rnl_spec *spec);

#endif

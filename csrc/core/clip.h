/* Check a clip of the cell state, in the same way on every device. */
#ifndef RNL_CORE_CLIP_H
#define RNL_CORE_CLIP_H

#include "core/status.h"
#include "rnnlayout.h"

static inline rnl_status rnl_clip_check(const rnl_spec *spec, double low, double high,
                                        rnl_error *err)
{
    if (!rnl_cell_facts_of(spec->cell)->has_c)
        return rnl_fail(err, RNL_E_SPEC,
                        "a cell clip needs a cell state, which only an lstm has; this is %s",
                        rnl_name(RNL_NAMES_CELL, (int)spec->cell));
    if (!(low <= high))
        return rnl_fail(err, RNL_E_SPEC, "the cell clip is (%g, %g), need low <= high", low, high);
    return RNL_OK;
}

#endif

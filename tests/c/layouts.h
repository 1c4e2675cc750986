/* Every layout with every choice of its options, from the public table. */
#ifndef LAYOUTS_H
#define LAYOUTS_H

#include <string.h>

#include "check.h"
#include "rnnlayout.h"

enum { MAX_LAYOUTS = 64 };

typedef struct layouts {
    rnl_layout all[MAX_LAYOUTS];
    int n;
} layouts;

static inline void layouts_add(layouts *to, rnl_layout layout, const rnl_option *const *options)
{
    rnl_error err;
    if (!*options) {
        to->all[to->n++] = layout;
        return;
    }
    for (const char *const *value = (*options)->values; *value; value++) {
        CHECK(!rnl_layout_set(&layout, (*options)->name, *value, &err), "%s", err.text);
        layouts_add(to, layout, options + 1);
    }
}

static inline layouts layouts_all(void)
{
    layouts found = {.n = 0};
    rnl_row_info row, next;
    rnl_error err;
    for (int k = 0; !rnl_row_at(k, &row, &err); k++) {
        const rnl_option *options[RNL_NUM_OPTIONS + 1] = {NULL};
        rnl_layout layout;
        memcpy(options, row.options, sizeof row.options);
        CHECK(!rnl_layout_named(row.layout, &layout, &err), "%s", err.text);
        if (rnl_row_at(k + 1, &next, &err) || strcmp(row.layout, next.layout) != 0)
            layouts_add(&found, layout, options); /* the rows of a layout follow each other */
    }
    return found;
}

/* Is the last element of a view inside its tensor, of less than 2^63 bytes? */
static inline bool view_is_inside(const rnl_layout *layout, const rnl_spec *spec, unsigned optional,
                                  const rnl_view *view)
{
    rnl_tensor tensor;
    rnl_error err;
    if (view->tensor < 0)
        return true;
    if (rnl_layout_tensor(layout, spec, optional, view->tensor, &tensor, &err))
        return false;
    const int64_t last = view->at + (view->rows - 1) * view->row_stride +
                         (view->cols - 1) * view->col_stride;
    return view->at >= 0 && last >= view->at && last < tensor.nelems &&
           tensor.nelems <= INT64_MAX / 8;
}

#endif

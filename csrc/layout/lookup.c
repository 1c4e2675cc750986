/* Look up layouts, options, rows of the table and aliases. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "layout/form.h"

rnl_status rnl_layout_named(const char *name, rnl_layout *layout, rnl_error *err)
{
    for (int k = 0; k < rnl_num_aliases; k++)
        if (strcmp(rnl_aliases[k].name, name) == 0)
            name = rnl_aliases[k].layout;
    for (int k = 0; k < rnl_num_rows; k++)
        if (strcmp(rnl_rows[k].layout, name) == 0) {
            *layout = (rnl_layout){.name = rnl_rows[k].layout, .rows = &rnl_rows[k]};
            for (; k < rnl_num_rows && strcmp(rnl_rows[k].layout, name) == 0; k++)
                layout->num_rows++; /* the rows of a layout follow one another */
            return RNL_OK;
        }
    char all[512] = "";
    for (int k = 0; k < rnl_num_listed; k++)
        if (k == 0 || strcmp(rnl_rows[k].layout, rnl_rows[k - 1].layout) != 0)
            rnl_append_name(all, sizeof all, rnl_rows[k].layout);
    return rnl_fail(err, RNL_E_LAYOUT, "no layout is called '%.60s', need one of: %s", name, all);
}

static unsigned options_of(const rnl_layout *layout)
{
    unsigned options = 0;
    for (int k = 0; k < layout->num_rows; k++)
        options |= layout->rows[k].options;
    return options;
}

/* Set the option forget_bias, a number. */
static rnl_status set_forget_bias(rnl_layout *layout, const char *value, rnl_error *err)
{
    char *end;
    const double number = strtod(value, &end);
    if (end == value || *end || !isfinite(number))
        return rnl_fail(err, RNL_E_LAYOUT,
                        "%s: option forget_bias is '%.40s', need a finite number such as 1.0",
                        layout->name, value);
    layout->option[RNL_OPT_FORGET_BIAS] = 1;
    layout->forget_bias = number;
    return RNL_OK;
}

rnl_status rnl_layout_set(rnl_layout *layout, const char *option, const char *value, rnl_error *err)
{
    char all[160] = "";
    for (int k = 0; k < RNL_NUM_OPTIONS; k++) {
        if (!(options_of(layout) >> k & 1))
            continue;
        rnl_append_name(all, sizeof all, rnl_options[k].name);
        if (strcmp(rnl_options[k].name, option) != 0)
            continue;
        if (rnl_options[k].is_number)
            return set_forget_bias(layout, value, err);
        char values[80] = "";
        for (int v = 0; rnl_options[k].values[v]; v++) {
            rnl_append_name(values, sizeof values, rnl_options[k].values[v]);
            if (strcmp(rnl_options[k].values[v], value) == 0) {
                layout->option[k] = v;
                return RNL_OK;
            }
        }
        return rnl_fail(err, RNL_E_LAYOUT, "%s: option %s is '%.40s', need one of: %s",
                        layout->name, option, value, values);
    }
    return rnl_fail(err, RNL_E_LAYOUT, "%s has no option '%.40s'; its options: %s", layout->name,
                    option, *all ? all : "none");
}

static void describe_row(const rnl_row *row, rnl_row_info *info)
{
    *info = (rnl_row_info){.layout = row->layout,
                           .resets = row->resets,
                           .activations = row->activations,
                           .has_relu = row->has_relu,
                           .bias_always = row->bias_always,
                           .forget_bias = row->forget_bias,
                           .z_takes_candidate = row->z == RNL_Z_TAKES_CANDIDATE,
                           .must_name = row->must_name,
                           .checked = row->checked,
                           .source = row->source};
    for (int cell = 0; cell < RNL_NUM_CELLS; cell++)
        info->gates[cell] = row->gates[cell];
    for (rnl_role role = RNL_W; role <= RNL_PEEP; role++)
        info->roles |= rnl_row_has_role(row, role) ? 1u << role : 0;
    int n = 0;
    for (int option = 0; option < RNL_NUM_OPTIONS; option++)
        if (row->options >> option & 1)
            info->options[n++] = &rnl_options[option];
}

rnl_status rnl_row_at(int k, rnl_row_info *info, rnl_error *err)
{
    if (k < 0 || k >= rnl_num_listed)
        return rnl_fail(err, RNL_E_LAYOUT, "row %d does not exist: the table has %d rows", k,
                        rnl_num_listed);
    describe_row(&rnl_rows[k], info);
    return RNL_OK;
}

rnl_status rnl_layout_row_at(const rnl_layout *layout, int k, rnl_row_info *info, rnl_error *err)
{
    if (k < 0 || k >= layout->num_rows)
        return rnl_fail(err, RNL_E_LAYOUT, "row %d does not exist: %s has %d rows", k, layout->name,
                        layout->num_rows);
    describe_row(&layout->rows[k], info);
    return RNL_OK;
}

rnl_status rnl_alias_at(int k, rnl_alias *alias, rnl_error *err)
{
    if (k < 0 || k >= rnl_num_aliases)
        return rnl_fail(err, RNL_E_LAYOUT, "alias %d does not exist: there are %d aliases", k,
                        rnl_num_aliases);
    *alias = rnl_aliases[k];
    return RNL_OK;
}

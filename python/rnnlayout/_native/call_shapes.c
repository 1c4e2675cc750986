/* Which shapes do the arrays of a call have? They follow from the shape of x. */
#include "call_shapes.h"

int call_shapes_find(const rnl_spec *spec, int axes, const array_shape *x, call_shapes *shapes)
{
    const int has_time = axes != STEP, batched = x->ndim == 2 + has_time, last = x->ndim - 1;
    if ((!batched && x->ndim != 1 + has_time) || x->sizes[last] != spec->input_size)
        return 0;
    const int batch_first = batched && axes == BATCH_FIRST;
    shapes->time_axis = has_time ? batch_first : -1;
    shapes->batch_axis = batched ? axes == TIME_FIRST : -1;
    shapes->T = has_time ? x->sizes[shapes->time_axis] : 1;
    shapes->N = batched ? x->sizes[shapes->batch_axis] : 1;
    const int64_t directions = spec->bidirectional ? 2 : 1;
    array_shape state = {.ndim = 2 + batched, .sizes = {spec->num_layers * directions, shapes->N}};
    state.sizes[state.ndim - 1] = spec->hidden_size;
    shapes->of[C0] = shapes->of[CN] = state;
    state.sizes[state.ndim - 1] = state_size_of(spec);
    shapes->of[H0] = shapes->of[HN] = state;
    shapes->of[X] = shapes->of[Y] = *x;
    shapes->of[Y].sizes[last] = directions * state_size_of(spec);
    return 1;
}

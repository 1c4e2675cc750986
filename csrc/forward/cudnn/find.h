/* Where a cuDNN may be. */
#ifndef RNL_CUDNN_FIND_H
#define RNL_CUDNN_FIND_H

#include "forward/cudnn/load.h"
#include "forward/cudnn/report.h"

/*
 * Look everywhere in the order of rnl_cudnn_find() until a cuDNN opens, and report each place.
 *
 * chosen  the one place to look at instead, NULL: none; origin then says who chose it
 * driver  NULL: there is none that can be used
 *
 * True: library is filled.
 */
bool rnl_cudnn_look(const rnl_cudnn_search *search, const char *chosen, const char *origin,
                    const rnl_driver *driver, rnl_cudnn_library *library, rnl_findings *findings);

#endif

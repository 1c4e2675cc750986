/* The search for cuDNN. */
#ifndef RNL_CUDNN_FIND_H
#define RNL_CUDNN_FIND_H

#include "forward/cudnn/load.h"
#include "forward/cudnn/report.h"

/*
 * Look in all places, in the order of rnl_cudnn_find(), until a cuDNN opens, and report each place.
 *
 * chosen  look only at this place, and report it with this origin; NULL: in all places
 * driver  NULL: no driver can be used
 *
 * True: library is filled in.
 */
bool rnl_cudnn_look(const rnl_cudnn_search *search, const char *chosen, const char *origin,
                    const rnl_driver *driver, rnl_cudnn_library *library, rnl_findings *findings);

#endif

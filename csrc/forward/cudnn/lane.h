/*
 * Lanes: what cuDNN needs on a device for one call at a time. A device has a few, made when they
 * are needed and kept until the process ends: to destroy a handle of cuDNN waits for the device,
 * which breaks every capture on it.
 */
#ifndef RNL_CUDNN_LANE_H
#define RNL_CUDNN_LANE_H

#include "forward/cudnn/device.h"

/* Passed for a caller's stream: the lane's own stream. */
#define RNL_OWN_STREAM ((rnl_cu_stream)rnl_gpu_pointer(UINTPTR_MAX))

/*
 * Borrow a lane whose handle works in this stream; waits if all are in use. During a capture no
 * lane is made: one must exist. A lane that a capture has used is not lent to other streams until
 * the capture ends.
 *
 * RNL_E_SPEC: the stream belongs to another device, or open captures have all lanes.
 */
rnl_status rnl_lane_borrow(rnl_gpu_device *device, rnl_cu_stream stream, bool capturing,
                           rnl_lane **lane, rnl_error *err);
void rnl_lane_return(rnl_gpu_device *device, rnl_lane *lane);

#endif

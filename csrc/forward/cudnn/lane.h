/*
 * Lanes: what a call needs on a device besides weights, for one call at a time. A device has a few,
 * made when they are needed and kept until the process ends: to destroy a handle of cuDNN waits for
 * the device, which breaks every capture on it.
 *
 * Work in a lane's memory is ordered: by a default stream itself, else by the lane's event.
 */
#ifndef RNL_CUDNN_LANE_H
#define RNL_CUDNN_LANE_H

#include "forward/cudnn/device.h"

enum { RNL_NUM_LANES = 4 };

/* Device memory for cuDNN and for copies, shared with the graphs that captured a call. */
typedef struct rnl_workspace {
    rnl_cu_address memory;
    size_t nbytes;
    int holders; /* protected by the device's lock */
    bool captured;
} rnl_workspace;

/* Device memory that grows. */
typedef struct rnl_gpu_room {
    rnl_cu_address memory;
    size_t nbytes;
} rnl_gpu_room;

typedef struct rnl_lane {
    int index; /* 0 ... RNL_NUM_LANES - 1 */
    bool busy, used;
    rnl_cudnn_handle handle;
    rnl_cudnn_dropout dropout;
    bool dropout_set;
    rnl_cu_event event;
    rnl_cu_stream own;           /* for arrays of the host; NULL: not made yet */
    rnl_cu_stream handle_stream; /* the handle's stream; a new handle has NULL */

    rnl_cu_stream work_stream; /* the stream of the last work, and the thread */
    uint64_t work_thread;
    enum { RNL_NO_WORK, RNL_WORK_IN_STREAM, RNL_WORK_IN_EVENT } work; /* how to wait for it */

    rnl_workspace *workspace; /* NULL: none yet */
    rnl_gpu_room room;        /* for arrays of the host */
} rnl_lane;

/* Passed for a caller's stream: the lane's own stream. */
#define RNL_OWN_STREAM ((rnl_cu_stream)rnl_gpu_pointer(UINTPTR_MAX))

/*
 * Borrow a lane, made completely; waits if all are in use. Prefers one whose last work was in this
 * stream.
 *
 * fits  NULL, or says which lanes are suitable; then nothing is made
 *
 * RNL_E_SPEC: no lane fits, and none is in use.
 */
rnl_status rnl_lane_borrow(rnl_gpu_device *device, rnl_cu_stream stream,
                           bool (*fits)(const rnl_lane *lane, void *arg), void *arg,
                           rnl_lane **lane, rnl_error *err);
void rnl_lane_return(rnl_gpu_device *device, rnl_lane *lane);

/* Borrow this lane for cleaning up; false: it was never used. */
bool rnl_lane_borrow_this(rnl_gpu_device *device, int index, rnl_lane **lane);

/* Work in this stream from now on, after the lane's earlier work. During a capture nothing is
 * waited for: that work must be done before the capture. */
rnl_status rnl_lane_begin(rnl_gpu_device *device, rnl_lane *lane, rnl_cu_stream stream,
                          bool capturing, rnl_error *err);

/* End of the work, also after a failure. */
rnl_status rnl_lane_end(rnl_gpu_device *device, rnl_lane *lane, rnl_status status, rnl_error *err);

/* Note that the host has waited for all work. */
void rnl_lane_finished(rnl_lane *lane);

/* Provide at least nbytes; `what` it is for. */
rnl_status rnl_lane_workspace(rnl_gpu_device *device, rnl_lane *lane, size_t nbytes,
                              rnl_error *err);
rnl_status rnl_room_grow(rnl_gpu_device *device, rnl_gpu_room *room, size_t nbytes,
                         const char *what, rnl_error *err);

/* Add or remove a holder; the last one frees the workspace. works: the context is current;
 * otherwise only host memory is freed. */
void rnl_workspace_hold(rnl_gpu_device *device, rnl_workspace *workspace);
void rnl_workspace_drop(rnl_gpu_device *device, rnl_workspace *workspace, bool works);

/* Add an RNN to the device, or remove it: the last one frees the lanes' memory. works: the context
 * is current. */
rnl_status rnl_lanes_join(rnl_gpu_device *device, rnl_error *err);
void rnl_lanes_leave(rnl_gpu_device *device, bool works);

#endif

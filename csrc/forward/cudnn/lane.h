/*
 * Lanes: what one call at a time needs on a device besides weights. A device has a few, made when
 * they are wanted, and kept until its last RNN is freed.
 *
 * Work in a lane's memory is ordered: in a default stream by itself, else by the lane's event.
 */
#ifndef RNL_CUDNN_LANE_H
#define RNL_CUDNN_LANE_H

#include "forward/cudnn/device.h"

enum { RNL_NUM_LANES = 4, RNL_NUM_SLOTS = 2 };

/* Device memory for cuDNN's use and ours, shared with the graphs in which a call was captured. */
typedef struct rnl_workspace {
    rnl_cu_address memory;
    size_t nbytes;
    int holders; /* under the device's lock */
    bool captured;
} rnl_workspace;

/* Device memory that grows. */
typedef struct rnl_gpu_room {
    rnl_cu_address memory;
    size_t nbytes;
} rnl_gpu_room;

/* Pinned memory, and the event after which the host may touch it again. */
typedef struct rnl_slot {
    char *memory;
    rnl_cu_event event;
    bool in_flight;
} rnl_slot;

typedef struct rnl_lane {
    int index; /* 0 ... RNL_NUM_LANES - 1 */
    bool busy, used;
    rnl_cudnn_handle handle;
    rnl_cudnn_dropout dropout;
    bool dropout_set;
    rnl_cu_event event;
    rnl_cu_stream own;           /* for the host's arrays; NULL: not made yet */
    rnl_cu_stream handle_stream; /* what the handle was told; NULL is also its first */

    rnl_cu_stream work_stream; /* of the last work */
    uint64_t work_thread;
    enum { RNL_NO_WORK, RNL_WORK_IN_STREAM, RNL_WORK_IN_EVENT } work; /* what covers it */

    rnl_workspace *workspace; /* NULL: none yet */
    rnl_gpu_room room;        /* for the host's arrays */
    rnl_slot slots[RNL_NUM_SLOTS];
} rnl_lane;

/* The stream of its own, in place of a caller's. */
#define RNL_OWN_STREAM ((rnl_cu_stream)rnl_gpu_pointer(UINTPTR_MAX))

/*
 * Borrow a lane that is whole; waits for one where all are in use. Prefers one that did its last
 * work in this stream.
 *
 * fits  NULL, or which ones will do; they are not made then
 *
 * RNL_E_SPEC: none fits, and none is in use.
 */
rnl_status rnl_lane_borrow(rnl_gpu_device *device, rnl_cu_stream stream,
                           bool (*fits)(const rnl_lane *lane, void *arg), void *arg,
                           rnl_lane **lane, rnl_error *err);
void rnl_lane_return(rnl_gpu_device *device, rnl_lane *lane);

/* Borrow this one, to clean up; false: it was never used. */
bool rnl_lane_borrow_this(rnl_gpu_device *device, int index, rnl_lane **lane);

/* Work in this stream from now on, behind what the lane did before. In a capture without that: what
 * was done before the capture has to be over. */
rnl_status rnl_lane_begin(rnl_gpu_device *device, rnl_lane *lane, rnl_cu_stream stream,
                          bool capturing, rnl_error *err);

/* That was all for now, or as far as it got. */
rnl_status rnl_lane_end(rnl_gpu_device *device, rnl_lane *lane, rnl_status status, rnl_error *err);

/* The host has waited for all work. */
void rnl_lane_finished(rnl_lane *lane);

/* At least so many bytes; what for. */
rnl_status rnl_lane_workspace(rnl_gpu_device *device, rnl_lane *lane, size_t nbytes,
                              rnl_error *err);
rnl_status rnl_room_grow(rnl_gpu_device *device, rnl_gpu_room *room, size_t nbytes,
                         const char *what, rnl_error *err);

/* One holder more, one less; the last one frees it. works: with the context current, else only our
 * note of it goes. */
void rnl_workspace_hold(rnl_gpu_device *device, rnl_workspace *workspace);
void rnl_workspace_drop(rnl_gpu_device *device, rnl_workspace *workspace, bool works);

/* An RNN comes to the device or leaves it. With the context current, if it works. */
rnl_status rnl_lanes_join(rnl_gpu_device *device, rnl_error *err);
void rnl_lanes_leave(rnl_gpu_device *device, bool works);

#endif

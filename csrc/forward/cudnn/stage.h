/* Copies of host arrays to and from the device. */
#ifndef RNL_CUDNN_STAGE_H
#define RNL_CUDNN_STAGE_H

#include "forward/cudnn/lane.h"

/* One array of the host, and its place in a block of such arrays. */
typedef struct rnl_piece {
    char *host;
    size_t nbytes, at;
} rnl_piece;

/* The caller's poll, called meanwhile; NULL: none. */
typedef struct rnl_asked {
    int (*poll)(void *);
    void *arg;
} rnl_asked;

/* Copy pieces to one block of the device, after the work in the stream. The host may change them
 * when that work and these copies are done. */
rnl_status rnl_stage_in(rnl_gpu_device *device, rnl_cu_stream stream, rnl_cu_address to,
                        const rnl_piece *pieces, int num_pieces, rnl_error *err);

/* Copy them from the block; when this returns RNL_OK, all work of the stream is done. */
rnl_status rnl_stage_out(rnl_gpu_device *device, rnl_lane *lane, rnl_cu_stream stream,
                         rnl_cu_address from, const rnl_piece *pieces, int num_pieces,
                         rnl_asked asked, rnl_error *err);

/* Add a piece after the last one, aligned for every type. */
void rnl_piece_add(rnl_piece *pieces, int *num_pieces, size_t *used, const void *host,
                   size_t nbytes);

#endif

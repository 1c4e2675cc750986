/* Arrays of the host, to and from the device by way of a lane's pinned memory. */
#ifndef RNL_CUDNN_STAGE_H
#define RNL_CUDNN_STAGE_H

#include "forward/cudnn/lane.h"

/* One array of the host, and where it lies in a row of such arrays. */
typedef struct rnl_piece {
    char *host;
    size_t nbytes, at;
} rnl_piece;

/* Who is asked meanwhile whether to go on; NULL: nobody. */
typedef struct rnl_asked {
    int (*poll)(void *);
    void *arg;
} rnl_asked;

/* Copy pieces to one block of the device, behind the work in the stream; the host may change them
 * afterwards. */
rnl_status rnl_stage_in(rnl_gpu_device *device, rnl_lane *lane, rnl_cu_stream stream,
                        rnl_cu_address to, const rnl_piece *pieces, int num_pieces, rnl_asked asked,
                        rnl_error *err);

/* And from it; all work of the stream is done when this returns RNL_OK. */
rnl_status rnl_stage_out(rnl_gpu_device *device, rnl_lane *lane, rnl_cu_stream stream,
                         rnl_cu_address from, const rnl_piece *pieces, int num_pieces,
                         rnl_asked asked, rnl_error *err);

/* Add a piece behind the last one, on an address that suits every type. */
void rnl_piece_add(rnl_piece *pieces, int *num_pieces, size_t *used, const void *host,
                   size_t nbytes);

#endif

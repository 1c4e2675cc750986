/* What streams, copies and graphs share inside libcuda. */
#ifndef FAKE_CUDA_STREAMS_H
#define FAKE_CUDA_STREAMS_H

#include "fake.h"

struct piece;

struct stream {
    struct fake_object object;
    int index, device, non_blocking, is_legacy;
    struct fake_clock clock; /* all work ordered before the next piece */
    uint32_t done;
    struct piece *first, *last;
    struct fake_capture *capture; /* or NULL */
};

struct event {
    struct fake_object object;
    struct fake_clock clock;
    struct fake_capture *capture; /* where it was recorded, or NULL */
};

struct stream *fake_stream(CUstream given, const char *call);
void fake_enqueue(struct stream *stream, const struct fake_work *work);
void fake_finish(CUstream stream);                /* the host waits for it */
int fake_is_blocked(const struct stream *stream); /* as the legacy stream is beside a capture */
void fake_capture_breaks(struct fake_capture *capture);

#endif

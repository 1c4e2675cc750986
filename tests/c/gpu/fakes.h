/* The fakes of tests/fakes, as a check program uses them. */
#ifndef GPU_FAKES_H
#define GPU_FAKES_H

#include <stddef.h>
#include <stdint.h>

#include "check.h"

/* The fakes' own functions, and some of the driver's. */
extern struct fakes {
    uint64_t (*alloc)(size_t nbytes, int device, int managed);
    void (*free_)(uint64_t at);
    void (*read)(uint64_t at, void *to, size_t nbytes);
    void (*write)(uint64_t at, const void *from, size_t nbytes);
    long (*live)(const char *kind);
    long (*calls)(void);
    void (*fail)(long k, int cuda, int cudnn);
    void (*log)(const char *path);
    int (*sync)(void);
    int (*push)(void *context), (*pop)(void **context), (*retain)(void **context, int device),
        (*release)(int device);
    int (*stream)(void **made, unsigned flags), (*end_stream)(void *stream);
    int (*begin)(void *stream, int mode), (*end)(void *stream, void **graph);
    int (*exchange)(int *mode);
    int (*instantiate)(void **made, void *graph, unsigned long long flags);
    int (*launch)(void *exec, void *stream), (*end_exec)(void *exec), (*end_graph)(void *graph);
    int (*pinned)(void **made, size_t nbytes, unsigned flags);
} fake;

void find_fakes(void);

/* A test's own use of the device: make its context current, and undo that. pushed: how many are
 * current now. */
extern int pushed;
void current(void);
void not_current(void);
void sync_all(void);

/* Find cuDNN and return its version. */
int use_cudnn(void);

/* Check that no objects are alive except those kept until the process ends. */
void check_nothing_left(const char *when);

#endif

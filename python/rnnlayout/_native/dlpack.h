/* DLPack 1.x: our declarations of its ABI (dmlc/dlpack, include/dlpack/dlpack.h). */
#ifndef RNNLAYOUT_DLPACK_H
#define RNNLAYOUT_DLPACK_H

#include <stdint.h>

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };
enum { DL_INT, DL_UINT, DL_FLOAT, DL_OPAQUE, DL_BFLOAT, DL_COMPLEX, DL_BOOL };
enum { DL_MAJOR = 1, DL_MINOR = 1, DL_READ_ONLY = 1 };

typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* elements; strides NULL: compact (before 1.2) */
    uint64_t byte_offset;
} dl_tensor;

/* In a capsule "dltensor": DLPack before 1.0. */
typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *); /* NULL: nothing to do */
} dl_managed;

typedef struct dl_version {
    uint32_t major, minor;
} dl_version;

/* In a capsule "dltensor_versioned". */
typedef struct dl_managed_versioned {
    dl_version version;
    void *context;
    void (*deleter)(struct dl_managed_versioned *);
    uint64_t flags;
    dl_tensor tensor;
} dl_managed_versioned;

/* In a capsule "dlpack_exchange_api", the attribute __dlpack_c_exchange_api__ of an array's type.
 * Functions return 0, or -1 with an exception set. */
typedef struct dl_exchange {
    dl_version version;
    void *previous;
    void (*allocate)(void);
    int (*from_object)(void *object, dl_managed_versioned **managed);
    void (*to_object)(void);
    void (*tensor_from_object)(void);
    int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
} dl_exchange;

#endif

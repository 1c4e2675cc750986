/* DLPack: our declarations of the ABI before 1.0, which all libraries still import and export
 * (dmlc/dlpack, include/dlpack/dlpack.h). */
#ifndef RNNLAYOUT_DLPACK_H
#define RNNLAYOUT_DLPACK_H

#include <stdint.h>

#define DL_CAPSULE "dltensor"
enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };
enum { DL_INT, DL_UINT, DL_FLOAT, DL_OPAQUE, DL_BFLOAT, DL_COMPLEX, DL_BOOL };

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
    int64_t *shape, *strides; /* elements; strides NULL: compact */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *);
} dl_managed;

/* DLPack 1.3: functions of a library for callers that work in the stream of the library. A capsule,
 * an attribute of the class of the library's arrays, has the functions. PyTorch supports this
 * since 2.10. The functions return 0, or -1 with an exception. */
#define DL_EXCHANGE_CAPSULE "dlpack_exchange_api"
typedef struct dl_exchange {
    uint32_t major, minor;
    struct dl_exchange *older;
    int (*allocate)(
        void); /* the first three functions are not used; their arguments are left out */
    int (*export_managed)(void);
    int (*import_managed)(void);
    int (*borrow)(void *array, dl_tensor *tensor); /* may be NULL */
    int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
} dl_exchange;

#endif

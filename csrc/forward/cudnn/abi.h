/*
 * Our declarations of the types and values of cuDNN 9 and NVIDIA's driver that running an RNN
 * needs. So the build needs neither library.
 *
 * The comment of a type is the vendor's name of the type; an enumerator is RNL_ and the vendor's
 * name. tests/run/gpu/test_cudnn_abi.py compiles this file together with the vendor's headers, and
 * compares sizes, values, and the signatures of symbols.def.
 */
#ifndef RNL_CUDNN_ABI_H
#define RNL_CUDNN_ABI_H

#include <stddef.h>
#include <stdint.h>

/* ---------------------------------------------------------------------- cuDNN's objects -- */

typedef struct rnl_cudnn_handle_ *rnl_cudnn_handle;     /* cudnnHandle_t */
typedef struct rnl_cudnn_tensor_ *rnl_cudnn_tensor;     /* cudnnTensorDescriptor_t */
typedef struct rnl_cudnn_dropout_ *rnl_cudnn_dropout;   /* cudnnDropoutDescriptor_t */
typedef struct rnl_cudnn_rnn_ *rnl_cudnn_rnn;           /* cudnnRNNDescriptor_t */
typedef struct rnl_cudnn_rnn_data_ *rnl_cudnn_rnn_data; /* cudnnRNNDataDescriptor_t */

/* ------------------------------------------------------------------------ cuDNN's enums -- */

typedef enum {
    RNL_CUDNN_DATA_FLOAT = 0,
    RNL_CUDNN_DATA_DOUBLE = 1,
    RNL_CUDNN_DATA_HALF = 2,
    RNL_CUDNN_DATA_BFLOAT16 = 9
} rnl_cudnn_data_type; /* cudnnDataType_t */

/* 0 may use TF32 for float32; 2 may lower float32 to half, and is not used. */
typedef enum {
    RNL_CUDNN_DEFAULT_MATH = 0,
    RNL_CUDNN_TENSOR_OP_MATH = 1,
    RNL_CUDNN_FMA_MATH = 3
} rnl_cudnn_math; /* cudnnMathType_t */

typedef enum {
    RNL_CUDNN_RNN_RELU = 0,
    RNL_CUDNN_RNN_TANH = 1,
    RNL_CUDNN_LSTM = 2,
    RNL_CUDNN_GRU = 3
} rnl_cudnn_cell; /* cudnnRNNMode_t */

typedef enum {
    RNL_CUDNN_RNN_NO_BIAS = 0,
    RNL_CUDNN_RNN_SINGLE_INP_BIAS = 1,
    RNL_CUDNN_RNN_DOUBLE_BIAS = 2,
    RNL_CUDNN_RNN_SINGLE_REC_BIAS = 3
} rnl_cudnn_bias; /* cudnnRNNBiasMode_t */

typedef enum {
    RNL_CUDNN_UNIDIRECTIONAL = 0,
    RNL_CUDNN_BIDIRECTIONAL = 1
} rnl_cudnn_directions; /* cudnnDirectionMode_t */

typedef enum {
    RNL_CUDNN_LINEAR_INPUT = 0,
    RNL_CUDNN_SKIP_INPUT = 1
} rnl_cudnn_input; /* cudnnRNNInputMode_t */

typedef enum {
    RNL_CUDNN_RNN_ALGO_STANDARD = 0,
    RNL_CUDNN_RNN_ALGO_PERSIST_STATIC = 1,
    RNL_CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H = 3
} rnl_cudnn_algo; /* cudnnRNNAlgo_t */

typedef enum { RNL_CUDNN_FWD_MODE_INFERENCE = 0 } rnl_cudnn_forward_mode; /* cudnnForwardMode_t */

typedef enum {
    RNL_CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED = 0,
    RNL_CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED = 2
} rnl_cudnn_data_layout; /* cudnnRNNDataLayout_t */

/* Flags of the RNN descriptor: padded I/O is needed for lengths and for batch-major arrays. */
enum { RNL_CUDNN_RNN_PADDED_IO_DISABLED = 0, RNL_CUDNN_RNN_PADDED_IO_ENABLED = 1 };

/* --------------------------------------------------------------------- cuDNN's statuses -- */

/* A thousand numbers for each class, with finer statuses inside. */
typedef enum {
    RNL_CUDNN_STATUS_SUCCESS = 0,
    RNL_CUDNN_STATUS_BAD_PARAM = 2000,
    RNL_CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH = 2007,
    RNL_CUDNN_STATUS_NOT_SUPPORTED = 3000,
    RNL_CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED = 4004
} rnl_cudnn_status; /* cudnnStatus_t */

/* --------------------------------------------------------------------------- the driver -- */

typedef int rnl_cu_device;                            /* CUdevice */
typedef unsigned long long rnl_cu_address;            /* CUdeviceptr */
typedef struct rnl_cu_context_ *rnl_cu_context;       /* CUcontext */
typedef struct rnl_cu_stream_ *rnl_cu_stream;         /* CUstream */
typedef struct rnl_cu_event_ *rnl_cu_event;           /* CUevent */
typedef struct rnl_cu_graph_ *rnl_cu_graph;           /* CUgraph */
typedef struct rnl_cu_graph_exec_ *rnl_cu_graph_exec; /* CUgraphExec */

typedef enum {
    RNL_CUDA_SUCCESS = 0,
    RNL_CUDA_ERROR_OUT_OF_MEMORY = 2,
    RNL_CUDA_ERROR_NO_DEVICE = 100,
    RNL_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906
} rnl_cu_result; /* CUresult */

typedef enum {
    RNL_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    RNL_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    RNL_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
} rnl_cu_device_attribute; /* CUdevice_attribute */

typedef enum {
    RNL_CU_STREAM_CAPTURE_STATUS_NONE = 0
} rnl_cu_capture_status; /* CUstreamCaptureStatus */

typedef enum {
    RNL_CU_STREAM_CAPTURE_MODE_RELAXED = 2
} rnl_cu_capture_mode; /* CUstreamCaptureMode */

/* Flags. */
enum { RNL_CU_STREAM_NON_BLOCKING = 1, RNL_CU_EVENT_DISABLE_TIMING = 2 };

#endif

/*
 * The vendor's types that the fakes need: declared here or, with FAKE_REAL_HEADERS, taken from the
 * vendor's headers, which then check our signatures.
 *
 * The fakes use the vendor's names only for types. Numbers have names of our own, which
 * check_numbers.c compares with the headers.
 */
#ifndef FAKE_VENDOR_H
#define FAKE_VENDOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef FAKE_REAL_HEADERS
#include <cuda.h>
#ifndef FAKE_CUDA_ONLY
#include <cudnn.h>
#endif
#else
typedef int CUresult, CUdevice, CUdevice_attribute;
typedef int CUstreamCaptureMode, CUstreamCaptureStatus;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

typedef int cudnnStatus_t, cudnnDataType_t, cudnnMathType_t;
typedef int cudnnRNNAlgo_t, cudnnRNNMode_t, cudnnRNNBiasMode_t, cudnnDirectionMode_t;
typedef int cudnnRNNInputMode_t, cudnnRNNClipMode_t, cudnnRNNDataLayout_t, cudnnForwardMode_t;
typedef struct cudnnContext *cudnnHandle_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct cudnnDropoutStruct *cudnnDropoutDescriptor_t;
typedef struct cudnnRNNStruct *cudnnRNNDescriptor_t;
typedef struct cudnnRNNDataStruct *cudnnRNNDataDescriptor_t;
typedef struct cudnnTensorStruct *cudnnTensorDescriptor_t;
#endif

/* Status of the driver. */
enum {
    CU_OK = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_INITIALIZED = 3,
    CU_NO_DEVICE = 100,
    CU_INVALID_DEVICE = 101,
    CU_INVALID_CONTEXT = 201,
    CU_CONTAINED = 226,
    CU_INVALID_HANDLE = 400,
    CU_NOT_READY = 600,
    CU_ILLEGAL_ADDRESS = 700,
    CU_LAUNCH_TIMEOUT = 702,
    CU_LAUNCH_FAILED = 719,
    CU_TENSOR_MEMORY_LEAK = 721,
    CU_CAPTURE_UNSUPPORTED = 900,
    CU_CAPTURE_INVALIDATED = 901,
    CU_CAPTURE_ISOLATION = 905,
    CU_CAPTURE_IMPLICIT = 906,
    CU_CAPTURED_EVENT = 907,
    CU_EXTERNAL_DEVICE = 911,
};

/* Attributes of devices, streams and captures. */
enum {
    DEVICE_MAJOR = 75,
    DEVICE_MINOR = 76,
    STREAM_NON_BLOCKING = 1,
    CAPTURE_GLOBAL = 0,
    CAPTURE_THREAD_LOCAL = 1,
    CAPTURE_RELAXED = 2,
    CAPTURE_NONE = 0,
    CAPTURE_ACTIVE = 1,
    CAPTURE_BROKEN = 2,
};

/* cuDNN's numbers; statuses are in cudnn_status.c. */
enum { FLOAT = 0, DOUBLE = 1, HALF = 2, BFLOAT16 = 9, DTYPES = 20 };
enum { CELL_RELU = 0, CELL_TANH = 1, CELL_LSTM = 2, CELL_GRU = 3 };
enum { BIAS_NONE = 0, BIAS_INPUT = 1, BIAS_DOUBLE = 2, BIAS_STATE = 3 };
enum { ALGO_STANDARD = 0, ALGO_SMALL_H = 3 };
enum { LAYOUT_SEQ = 0, LAYOUT_BATCH = 2 };
enum { PADDED_IO = 1, INPUT_SKIP = 1, BIDIRECTIONAL = 1, CLIP_MINMAX = 1 };

#endif

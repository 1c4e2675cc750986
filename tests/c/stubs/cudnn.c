/* The part of libcudnn that a search calls; VERSION and PARTS_STATUS select the version.
 * Like the real one it aborts unless its parts are open. The environment variable STUB_NEWEST_GPU
 * changes an answer (1200). */
#define _GNU_SOURCE /* RTLD_NOLOAD */
#include <dlfcn.h>
#include <stdlib.h>

#include "forward/cudnn/abi.h"

#define FIRST_PART "libcudnn_graph.so.9"
#define LAST_PART "libcudnn_adv.so.9"

size_t cudnnGetVersion(void);
size_t cudnnGetCudartVersion(void);
size_t cudnnGetMaxDeviceVersion(void);
const char *cudnnGetErrorString(rnl_cudnn_status status);
rnl_cudnn_status cudnnAdvVersionCheck(void);

size_t cudnnGetVersion(void)
{
    if (!dlopen(FIRST_PART, RTLD_NOLOAD | RTLD_NOW) || !dlopen(LAST_PART, RTLD_NOLOAD | RTLD_NOW))
        abort();
    return VERSION;
}

size_t cudnnGetCudartVersion(void)
{
    return 13010;
}

size_t cudnnGetMaxDeviceVersion(void)
{
    const char *newest = getenv("STUB_NEWEST_GPU");
    return newest ? (size_t)atoi(newest) : 1200;
}

const char *cudnnGetErrorString(rnl_cudnn_status status)
{
    return status == RNL_CUDNN_STATUS_SUCCESS ? "SUCCESS" : "STUB_STATUS";
}

rnl_cudnn_status cudnnAdvVersionCheck(void)
{
    return (rnl_cudnn_status)PARTS_STATUS;
}

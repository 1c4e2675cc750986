/* Find and open the cuBLAS that cuDNN needs. */
#include <stdio.h>

#include "core/status.h"
#include "forward/cudnn/load.h"

/* Use the process's, else the one beside cuDNN as in wheels and toolkits, else the loader's. */
static rnl_status load_one(const char *folder, const char *name, int cuda_major,
                           char path[RNL_PATH_NBYTES], rnl_error *err)
{
    char wheels[32]; /* for CUDA 13 and later; earlier wheels have a folder for each library */
    const char *const places[] = {wheels, "../../cublas/lib", "."};
    rnl_error why;
    snprintf(wheels, sizeof wheels, "../../cu%d/lib", cuda_major);
    void *library = rnl_library_loaded(name);
    for (size_t k = 0; !library && k < sizeof places / sizeof places[0]; k++)
        if (snprintf(path, RNL_PATH_NBYTES, "%s/%s/%s", folder, places[k], name) <
                RNL_PATH_NBYTES &&
            rnl_library_check(path, &why) == RNL_OK)
            library = rnl_library_open(path, &why);
    if (!library)
        library = rnl_library_open(name, &why);
    if (!library)
        return rnl_fail(
            err, RNL_E_NO_CUDNN,
            "it needs %s, which was not found beside it, in %s or %s of its folder, or by the loader "
            "(%.300s): install cuBLAS for CUDA %d",
            name, places[0], places[1], why.text, cuda_major);
    if (!rnl_library_path(library, path))
        snprintf(path, RNL_PATH_NBYTES, "%s", name);
    return RNL_OK;
}

rnl_status rnl_cublas_load(const char *folder, int cudnn_major, int cuda_major,
                           char path[RNL_PATH_NBYTES], rnl_error *err)
{
    char name[64], cublas[RNL_PATH_NBYTES];
    snprintf(name, sizeof name, "libcublasLt.so.%d", cuda_major);
    const rnl_status status = load_one(folder, name, cuda_major, path, err);
    if (status != RNL_OK || cudnn_major > 8)
        return status;
    snprintf(name, sizeof name, "libcublas.so.%d", cuda_major); /* it opens libcublasLt itself */
    return load_one(folder, name, cuda_major, cublas, err);
}

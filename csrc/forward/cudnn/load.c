/* Open the cuDNN of a folder, and check whether it can be used. */
#define _GNU_SOURCE /* stat's names; NOLINT(bugprone-reserved-identifier,cert-*) */
#include "forward/cudnn/load.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/status.h"

/* The libraries that an RNN needs, each after those that it needs; the main library, last, looks
 * for the others by name at its first call. */
enum { MOST_PARTS = 4 };
static const char *const PARTS_8[MOST_PARTS + 1] = {"libcudnn_ops_infer.so.8",
                                                    "libcudnn_adv_infer.so.8", "libcudnn.so.8"};
static const char *const PARTS_9[MOST_PARTS + 1] = {"libcudnn_graph.so.9", "libcudnn_ops.so.9",
                                                    "libcudnn_adv.so.9", "libcudnn.so.9"};

static const char *const *parts_of(int major)
{
    return major == 8 ? PARTS_8 : PARTS_9;
}

const char *rnl_cudnn_name(int major)
{
    return major == 8 ? "libcudnn.so.8" : "libcudnn.so.9";
}

void rnl_cudnn_version_parts(int version, int parts[3])
{
    const int major = version >= 90000 ? 10000 : 1000; /* 9.0.0 is 90000, 8.9.6 is 8906 */
    parts[0] = version / major;
    parts[1] = version % major / 100;
    parts[2] = version % 100;
}

/* ------------------------------------------------------------------------------- its files -- */

static bool same_file(const char *a, const char *b)
{
    struct stat about_a, about_b;
    return stat(a, &about_a) == 0 && stat(b, &about_b) == 0 && about_a.st_dev == about_b.st_dev &&
           about_a.st_ino == about_b.st_ino;
}

/* Check that the part is complete, or already loaded from the same file. */
static rnl_status check_part(const char *folder, const char *part, bool loaded, rnl_error *err)
{
    char path[RNL_PATH_NBYTES], other[RNL_PATH_NBYTES];
    rnl_error why;
    snprintf(path, sizeof path, "%s/%s", folder, part);
    void *there = rnl_library_loaded(part);
    if (there) {
        if (loaded || (rnl_library_path(there, other) && same_file(path, other)))
            return RNL_OK;
        return rnl_fail(err, RNL_E_NO_CUDNN,
                        "the process has already loaded %s of another cuDNN, from %.500s: the two "
                        "cannot be mixed",
                        part, rnl_library_path(there, other) ? other : "an unknown path");
    }
    if (rnl_library_check(path, &why) != RNL_OK)
        return rnl_fail(err, RNL_E_NO_CUDNN, "%s: %.500s", part, why.text);
    return RNL_OK;
}

static rnl_status check_parts(const char *folder, int major, bool loaded, rnl_error *err)
{
    char missing[200] = "", path[RNL_PATH_NBYTES];
    const char *const *part = parts_of(major);
    for (; *part; part++) {
        if (rnl_library_is_in(folder, *part, path) || (loaded && rnl_library_loaded(*part)))
            continue;
        const size_t end = strlen(missing);
        snprintf(missing + end, sizeof missing - end, "%s%s", end ? ", " : "", *part);
    }
    if (missing[0])
        return rnl_fail(err, RNL_E_NO_CUDNN,
                        "found %s without %s, which belong beside it: alone it would abort the "
                        "process, install cuDNN completely",
                        rnl_cudnn_name(major), missing);
    for (part = parts_of(major); *part; part++) {
        const rnl_status status = check_part(folder, *part, loaded, err);
        if (status != RNL_OK)
            return status;
    }
    return RNL_OK;
}

/* Open all parts and return the main library; NULL: the reason is in err. */
static void *open_parts(const char *folder, int major, rnl_error *err)
{
    void *library = NULL;
    for (const char *const *part = parts_of(major); *part; part++) {
        char path[RNL_PATH_NBYTES];
        rnl_error why;
        library = rnl_library_loaded(*part);
        if (library)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, *part);
        library = rnl_library_open(path, &why);
        if (!library) {
            rnl_fail(err, RNL_E_NO_CUDNN, "%s does not open: %.900s", *part, why.text);
            return NULL;
        }
    }
    return library;
}

/* --------------------------------------------------------------------------- its functions -- */

static const rnl_library_symbol SYMBOLS[] = {
#define CUDNN(major, returns, name, arguments) {#name, offsetof(rnl_cudnn_table, name), major},
#include "forward/cudnn/symbols.def"
};
enum { NUM_SYMBOLS = sizeof SYMBOLS / sizeof SYMBOLS[0] };

static rnl_status check_version(rnl_cudnn_library *library, int major, rnl_error *err)
{
    const size_t version = library->call.cudnnGetVersion();
    int v[3];
    library->version = version > INT_MAX ? INT_MAX : (int)version;
    rnl_cudnn_version_parts(library->version, v);
    if (v[0] < 8 || (v[0] == 8 && v[1] < 9))
        return rnl_fail(err, RNL_E_NO_CUDNN, "cuDNN %d.%d.%d is too old: 8.9 or 9 is needed", v[0],
                        v[1], v[2]);
    if (v[0] != major)
        return rnl_fail(err, RNL_E_NO_CUDNN,
                        "it reports version %d.%d.%d, but is named as cuDNN %d", v[0], v[1], v[2],
                        major);
    return RNL_OK;
}

/* Check that all parts have the same version. */
static rnl_status check_parts_agree(const rnl_cudnn_table *call, rnl_error *err)
{
    const rnl_cudnn_status status = call->cudnnAdvVersionCheck ? call->cudnnAdvVersionCheck()
                                                               : call->cudnnAdvInferVersionCheck();
    if (status == RNL_CUDNN_STATUS_SUCCESS)
        return RNL_OK;
    return rnl_fail(err, RNL_E_NO_CUDNN, "its parts have different versions: %s returned %d (%s)",
                    call->cudnnAdvVersionCheck ? "cudnnAdvVersionCheck"
                                               : "cudnnAdvInferVersionCheck",
                    (int)status, call->cudnnGetErrorString(status));
}

static rnl_status check_driver(int cuda_version, const rnl_driver *driver, rnl_error *err)
{
    const int cuda = cuda_version / 1000, driven = driver->cuda_version;
    if (cuda <= driven / 1000)
        return RNL_OK;
    return rnl_fail(
        err, RNL_E_NO_CUDNN,
        "it is built for CUDA %d, but the driver supports CUDA %d.%d at most: install a "
        "newer driver, or a cuDNN for CUDA %d",
        cuda, driven / 1000, driven % 1000 / 10, driven / 1000);
}

rnl_status rnl_cudnn_load(const char *folder, int major, bool loaded, const rnl_driver *driver,
                          rnl_cudnn_library *library, rnl_error *err)
{
    memset(library, 0, sizeof *library);
    snprintf(library->path, sizeof library->path, "%s/%s", folder, rnl_cudnn_name(major));
    rnl_status status = check_parts(folder, major, loaded, err);
    if (status != RNL_OK)
        return status;
    void *opened = open_parts(folder, major, err);
    if (!opened)
        return RNL_E_NO_CUDNN;
    const char *const missing = rnl_library_look_up(opened, SYMBOLS, NUM_SYMBOLS, major,
                                                    &library->call);
    if (!library->call.cudnnGetVersion)
        return rnl_fail(err, RNL_E_NO_CUDNN, "it lacks cudnnGetVersion");
    if ((status = check_version(library, major, err)) != RNL_OK)
        return status;
    if (missing)
        return rnl_fail(err, RNL_E_NO_CUDNN, "it lacks %s", missing);
    if ((status = check_parts_agree(&library->call, err)) != RNL_OK)
        return status;
    library->cuda_version = (int)library->call.cudnnGetCudartVersion();
    if (!driver)
        return RNL_OK;
    if ((status = check_driver(library->cuda_version, driver, err)) != RNL_OK)
        return status;
    return rnl_cublas_load(folder, major, library->cuda_version / 1000, library->cublas, err);
}

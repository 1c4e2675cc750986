/* Open one cuDNN, and check whether it can be used. */
#define _GNU_SOURCE /* stat's names; NOLINT(bugprone-reserved-identifier,cert-*) */
#include "forward/cudnn/load.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/status.h"

/* The libraries that an RNN needs, each after those that it needs; the main library, last, looks
 * for the others by name at its first call. */
static const char MAIN[] = "libcudnn.so.9";
static const char *const PARTS[] = {"libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_adv.so.9",
                                    MAIN};
enum { NUM_PARTS = sizeof PARTS / sizeof PARTS[0], PATH_NBYTES = 4096 };

/* ------------------------------------------------------------------------------- its files -- */

static bool same_file(const char *a, const char *b)
{
    struct stat about_a, about_b;
    return stat(a, &about_a) == 0 && stat(b, &about_b) == 0 && about_a.st_dev == about_b.st_dev &&
           about_a.st_ino == about_b.st_ino;
}

static bool is_there(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0;
}

/* Check that the part is complete, or already loaded from the same file. */
static rnl_status check_part(const char *path, const char *part, bool loaded, rnl_error *err)
{
    rnl_error why;
    void *const there = rnl_library_loaded(part);
    if (there) {
        const char *const other = rnl_library_path(there);
        if (loaded || same_file(path, other))
            return RNL_OK;
        return rnl_fail(err, RNL_E_NO_CUDNN,
                        "the process has already loaded %s of another cuDNN, from %.500s: the two "
                        "cannot be mixed",
                        part, other);
    }
    if (rnl_library_check(path, &why) != RNL_OK)
        return rnl_fail(err, RNL_E_NO_CUDNN, "%s: %.500s", part, why.text);
    return RNL_OK;
}

static rnl_status check_parts(const char *folder, bool loaded, rnl_error *err)
{
    char missing[200] = "", path[2 * PATH_NBYTES];
    rnl_status status = RNL_OK;
    for (int k = 0; k < NUM_PARTS; k++) {
        snprintf(path, sizeof path, "%s/%s", folder, PARTS[k]);
        const size_t end = strlen(missing);
        if (!is_there(path) && !(loaded && rnl_library_loaded(PARTS[k])))
            snprintf(missing + end, sizeof missing - end, "%s%s", end ? ", " : "", PARTS[k]);
        else if (status == RNL_OK)
            status = check_part(path, PARTS[k], loaded, err);
    }
    if (!missing[0])
        return status;
    return rnl_fail(err, RNL_E_NO_CUDNN,
                    "found %s without %s, which belong beside it: alone it would abort the "
                    "process, install cuDNN completely",
                    MAIN, missing);
}

/* Open all parts and return the main library; NULL: the reason is in err. */
static void *open_parts(const char *folder, rnl_error *err)
{
    void *library = NULL;
    for (int k = 0; k < NUM_PARTS; k++) {
        char path[2 * PATH_NBYTES];
        rnl_error why;
        snprintf(path, sizeof path, "%s/%s", folder, PARTS[k]);
        library = rnl_library_loaded(PARTS[k]);
        if (!library && !(library = rnl_library_open(path, &why))) {
            rnl_fail(err, RNL_E_NO_CUDNN, "%s does not open: %.900s", PARTS[k], why.text);
            return NULL;
        }
    }
    return library;
}

/* Cut a path to its folder. RNL_E_NO_CUDNN: it does not name a cuDNN 9. */
static rnl_status cut_name(char *path, rnl_error *err)
{
    char *const slash = strrchr(path, '/'), *const name = slash ? slash + 1 : path;
    if (strncmp(name, "libcudnn.so.8", strlen("libcudnn.so.8")) == 0)
        return rnl_fail(err, RNL_E_NO_CUDNN, "cuDNN 8 is too old: 9 is needed");
    if (strcmp(name, MAIN) != 0 || !slash)
        return rnl_fail(err, RNL_E_NO_CUDNN, "not the path of a %s", MAIN);
    *slash = '\0';
    return RNL_OK;
}

/* Find the folder, by the process or by the loader if no path is given. */
static rnl_status find_folder(const char *path, char folder[PATH_NBYTES], bool *loaded,
                              rnl_error *err)
{
    void *const there = rnl_library_loaded(MAIN);
    *loaded = !path && there;
    if (path) {
        if (snprintf(folder, PATH_NBYTES, "%s", path) >= PATH_NBYTES)
            return rnl_fail(err, RNL_E_NO_CUDNN, "a path of more than %d bytes", PATH_NBYTES);
        return cut_name(folder, err);
    }
    void *const library = there ? there : rnl_library_open(MAIN, err);
    char *slash;
    if (!library)
        return RNL_E_NO_CUDNN;
    snprintf(folder, PATH_NBYTES, "%s", rnl_library_path(library));
    if ((slash = strrchr(folder, '/')))
        *slash = '\0'; /* the file may have a longer name */
    return RNL_OK;
}

/* ---------------------------------------------------------------------------------- cuBLAS -- */

/* Open cuBLASLt, which cuDNN opens by the loader when it first multiplies, so that a missing one is
 * an error here: the process's, else the one beside cuDNN as in wheels and toolkits, else the
 * loader's. */
static rnl_status load_cublas(const char *folder, int cuda_major, const char **opened,
                              rnl_error *err)
{
    char path[PATH_NBYTES], name[64];
    char wheels[32]; /* from CUDA 13 on; earlier wheels have a folder for each library */
    const char *const places[] = {wheels, "../../cublas/lib", "."};
    rnl_error why;
    snprintf(name, sizeof name, "libcublasLt.so.%d", cuda_major);
    snprintf(wheels, sizeof wheels, "../../cu%d/lib", cuda_major);
    void *library = rnl_library_loaded(name);
    for (size_t k = 0; !library && k < sizeof places / sizeof places[0]; k++)
        if (snprintf(path, PATH_NBYTES, "%s/%s/%s", folder, places[k], name) < PATH_NBYTES &&
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
    *opened = rnl_library_path(library);
    return RNL_OK;
}

/* --------------------------------------------------------------------------- its functions -- */

/* Check its version, its functions, and that all parts have the same version. */
static rnl_status check_versions(rnl_cudnn_library *library, const char *missing, rnl_error *err)
{
    const int version = library->version = (int)library->call.cudnnGetVersion();
    const int unit = version >= 90000 ? 10000 : 1000; /* 9.0.0 is 90000, 8.9.6 is 8906 */
    if (version / unit != 9)
        return rnl_fail(err, RNL_E_NO_CUDNN, "it reports version %d.%d.%d: 9 is needed",
                        version / unit, version % unit / 100, version % 100);
    if (missing)
        return rnl_fail(err, RNL_E_NO_CUDNN, "it lacks %s", missing);
    const rnl_cudnn_status status = library->call.cudnnAdvVersionCheck();
    if (status == RNL_CUDNN_STATUS_SUCCESS)
        return RNL_OK;
    return rnl_fail(err, RNL_E_NO_CUDNN,
                    "its parts have different versions: cudnnAdvVersionCheck returned %d (%s)",
                    (int)status, library->call.cudnnGetErrorString(status));
}

static rnl_status check_driver(int cuda_version, int driven, rnl_error *err)
{
    const int cuda = cuda_version / 1000;
    if (cuda <= driven / 1000)
        return RNL_OK;
    return rnl_fail(
        err, RNL_E_NO_CUDNN,
        "it is built for CUDA %d, but the driver supports CUDA %d.%d at most: install a "
        "newer driver, or a cuDNN for CUDA %d",
        cuda, driven / 1000, driven % 1000 / 10, driven / 1000);
}

static rnl_status check_functions(void *opened, rnl_cudnn_library *library, rnl_error *err)
{
    const char *missing = NULL;
#define CUDNN(returns, name, arguments)                                                            \
    rnl_library_find(opened, #name, &library->call.name, &missing);
#include "forward/cudnn/symbols.def"
    if (!library->call.cudnnGetVersion)
        return rnl_fail(err, RNL_E_NO_CUDNN, "it lacks cudnnGetVersion");
    return check_versions(library, missing, err);
}

rnl_status rnl_cudnn_load(const char *path, int driver_cuda, rnl_cudnn_library *library,
                          rnl_error *err)
{
    char folder[PATH_NBYTES];
    bool loaded;
    memset(library, 0, sizeof *library);
    rnl_status status = find_folder(path, folder, &loaded, err);
    if (status == RNL_OK)
        status = check_parts(folder, loaded, err);
    if (status != RNL_OK)
        return status;
    void *const opened = open_parts(folder, err);
    if (!opened)
        return RNL_E_NO_CUDNN;
    library->path = rnl_library_path(opened);
    status = check_functions(opened, library, err);
    if (status != RNL_OK)
        return status;
    library->cuda_version = (int)library->call.cudnnGetCudartVersion();
    if (driver_cuda)
        status = check_driver(library->cuda_version, driver_cuda, err);
    if (driver_cuda && status == RNL_OK)
        status = load_cublas(folder, library->cuda_version / 1000, &library->cublas, err);
    return status;
}

/* Open a cuDNN, and check whether this cuDNN can be used. */
#define _GNU_SOURCE /* RTLD_NOLOAD, dlinfo; NOLINT(bugprone-reserved-identifier,cert-*) */

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/status.h"
#include "forward/cudnn/device.h"

/* The libraries that an RNN needs, each after the libraries on which it depends. The main library,
 * the last, looks for the parts by name at the first call. */
static const char MAIN[] = "libcudnn.so.9";
static const char *const PARTS[] = {"libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_adv.so.9",
                                    MAIN};
enum { NUM_PARTS = sizeof PARTS / sizeof PARTS[0], PATH_NBYTES = 4096 };

#if defined(__x86_64__)
enum { THIS_MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { THIS_MACHINE = EM_AARCH64 };
#else
enum { THIS_MACHINE = EM_NONE }; /* the vendor has no libraries for this machine */
#endif

/* ---- the system's loader ---- */

void *rnl_library_open(const char *path, rnl_error *err)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        rnl_fail(err, RNL_E_NO_CUDNN, "%s", why ? why : "the loader gives no reason");
    }
    return library;
}

/* Return the library of this name that the process has already loaded; NULL: not loaded. */
static void *find_loaded(const char *name)
{
    return dlopen(name, RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL);
}

const char *rnl_library_path(void *library)
{
    struct link_map *map = NULL;
    return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "";
}

void rnl_library_find(void *library, const char *name, void *pointer, const char **missing)
{
    void *const address = dlsym(library, name);
    memcpy(pointer, &address, sizeof address); /* C lacks the cast */
    if (!address && !*missing)
        *missing = name;
}

/* ---- cuDNN's files ---- */

/* Fail with RNL_E_NO_CUDNN unless the file is a library for this machine. */
static rnl_status check_file(const char *path, rnl_error *err)
{
    Elf64_Ehdr head;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe would wait */
    if (file < 0)
        return rnl_fail(err, RNL_E_NO_CUDNN, "%s", strerror(errno));
    const bool is_read = pread(file, &head, sizeof head, 0) == (ssize_t)sizeof head;
    close(file);
    if (!is_read || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != ELFCLASS64)
        return rnl_fail(err, RNL_E_NO_CUDNN, "not a 64-bit library");
    if (head.e_machine != THIS_MACHINE)
        return rnl_fail(err, RNL_E_NO_CUDNN, "built for another CPU architecture");
    return RNL_OK;
}

static bool same_file(const char *a, const char *b)
{
    struct stat about_a, about_b;
    return stat(a, &about_a) == 0 && stat(b, &about_b) == 0 && about_a.st_dev == about_b.st_dev &&
           about_a.st_ino == about_b.st_ino;
}

/* Check that the part is a library, or already loaded from the same file. */
static rnl_status check_part(const char *path, const char *part, bool loaded, rnl_error *err)
{
    rnl_error why;
    void *const library = find_loaded(part);
    if (library && (loaded || same_file(path, rnl_library_path(library))))
        return RNL_OK;
    if (library)
        return rnl_fail(err, RNL_E_NO_CUDNN,
                        "the process has already loaded %s of another cuDNN, from %.500s: the two "
                        "cannot be mixed",
                        part, rnl_library_path(library));
    if (check_file(path, &why) != RNL_OK)
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
        if (access(path, F_OK) != 0 && !(loaded && find_loaded(PARTS[k])))
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

/* Open all parts; *opened is the main library. */
static rnl_status open_parts(const char *folder, void **opened, rnl_error *err)
{
    for (int k = 0; k < NUM_PARTS; k++) {
        char path[2 * PATH_NBYTES];
        rnl_error why;
        snprintf(path, sizeof path, "%s/%s", folder, PARTS[k]);
        if (!(*opened = find_loaded(PARTS[k])) && !(*opened = rnl_library_open(path, &why)))
            return rnl_fail(err, RNL_E_NO_CUDNN, "%s does not open: %.900s", PARTS[k], why.text);
    }
    return RNL_OK;
}

/* Find the folder of cuDNN: from the path, or else from the process or the loader. */
static rnl_status find_folder(const char *path, char folder[PATH_NBYTES], bool *loaded,
                              rnl_error *err)
{
    void *library = path ? NULL : find_loaded(MAIN);
    *loaded = library != NULL;
    if (!path && !library && !(library = rnl_library_open(MAIN, err)))
        return RNL_E_NO_CUDNN;
    if (snprintf(folder, PATH_NBYTES, "%s", path ? path : rnl_library_path(library)) >= PATH_NBYTES)
        return rnl_fail(err, RNL_E_NO_CUDNN, "a path of more than %d bytes", PATH_NBYTES);
    char *const slash = strrchr(folder, '/'), *const name = slash ? slash + 1 : folder;
    if (path && strncmp(name, "libcudnn.so.8", strlen("libcudnn.so.8")) == 0)
        return rnl_fail(err, RNL_E_NO_CUDNN, "cuDNN 8 is too old: 9 is needed");
    if (path && (strcmp(name, MAIN) != 0 || !slash)) /* the loader's file may have a longer name */
        return rnl_fail(err, RNL_E_NO_CUDNN, "not the path of a %s", MAIN);
    if (slash)
        *slash = '\0';
    return RNL_OK;
}

/* ---- cuBLAS ---- */

/* Open cuBLASLt: the cuBLASLt that the process has loaded, else from a folder near cuDNN as in
 * wheels and toolkits, else from the loader. cuDNN itself opens cuBLASLt only at the first product;
 * opening it here makes a missing cuBLASLt an error of rnl_cudnn_open(). */
static rnl_status load_cublas(const char *folder, int cuda_major, const char **opened,
                              rnl_error *err)
{
    char path[PATH_NBYTES], name[64];
    char wheels[32]; /* from CUDA 13 on; earlier wheels have a folder per library */
    const char *const places[] = {wheels, "../../cublas/lib", "."};
    rnl_error why;
    snprintf(name, sizeof name, "libcublasLt.so.%d", cuda_major);
    snprintf(wheels, sizeof wheels, "../../cu%d/lib", cuda_major);
    void *library = find_loaded(name);
    for (size_t k = 0; !library && k < sizeof places / sizeof places[0]; k++)
        if (snprintf(path, PATH_NBYTES, "%s/%s/%s", folder, places[k], name) < PATH_NBYTES &&
            check_file(path, &why) == RNL_OK)
            library = rnl_library_open(path, &why);
    if (!library && !(library = rnl_library_open(name, &why)))
        return rnl_fail(
            err, RNL_E_NO_CUDNN,
            "it needs %s, which was not found beside it, in %s or %s of its folder, or by the loader "
            "(%.300s): install cuBLAS for CUDA %d",
            name, places[0], places[1], why.text, cuda_major);
    *opened = rnl_library_path(library);
    return RNL_OK;
}

/* ---- cuDNN's functions ---- */

/* Look up all functions, check the version of cuDNN, and check that all parts have this version. */
static rnl_status check_functions(void *opened, rnl_cudnn_table *call, int *version, rnl_error *err)
{
    const char *missing = NULL;
#define CUDNN(returns, name, arguments) rnl_library_find(opened, #name, &call->name, &missing);
#include "forward/cudnn/symbols.def"
    if (!call->cudnnGetVersion)
        return rnl_fail(err, RNL_E_NO_CUDNN, "it lacks cudnnGetVersion");
    *version = (int)call->cudnnGetVersion();
    const int unit = *version >= 90000 ? 10000 : 1000; /* 9.0.0 is 90000, 8.9.6 is 8906 */
    if (*version / unit != 9)
        return rnl_fail(err, RNL_E_NO_CUDNN, "it reports version %d.%d.%d: 9 is needed",
                        *version / unit, *version % unit / 100, *version % 100);
    if (missing)
        return rnl_fail(err, RNL_E_NO_CUDNN, "it lacks %s", missing);
    const rnl_cudnn_status status = call->cudnnAdvVersionCheck();
    if (status == RNL_CUDNN_STATUS_SUCCESS)
        return RNL_OK;
    return rnl_fail(err, RNL_E_NO_CUDNN,
                    "its parts have different versions: cudnnAdvVersionCheck returned %d (%s)",
                    (int)status, call->cudnnGetErrorString(status));
}

rnl_status rnl_cudnn_load(const char *path, rnl_cudnn_table *call, rnl_cudnn_about *about,
                          rnl_error *err)
{
    char folder[PATH_NBYTES];
    bool loaded;
    void *opened;
    rnl_status status;
    if ((status = find_folder(path, folder, &loaded, err)) ||
        (status = check_parts(folder, loaded, err)) ||
        (status = open_parts(folder, &opened, err)) ||
        (status = check_functions(opened, call, &about->version, err)))
        return status;
    about->path = rnl_library_path(opened);
    about->cuda_version = (int)call->cudnnGetCudartVersion();
    const int cuda = about->cuda_version / 1000, driven = about->driver_cuda_version / 1000;
    if (about->no_driver)
        return RNL_OK;
    if (cuda > driven)
        return rnl_fail(
            err, RNL_E_NO_CUDNN,
            "it is built for CUDA %d, but the driver supports CUDA %d.%d at most: install a "
            "newer driver, or a cuDNN for CUDA %d",
            cuda, driven, about->driver_cuda_version % 1000 / 10, driven);
    return load_cublas(folder, cuda, &about->cublas, err);
}

/* The system's loader, and whether a file can be loaded. */
#define _GNU_SOURCE /* RTLD_NOLOAD, dlinfo; NOLINT(bugprone-reserved-identifier,cert-*) */
#include "forward/cudnn/load.h"

#include "core/status.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { THIS_MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { THIS_MACHINE = EM_AARCH64 };
#else
enum { THIS_MACHINE = EM_NONE }; /* the vendor has no libraries for this machine */
#endif

void *rnl_library_open(const char *path, rnl_error *err)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        rnl_fail(err, RNL_E_NO_CUDNN, "%s", why ? why : "the loader gives no reason");
    }
    return library;
}

void *rnl_library_loaded(const char *name)
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
    void *const found = dlsym(library, name);
    memcpy(pointer, &found, sizeof found); /* C lacks the cast */
    if (!found && !*missing)
        *missing = name;
}

static rnl_status check_file(int file, rnl_error *err)
{
    struct stat about;
    Elf64_Ehdr head;
    if (fstat(file, &about) != 0 || pread(file, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64)
        return rnl_fail(err, RNL_E_NO_CUDNN, "not a 64-bit library");
    if (head.e_machine != THIS_MACHINE)
        return rnl_fail(err, RNL_E_NO_CUDNN, "built for another CPU architecture");
    /* the linker puts the section headers last */
    if (head.e_shoff + (Elf64_Off)head.e_shnum * head.e_shentsize > (Elf64_Off)about.st_size)
        return rnl_fail(err, RNL_E_NO_CUDNN,
                        "truncated at %lld bytes: copied while it was written, or to a full disk",
                        (long long)about.st_size);
    return RNL_OK;
}

rnl_status rnl_library_check(const char *path, rnl_error *err)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe would wait */
    if (file < 0)
        return rnl_fail(err, RNL_E_NO_CUDNN, "%s", strerror(errno));
    const rnl_status status = check_file(file, err);
    close(file);
    return status;
}

/* The places where cuDNN is looked for, in their order. */
#define _GNU_SOURCE /* realpath; NOLINT(bugprone-reserved-identifier,cert-*) */
#include "forward/cudnn/find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/status.h"

static const int MAJORS[] = {9, 8};
enum { NUM_MAJORS = sizeof MAJORS / sizeof MAJORS[0] };

typedef struct finder {
    const rnl_driver *driver;
    rnl_cudnn_library *library;
    rnl_findings *findings;
    bool found;
    bool on_loader_path[10]; /* by major version: LD_LIBRARY_PATH has one that cannot be used */
} finder;

/* ------------------------------------------------------------------------------ one folder -- */

static bool is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* Open the folder's cuDNN of a major version, and report the place. */
static void open_in(finder *f, const char *origin, const char *folder, int major, bool loaded)
{
    char path[RNL_PATH_NBYTES + 16];
    rnl_error why;
    snprintf(path, sizeof path, "%s/%s", folder, rnl_cudnn_name(major));
    if (rnl_findings_has(f->findings, path))
        return;
    f->found = rnl_cudnn_load(folder, major, loaded, f->driver, f->library, &why) == RNL_OK;
    rnl_findings_add_place(f->findings, origin, path, f->found ? NULL : why.text);
}

/* Open the folder's cuDNN. True: it has one, whether it can be used or not. */
static bool look_in(finder *f, const char *origin, const char *folder)
{
    static const char *const others[] = {"libcudnn.so.10", "libcudnn.so.7", "libcudnn.so.6"};
    char path[RNL_PATH_NBYTES], why[100];
    bool any = false;
    for (int k = 0; k < NUM_MAJORS && !f->found; k++)
        if (rnl_library_is_in(folder, rnl_cudnn_name(MAJORS[k]), path)) {
            any = true;
            open_in(f, origin, folder, MAJORS[k], false);
        }
    for (size_t k = 0; k < sizeof others / sizeof others[0] && !any; k++)
        if (rnl_library_is_in(folder, others[k], path)) {
            any = true;
            snprintf(why, sizeof why, "cuDNN %s: 8.9 or 9 is needed",
                     others[k] + strlen("libcudnn.so."));
            rnl_findings_add_place(f->findings, origin, path, why);
        }
    return any;
}

/* Look in the folders of a root; if none has a cuDNN, report them together. */
static void look_under(finder *f, const char *origin, const char *root, const char *const *folders)
{
    char path[RNL_PATH_NBYTES], why[300] = "no libcudnn.so.9 or libcudnn.so.8";
    bool any = false;
    if (!is_folder(root)) {
        rnl_findings_add_place(f->findings, origin, root, "no such folder");
        return;
    }
    for (const char *const *folder = folders; *folder && !f->found; folder++)
        if (snprintf(path, sizeof path, "%s%s%s", root, **folder ? "/" : "", *folder) <
            (int)sizeof path)
            any |= look_in(f, origin, path);
    if (any || rnl_findings_has(f->findings, root))
        return;
    for (const char *const *folder = folders; *folder; folder++) {
        const size_t end = strlen(why);
        snprintf(why + end, sizeof why - end, "%s%s", folder == folders ? " in " : ", ",
                 **folder ? *folder : "itself");
    }
    rnl_findings_add_place(f->findings, origin, root, why);
}

/* ----------------------------------------------------------------------------- the places -- */

static const char *const AS_WHEELS[] = {"nvidia/cudnn/lib", "nvidia/cudnn_jit/lib", "torch/lib",
                                        NULL};
static const char *const AS_ENVIRONMENT[] = {"lib", NULL};
static const char *const AS_TOOLKIT[] = {
    "lib64", "lib", "", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", NULL};

/* Cut a path to its folder; false: it has none. */
static bool cut_name(char *path)
{
    char *const slash = strrchr(path, '/');
    if (!slash)
        return false;
    *slash = '\0';
    return true;
}

/* Look only at the file or folder that the user named. */
static void look_at_chosen(finder *f, const char *chosen, const char *origin)
{
    char path[RNL_PATH_NBYTES]; /* realpath() fills PATH_MAX bytes at most, that is 4096 */
    const char *const name = strrchr(chosen, '/') ? strrchr(chosen, '/') + 1 : chosen;
    if (!realpath(chosen, path)) {
        rnl_findings_add_place(f->findings, origin, chosen, "no such file or folder");
        return;
    }
    if (is_folder(path)) {
        look_under(f, origin, path, AS_TOOLKIT);
        return;
    }
    for (int k = 0; k < NUM_MAJORS; k++)
        if (strcmp(name, rnl_cudnn_name(MAJORS[k])) == 0 && cut_name(path)) {
            open_in(f, origin, path, MAJORS[k], false);
            return;
        }
    rnl_findings_add_place(f->findings, origin, chosen,
                           "not called libcudnn.so.9 or libcudnn.so.8");
}

/* Share a cuDNN that a framework has already loaded into the process. */
static void look_at_loaded(finder *f)
{
    static const char origin[] = "already loaded";
    char path[RNL_PATH_NBYTES];
    bool any = false;
    for (int k = 0; k < NUM_MAJORS && !f->found; k++) {
        const char *const name = rnl_cudnn_name(MAJORS[k]);
        void *const library = rnl_library_loaded(name);
        if (!library)
            continue;
        any = true;
        if (rnl_library_path(library, path) && cut_name(path))
            open_in(f, origin, path, MAJORS[k], true);
        else
            rnl_findings_add_place(f->findings, origin, name,
                                   "the loader does not report its path");
    }
    if (!any)
        rnl_findings_add_place(f->findings, origin, "libcudnn.so.9, libcudnn.so.8",
                               "not loaded in this process");
}

static void look_under_all(finder *f, const char *origin, const char *const *roots,
                           const char *const *folders)
{
    for (; roots && *roots && !f->found; roots++)
        look_under(f, origin, *roots, folders);
}

/* Look under the root that an environment variable names, if it is set. */
static void look_under_variable(finder *f, const char *name, const char *const *folders)
{
    const char *const root = getenv(name);
    if (root && root[0] && !f->found)
        look_under(f, name, root, folders);
}

static void look_on_loader_path(finder *f)
{
    static const char name[] = "LD_LIBRARY_PATH";
    char path[RNL_PATH_NBYTES];
    for (const char *at = getenv(name), *end; at && *at && !f->found; at = end ? end + 1 : NULL) {
        end = strpbrk(at, ":;");
        const size_t n = end ? (size_t)(end - at) : strlen(at);
        if (n > 0 && n < sizeof path) {
            memcpy(path, at, n);
            path[n] = '\0';
            char file[RNL_PATH_NBYTES];
            for (int k = 0; k < NUM_MAJORS; k++)
                f->on_loader_path[MAJORS[k]] |= rnl_library_is_in(path, rnl_cudnn_name(MAJORS[k]),
                                                                  file);
            if (!look_in(f, name, path) && !rnl_findings_has(f->findings, path))
                rnl_findings_add_place(f->findings, name, path,
                                       "no libcudnn.so.9 or libcudnn.so.8");
        }
    }
}

/* Open cuDNN by its name. Not if LD_LIBRARY_PATH has one that cannot be used: the loader would load
 * it, and frameworks imported later would then get it too. */
static void ask_loader(finder *f)
{
    static const char origin[] = "loader";
    for (int k = 0; k < NUM_MAJORS && !f->found; k++) {
        const char *const name = rnl_cudnn_name(MAJORS[k]);
        char path[RNL_PATH_NBYTES];
        rnl_error why;
        if (f->on_loader_path[MAJORS[k]] || rnl_library_loaded(name)) {
            rnl_findings_add_place(f->findings, origin, name,
                                   "not asked: it would load one of the above");
            continue;
        }
        void *const library = rnl_library_open(name, &why);
        const size_t n = strlen(name); /* cut from the loader's text: the report has it too */
        if (!library)
            rnl_findings_add_place(f->findings, origin, name,
                                   why.text + (strncmp(why.text, name, n) == 0 ? n + 2 : 0));
        else if (rnl_library_path(library, path) && cut_name(path))
            open_in(f, origin, path, MAJORS[k], false);
        else
            rnl_findings_add_place(f->findings, origin, name,
                                   "the loader does not report its path");
    }
}

bool rnl_cudnn_look(const rnl_cudnn_search *search, const char *chosen, const char *origin,
                    const rnl_driver *driver, rnl_cudnn_library *library, rnl_findings *findings)
{
    static const char *const toolkits[] = {"CUDNN_PATH", "CUDNN_HOME", "CUDA_PATH", "CUDA_HOME"};
    static const char *const usual[] = {"/usr/local/cuda", "/opt/cuda", NULL};
    finder f = {.driver = driver, .library = library, .findings = findings};
    if (chosen) {
        look_at_chosen(&f, chosen, origin);
        return f.found;
    }
    look_at_loaded(&f);
    look_under_all(&f, "packages", search->packages, AS_WHEELS);
    look_under_variable(&f, "CONDA_PREFIX", AS_ENVIRONMENT);
    look_under_all(&f, "environment", search->environments, AS_ENVIRONMENT);
    for (size_t k = 0; k < sizeof toolkits / sizeof toolkits[0]; k++)
        look_under_variable(&f, toolkits[k], AS_TOOLKIT);
    look_under_all(&f, "usual folders", usual, AS_TOOLKIT);
    if (!f.found)
        look_on_loader_path(&f);
    if (!f.found)
        ask_loader(&f);
    return f.found;
}

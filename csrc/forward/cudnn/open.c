/* The cuDNN and driver of the process: looked for once, when a GPU is first needed. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"
#include "forward/cudnn/find.h"
#include "forward/cudnn/open.h"

static const char VARIABLE[] = "RNNLAYOUT_CUDNN";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char *chosen;           /* by rnl_cudnn_choose() */
    rnl_findings *findings; /* NULL: not looked yet */
    bool found;
    rnl_cudnn_library library;
    bool driver_tried, has_driver;
    pid_t pid; /* the process that has initialized the driver */
    rnl_driver driver;
    rnl_error no_driver;
} process;

/* Only once: a driver that could not be initialized is not tried again. */
static void load_driver(void)
{
    if (process.driver_tried)
        return;
    process.has_driver = rnl_driver_load(&process.driver, &process.no_driver) == RNL_OK;
    process.driver_tried = true;
    process.pid = getpid();
}

static void report_gpus(rnl_findings *findings)
{
    rnl_cudnn_report *shown = rnl_findings_shown(findings);
    const int newest = process.found ? (int)process.library.call.cudnnGetMaxDeviceVersion() : 0;
    for (int k = 0; k < process.driver.num_devices; k++) {
        rnl_gpu gpu;
        rnl_error err;
        if (rnl_driver_describe(&process.driver, k, &gpu, &err) != RNL_OK)
            gpu.why_not = err.text;
        else if (process.found && gpu.capability * 10 > newest) {
            rnl_fail(
                &err, RNL_E_NO_CUDNN,
                "its compute capability is %d.%d, but this cuDNN supports %d.%d at most: install "
                "a newer cuDNN",
                gpu.capability / 10, gpu.capability % 10, newest / 100, newest % 100 / 10);
            gpu.why_not = err.text;
        }
        rnl_findings_add_gpu(findings, &gpu);
    }
    if (!shown->why_not && shown->num_gpus)
        shown->why_not = shown->gpus[0].why_not;
}

static void report_all(rnl_findings *findings)
{
    rnl_cudnn_report *shown = rnl_findings_shown(findings);
    if (process.found) {
        shown->path = rnl_findings_text(findings, process.library.path);
        shown->version = process.library.version;
        shown->cuda_version = process.library.cuda_version;
        if (process.library.cublas[0])
            shown->cublas = rnl_findings_text(findings, process.library.cublas);
    } else {
        shown->why_not = "no usable cuDNN was found";
    }
    if (process.driver.path[0])
        shown->driver = rnl_findings_text(findings, process.driver.path);
    shown->driver_cuda_version = process.driver.cuda_version;
    if (process.has_driver) {
        report_gpus(findings);
        return;
    }
    shown->no_driver = rnl_findings_text(findings, process.no_driver.text);
    if (!shown->why_not)
        shown->why_not = "no NVIDIA driver with a GPU was found";
}

static void search_all(const rnl_cudnn_search *search, rnl_findings *findings)
{
    const char *const named = getenv(VARIABLE);
    const char *const chosen = process.chosen ? process.chosen : named && *named ? named : NULL;
    const char *const origin = process.chosen ? "chosen" : VARIABLE;
    if (!rnl_library_supported()) {
        rnl_findings_shown(findings)->why_not = "cuDNN is only supported on Linux";
        return;
    }
    if (chosen && strcmp(chosen, "off") == 0) {
        rnl_findings_add_place(findings, origin, chosen, "switched off");
        rnl_findings_shown(findings)->why_not = "cuDNN is switched off";
        return;
    }
    load_driver();
    process.found = rnl_cudnn_look(search, chosen, origin,
                                   process.has_driver ? &process.driver : NULL, &process.library,
                                   findings);
    report_all(findings);
}

rnl_status rnl_cudnn_check_fork(pid_t initialized_by, rnl_error *err)
{
    if (initialized_by == getpid())
        return RNL_OK;
    return rnl_fail(
        err, RNL_E_NO_CUDNN,
        "the NVIDIA driver was initialized before this process was forked, and does not "
        "work in a forked process: start processes with spawn");
}

static rnl_status find(const rnl_cudnn_search *search, rnl_error *err)
{
    if (process.has_driver && rnl_cudnn_check_fork(process.pid, err) != RNL_OK)
        return RNL_E_NO_CUDNN;
    if (process.findings)
        return RNL_OK;
    rnl_findings *findings = rnl_findings_new();
    if (findings)
        search_all(search, findings);
    if (!findings || !rnl_findings_complete(findings)) {
        rnl_cudnn_report_free(findings ? rnl_findings_shown(findings) : NULL);
        return rnl_fail(err, RNL_E_NOMEM, "no memory for the search for cuDNN");
    }
    process.findings = findings;
    return RNL_OK;
}

rnl_status rnl_cudnn_find(const rnl_cudnn_search *search, const rnl_cudnn_report **report,
                          rnl_error *err)
{
    pthread_mutex_lock(&lock);
    const rnl_status status = find(search, err);
    if (status == RNL_OK) {
        rnl_findings_hold(process.findings);
        *report = rnl_findings_shown(process.findings);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static rnl_status in_use(int ordinal, rnl_cudnn_in_use *used, rnl_error *err)
{
    if (process.has_driver && rnl_cudnn_check_fork(process.pid, err) != RNL_OK)
        return RNL_E_NO_CUDNN;
    if (!process.findings)
        return rnl_fail(err, RNL_E_NO_CUDNN,
                        "cuDNN was not looked for yet: call rnl_cudnn_find() first");
    const rnl_cudnn_report *shown = rnl_findings_shown(process.findings);
    if (!process.found || !process.has_driver)
        return rnl_fail(err, RNL_E_NO_CUDNN, "%s", shown->why_not);
    if (ordinal < 0 || ordinal >= shown->num_gpus)
        return rnl_fail(err, RNL_E_NO_CUDNN, "no GPU %d: the driver reports %d GPUs", ordinal,
                        shown->num_gpus);
    if (shown->gpus[ordinal].why_not)
        return rnl_fail(err, RNL_E_NO_CUDNN, "GPU %d: %s", ordinal, shown->gpus[ordinal].why_not);
    *used = (rnl_cudnn_in_use){&process.library, &process.driver, shown->gpus[ordinal].capability,
                               process.pid};
    return RNL_OK;
}

rnl_status rnl_cudnn_use(int ordinal, rnl_cudnn_in_use *used, rnl_error *err)
{
    pthread_mutex_lock(&lock);
    const rnl_status status = in_use(ordinal, used, err);
    pthread_mutex_unlock(&lock);
    return status;
}

const rnl_driver *rnl_driver_in_use(void)
{
    return process.has_driver && process.pid == getpid() ? &process.driver : NULL;
}

static rnl_status choose(const char *path, rnl_error *err)
{
    char *copy = NULL;
    if (process.found)
        return rnl_fail(
            err, RNL_E_SPEC,
            "the process already uses %.700s and cannot change to another cuDNN: choose "
            "one before the first use of a GPU",
            process.library.path);
    if (path) {
        const size_t nbytes = strlen(path) + 1;
        copy = malloc(nbytes);
        if (!copy)
            return rnl_fail(err, RNL_E_NOMEM, "no memory for a path");
        memcpy(copy, path, nbytes);
    }
    free(process.chosen);
    process.chosen = copy;
    if (process.findings)
        rnl_cudnn_report_free(rnl_findings_shown(process.findings));
    process.findings = NULL;
    return RNL_OK;
}

rnl_status rnl_cudnn_choose(const char *path, rnl_error *err)
{
    pthread_mutex_lock(&lock);
    const rnl_status status = choose(path, err);
    pthread_mutex_unlock(&lock);
    return status;
}

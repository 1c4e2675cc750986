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
    rnl_findings *findings; /* of the last search */
    bool searched;          /* false: search, or search again */
    bool found;
    rnl_cudnn_library library;
    pid_t pid; /* the process that has loaded the driver; 0: not tried yet */
    bool has_driver;
    rnl_driver driver;
    rnl_error no_driver;
} process;

/* Only once: a driver that could not be initialized is not tried again. */
static void load_driver(void)
{
    if (process.pid)
        return;
    process.has_driver = rnl_driver_load(&process.driver, &process.no_driver) == RNL_OK;
    process.pid = getpid();
}

static void report_gpus(rnl_findings *findings)
{
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
}

/* Report what was found; the texts are those of the process. */
static void report_all(rnl_findings *findings)
{
    rnl_cudnn_report *const report = &findings->report;
    if (process.found) {
        report->path = process.library.path;
        report->version = process.library.version;
        report->cuda_version = process.library.cuda_version;
        report->cublas = process.library.cublas[0] ? process.library.cublas : NULL;
    }
    report->driver = process.driver.path[0] ? process.driver.path : NULL;
    report->driver_cuda_version = process.driver.cuda_version;
    if (process.has_driver)
        report_gpus(findings);
    else
        report->no_driver = process.no_driver.text;
    if (!process.found)
        report->why_not = "no usable cuDNN was found";
    else if (!process.has_driver)
        report->why_not = "no NVIDIA driver with a GPU was found";
    else if (report->num_gpus)
        report->why_not = report->gpus[0].why_not;
}

static void search_all(const rnl_cudnn_search *search, rnl_findings *findings)
{
    const char *const named = getenv(VARIABLE);
    const char *const chosen = process.chosen ? process.chosen : named && *named ? named : NULL;
    const char *const origin = process.chosen ? "chosen" : VARIABLE;
    if (chosen && strcmp(chosen, "off") == 0) {
        rnl_findings_add_place(findings, origin, chosen, "switched off");
        findings->report.why_not = "cuDNN is switched off";
        return;
    }
    load_driver();
    process.found = rnl_cudnn_look(search, chosen, origin,
                                   process.has_driver ? &process.driver : NULL, &process.library,
                                   findings);
    report_all(findings);
}

rnl_status rnl_cudnn_check_fork(rnl_error *err)
{
    if (!process.has_driver || process.pid == getpid())
        return RNL_OK;
    return rnl_fail(
        err, RNL_E_NO_CUDNN,
        "the NVIDIA driver was initialized before this process was forked, and does not "
        "work in a forked process: start processes with spawn");
}

static rnl_status find(const rnl_cudnn_search *search, rnl_error *err)
{
    const rnl_status status = rnl_cudnn_check_fork(err);
    if (status != RNL_OK || process.searched)
        return status;
    rnl_findings *const findings = calloc(1, sizeof *findings);
    if (findings)
        search_all(search, findings);
    if (!findings || findings->no_memory) {
        rnl_findings_free(findings);
        return rnl_fail(err, RNL_E_NOMEM, "no memory for the search for cuDNN");
    }
    findings->earlier = process.findings;
    process.findings = findings;
    process.searched = true;
    return RNL_OK;
}

rnl_status rnl_cudnn_find(const rnl_cudnn_search *search, const rnl_cudnn_report **report,
                          rnl_error *err)
{
    pthread_mutex_lock(&lock);
    const rnl_status status = find(search, err);
    if (status == RNL_OK)
        *report = &process.findings->report;
    pthread_mutex_unlock(&lock);
    return status;
}

static rnl_status in_use(int ordinal, rnl_cudnn_in_use *used, rnl_error *err)
{
    const rnl_status status = rnl_cudnn_check_fork(err);
    if (status != RNL_OK)
        return status;
    if (!process.searched)
        return rnl_fail(err, RNL_E_NO_CUDNN,
                        "cuDNN was not looked for yet: call rnl_cudnn_find() first");
    const rnl_cudnn_report *const report = &process.findings->report;
    if (!process.found || !process.has_driver)
        return rnl_fail(err, RNL_E_NO_CUDNN, "%s", report->why_not);
    if (ordinal < 0 || ordinal >= report->num_gpus)
        return rnl_fail(err, RNL_E_NO_CUDNN, "no GPU %d: the driver reports %d GPUs", ordinal,
                        report->num_gpus);
    const rnl_gpu *const gpu = &report->gpus[ordinal];
    if (gpu->why_not)
        return rnl_fail(err, RNL_E_NO_CUDNN, "GPU %d: %s", ordinal, gpu->why_not);
    *used = (rnl_cudnn_in_use){&process.library, &process.driver, gpu->capability};
    return RNL_OK;
}

rnl_status rnl_cudnn_use(int ordinal, rnl_cudnn_in_use *used, rnl_error *err)
{
    pthread_mutex_lock(&lock);
    const rnl_status status = in_use(ordinal, used, err);
    pthread_mutex_unlock(&lock);
    return status;
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
    process.searched = false;
    return RNL_OK;
}

rnl_status rnl_cudnn_choose(const char *path, rnl_error *err)
{
    pthread_mutex_lock(&lock);
    const rnl_status status = choose(path, err);
    pthread_mutex_unlock(&lock);
    return status;
}

/*
 * Version, status, the sub-libraries, and handles.
 *
 * FAKE_CUDNN: the version to imitate, 92800 by default.
 * FAKE_CUDNN_NO_PERSIST: the call that refuses persistent algorithms: descriptor, sizes, forward.
 * FAKE_CUDNN_LINGER: microseconds that a call with a handle takes, so that two threads meet in it.
 */
#include "cudnn_fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char last_error[200];

int fake_version(void)
{
    return fake_environment("FAKE_CUDNN", 92800);
}

/* By class. */
static const int STATUS[] = {
    [TAKEN] = 0,
    [WRONG] = 2000,
    [UNSUPPORTED] = 3000,
    [INTERNAL] = 4000,
    [STREAM_MISMATCH] = 2007,
    [NO_DEVICE] = 5003, /* its first CUDA call failed */
    [MISSING] = 3009,
};

cudnnStatus_t fake_refuse(enum fake_class found, const char *text)
{
    if (found != TAKEN)
        snprintf(last_error, sizeof last_error, "fake: %s", text);
    return (cudnnStatus_t)STATUS[found];
}

size_t cudnnGetVersion(void)
{
    fake_need_siblings(0, NULL);
    return (size_t)fake_version();
}

size_t cudnnGetCudartVersion(void)
{
    fake_need_siblings(0, NULL);
    return 13010;
}

size_t cudnnGetMaxDeviceVersion(void)
{
    fake_need_siblings(0, NULL);
    return 1210;
}

int fake_has_no_persist(int algo, const char *where)
{
    const char *refuses = getenv("FAKE_CUDNN_NO_PERSIST");
    return algo != ALGO_STANDARD && refuses && !strcmp(refuses, where);
}

static const struct {
    int status;
    const char *name;
} NAMES[] = {
    {0, "CUDNN_STATUS_SUCCESS"},
    {1001, "CUDNN_STATUS_NOT_INITIALIZED"},
    {2000, "CUDNN_STATUS_BAD_PARAM"},
    {2007, "CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH"},
    {3000, "CUDNN_STATUS_NOT_SUPPORTED"},
    {3009, "CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE"},
    {4000, "CUDNN_STATUS_INTERNAL_ERROR"},
    {4004, "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"},
    {5000, "CUDNN_STATUS_EXECUTION_FAILED"},
    {5003, "CUDNN_STATUS_EXECUTION_FAILED_CUDART"},
};

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    fake_need_siblings(0, NULL);
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (NAMES[i].status == (int)status)
            return NAMES[i].name;
    return "CUDNN_UNKNOWN_STATUS";
}

/* Reading clears the text; a success or a failure without a text does not. */
void cudnnGetLastErrorString(char *message, size_t max_size)
{
    LOCKED;
    if (!message || !max_size)
        return;
    snprintf(message, max_size, "%s", last_error);
    *last_error = 0;
}

cudnnStatus_t cudnnAdvVersionCheck(void)
{
    CUDNN_LOG("cudnnAdvVersionCheck", 1, "%s", "");
    return failed;
}

/* ---- sub-libraries: already open, or in the folder of this one ---- */

/* Not left to this library's search path, which an interposed dlopen does not use. */
static int have(const char *name)
{
    char path[4096];
    Dl_info own;
    if (dlopen(name, RTLD_LAZY | RTLD_NOLOAD))
        return 1;
    if (!dladdr(STATUS, &own))
        return 0;
    const char *slash = strrchr(own.dli_fname, '/');
    int length = slash ? (int)(slash - own.dli_fname) : 0;
    snprintf(path, sizeof path, "%.*s/%s", length, own.dli_fname, name);
    return dlopen(path, RTLD_LAZY | RTLD_LOCAL) != NULL;
}

/* Without graph the first call of any kind aborts; without another part, calls for RNNs fail. */
void fake_need_siblings(int is_rnn, cudnnStatus_t *status)
{
    if (!have("libcudnn_graph.so.9")) {
        fprintf(stderr, "fake: libcudnn_graph.so.9 cannot be opened\n");
        abort();
    }
    if (is_rnn && !*status && !(have("libcudnn_ops.so.9") && have("libcudnn_adv.so.9"))) {
        fprintf(stderr, "fake: libcudnn_ops.so.9 or libcudnn_adv.so.9 cannot be opened\n");
        *status = fake_refuse(MISSING, "a sub-library is missing");
    }
}

/* ---- handles ---- */

static int is_blank(cudnnHandle_t given)
{
    static const char zeros[sizeof(struct fake_object)];
    return !memcmp((const void *)given, zeros, sizeof zeros);
}

struct handle *fake_handle(cudnnHandle_t given, const char *call)
{
    if (is_blank(given))
        return NULL;
    struct handle *handle = fake_object(given, FAKE_HANDLE, call);
    if (fake_current_device() != handle->device)
        fake_die("%s: the handle belongs to device %d, whose context is not current", call,
                 handle->device);
    return handle;
}

/* Outside the lock: inside, a second thread would only wait. */
int *fake_enter_handle(cudnnHandle_t given, const char *call)
{
    if (!given || is_blank(given))
        return NULL;
    int *busy = &((struct handle *)given)->busy;
    if (__atomic_exchange_n(busy, 1, __ATOMIC_SEQ_CST))
        fake_die("%s: another thread is in a call with the handle %p", call, (void *)given);
    int linger = fake_environment("FAKE_CUDNN_LINGER", 0);
    if (linger)
        usleep((useconds_t)linger);
    return busy;
}

void fake_leave_handle(int **busy)
{
    if (*busy)
        __atomic_store_n(*busy, 0, __ATOMIC_SEQ_CST);
}

/* In a block of zeros the contract test sets it at its place in this version: the one of these
 * words that is not 0. */
int fake_handle_capability(cudnnHandle_t given)
{
    if (!is_blank(given))
        return fake_capability();
    const int32_t *words = (const int32_t *)(const void *)given;
    for (int i = 24; i < 28; i++)
        if (words[i])
            return words[i];
    return 0;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *made)
{
    CUDNN_CALL("cudnnCreate", 0, "%s", "");
    fake_refuse_in_capture("cudnnCreate");
    if (fake_current_device() < 0)
        fake_die("cudnnCreate: no context is current");
    if (fake_sticky())
        return fake_refuse(NO_DEVICE, "the device is dead");
    struct handle *handle = fake_new(FAKE_HANDLE, sizeof *handle);
    handle->device = fake_current_device();
    *made = (cudnnHandle_t)handle;
    return fake_refuse(TAKEN, "");
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t given)
{
    USES_HANDLE(given, "cudnnDestroy");
    CUDNN_LOG("cudnnDestroy", 0, "handle=%p", (void *)given);
    if (!given)
        return fake_refuse(WRONG, "the handle is NULL");
    fake_refuse_beside_capture("cudnnDestroy");
    struct handle *handle = fake_handle(given, "cudnnDestroy");
    fake_wait_for_all();
    fake_end(handle);
    return failed;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t given, cudaStream_t stream)
{
    USES_HANDLE(given, "cudnnSetStream");
    CUDNN_CALL("cudnnSetStream", 0, "handle=%p stream=%p", (void *)given, (void *)stream);
    if (!given)
        return fake_refuse(WRONG, "the handle is NULL");
    struct handle *handle = fake_handle(given, "cudnnSetStream");
    if (!handle)
        return fake_refuse(STREAM_MISMATCH, "no device");
    if (fake_stream_device(stream) != handle->device)
        return fake_refuse(STREAM_MISMATCH, "the stream belongs to another device than the handle");
    handle->stream = stream;
    return fake_refuse(TAKEN, "");
}

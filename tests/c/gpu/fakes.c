#include <dlfcn.h>
#include <string.h>

#include "gpu/fakes.h"
#include "rnnlayout.h"

struct fakes fake;

void find_fakes(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    const struct {
        const char *name;
        void *at;
    } names[] = {
        {"fake_alloc", &fake.alloc},
        {"fake_free", &fake.free_},
        {"fake_read", &fake.read},
        {"fake_write", &fake.write},
        {"fake_live", &fake.live},
        {"fake_calls", &fake.calls},
        {"fake_fail", &fake.fail},
        {"fake_log", &fake.log},
        {"cuCtxSynchronize", &fake.sync},
        {"cuCtxPushCurrent_v2", &fake.push},
        {"cuCtxPopCurrent_v2", &fake.pop},
        {"cuDevicePrimaryCtxRetain", &fake.retain},
        {"cuDevicePrimaryCtxRelease_v2", &fake.release},
        {"cuStreamCreate", &fake.stream},
        {"cuStreamDestroy_v2", &fake.end_stream},
        {"cuStreamBeginCapture_v2", &fake.begin},
        {"cuStreamEndCapture", &fake.end},
        {"cuThreadExchangeStreamCaptureMode", &fake.exchange},
        {"cuGraphInstantiateWithFlags", &fake.instantiate},
        {"cuGraphLaunch", &fake.launch},
        {"cuGraphExecDestroy", &fake.end_exec},
        {"cuGraphDestroy", &fake.end_graph},
        {"cuMemHostAlloc", &fake.pinned},
    };
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        void *found = dlsym(library, names[k].name);
        memcpy(names[k].at, &found, sizeof found);
        CHECK(found, "%s", names[k].name);
    }
}

/* Retained at the first use and never released. */
static void *context;

int pushed;

void current(void)
{
    pushed++;
    if (!context)
        fake.retain(&context, 0);
    fake.push(context);
}

void not_current(void)
{
    void *popped;
    fake.pop(&popped);
    pushed--;
}

void sync_all(void)
{
    current();
    CHECK(fake.sync() == 0, "sync");
    not_current();
}

int use_cudnn(void)
{
    const rnl_cudnn_report *report;
    rnl_error err;
    CHECK(rnl_cudnn_find(NULL, &report, &err) == RNL_OK, "%s", err.text);
    CHECK(!report->why_not, "%s", report->why_not);
    return report->version;
}

void check_nothing_left(const char *when)
{
    static const char *const kinds[] = {"pushed", "memory", "rnn", "rnn_data", "tensor"};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        CHECK(fake.live(kinds[k]) == 0, "%s: %ld %s", when, fake.live(kinds[k]), kinds[k]);
    CHECK(fake.live("context") <= 1 + (context != NULL), "%s: contexts", when);
    CHECK(fake.live("handle") <= 4 && fake.live("dropout") <= 4 && fake.live("stream") <= 4 &&
              fake.live("event") <= 4 && fake.live("module") <= 1,
          "%s: more than four lanes", when);
}

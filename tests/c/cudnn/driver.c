#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cudnn/driver.h"
#include "cudnn/folders.h"
#include "cudnn/search.h"

typedef struct driven {
    const char *driver;            /* the stub's folder */
    int kind;                      /* of cuDNN          */
    const char *variables[4];      /* NAME=value        */
    const char *cublas;            /* its folder, relative to cuDNN's; NULL: not installed */
    const char *why_not;           /* the report's; NULL: a GPU can be used                */
    const char *place, *no_driver; /* the report's on cuDNN's place, and on the driver     */
    const char *gpu;               /* the report's on the first GPU                        */
    const char *without;           /* a file that is removed                               */
    int num_gpus;
} driven;

static const driven with_drivers[] = {
    {"driver", GOOD9, {"STUB_GPUS=2"}, "../../cu13/lib", .num_gpus = 2},
    {"driver", GOOD9, {"STUB_GPUS=1"}, "../../cublas/lib", .num_gpus = 1},
    {"driver", GOOD9, {"STUB_GPUS=1"}, ".", .num_gpus = 1},
    {"driver", GOOD9, {"STUB_GPUS=1"}, STUBS "/loader", .num_gpus = 1},
    {"driver", GOOD8, {"STUB_CUDA=11080"}, "../../cublas/lib", .num_gpus = 1},
    {"driver",
     GOOD8,
     {"STUB_CUDA=11080"},
     ".",
     "no usable cuDNN was found",
     "it needs libcublas.so.11, ",
     .without = "libcublas.so.11",
     .num_gpus = 1},
    {"driver",
     GOOD9,
     {"STUB_GPUS=1"},
     NULL,
     "no usable cuDNN was found",
     "it needs libcublasLt.so.13, ",
     .num_gpus = 1},
    {"driver",
     GOOD9,
     {"STUB_DRIVER=12040"},
     ".",
     "no usable cuDNN was found",
     "built for CUDA 13, but the driver supports CUDA 12.4 at most",
     .num_gpus = 1},
    {"driver",
     GOOD9,
     {"STUB_NEWEST_GPU=890"},
     ".",
     "supports 8.9 at most",
     .gpu = "capability is 9.0, but this cuDNN supports 8.9 at most",
     .num_gpus = 1},
    {"driver",
     GOOD9,
     {"STUB_INIT=100", "CUDA_VISIBLE_DEVICES=7"},
     ".",
     "no NVIDIA driver",
     .no_driver = "cuInit: 100 (CUDA_ERROR_NO_DEVICE): no CUDA-capable device is detected; "
                  "CUDA_VISIBLE_DEVICES is \"7\""},
    {"driver",
     GOOD9,
     {"STUB_GPUS=0"},
     ".",
     "no NVIDIA driver",
     .no_driver = "cuDeviceGetCount: 100"},
    {"driver",
     GOOD9,
     {"STUB_FAILS=cuDriverGetVersion"},
     ".",
     "no NVIDIA driver",
     .no_driver = "cuDriverGetVersion: 1 (CUDA_ERROR_STUB): a stub"},
    {"driver",
     GOOD9,
     {"STUB_FAILS=cuDeviceGetCount"},
     ".",
     "no NVIDIA driver",
     .no_driver = "cuDeviceGetCount: 1 (CUDA_ERROR_STUB): a stub"},
    {"driver",
     GOOD9,
     {"STUB_FAILS=cuDeviceGet"},
     ".",
     "cuDeviceGet: 1",
     .gpu = "cuDeviceGet: 1",
     .num_gpus = 1},
    {"driver",
     GOOD9,
     {"STUB_FAILS=cuDeviceGetName"},
     ".",
     "cuDeviceGetName: 1",
     .gpu = "cuDeviceGetName: 1",
     .num_gpus = 1},
    {"driver",
     GOOD9,
     {"STUB_FAILS=cuDeviceGetAttribute"},
     ".",
     "cuDeviceGetAttribute: 1",
     .gpu = "cuDeviceGetAttribute: 1",
     .num_gpus = 1},
    {"driver",
     EMPTY,
     {"STUB_GPUS=1"},
     ".",
     "no usable cuDNN was found",
     "no libcudnn.so.9",
     .num_gpus = 1},
    {"old_driver",
     GOOD9,
     {"STUB_GPUS=1"},
     ".",
     "no NVIDIA driver",
     .no_driver = "lacks cuDevicePrimaryCtxRetain: the driver is too old"},
};

static void check_fork(const void *unused)
{
    (void)unused;
    const rnl_cudnn_report *report = NULL;
    const rnl_cudnn_search where = {NULL, NULL};
    rnl_error err;
    const rnl_status status = rnl_cudnn_find(&where, &report, &err);
    CHECK(status == RNL_E_NO_CUDNN && strstr(err.text, "spawn") && !report, "%d", (int)status);
}

static void check_driven(const void *argument)
{
    const driven *d = argument;
    char folder[MOST_NCHARS];
    snprintf(folder, sizeof folder, "%s", folder_of(SITE, d->kind));
    command("rm -f " STUBS "/loader/*");
    command(format("cp " STUBS "/%s/libcuda.so.1 " STUBS "/loader", d->driver));
    command(format("cd %s && rm -rf libcublas* ../../cublas ../../cu13", folder));
    if (d->cublas)
        command(format("cd %s && mkdir -p %s && cp " STUBS "/parts/libcublas* %s", folder,
                       d->cublas, d->cublas));
    if (d->without)
        command(format("rm %s/%s/%s", folder, d->cublas, d->without));
    for (int k = 0; k < 4 && d->variables[k]; k++)
        putenv((char *)d->variables[k]);
    setenv("RNNLAYOUT_CUDNN", folder, 1);
    const rnl_cudnn_report *report = search(NULL, NULL);
    const char *why = report->why_not ? report->why_not : "none";
    CHECK(d->why_not ? strstr(why, d->why_not) != NULL : !report->why_not, "%s", why);
    const rnl_cudnn_place *found = &report->places[0];
    why = found->why_not ? found->why_not : "none";
    CHECK(d->place ? strstr(why, d->place) != NULL : !found->why_not, "%s", why);
    why = report->no_driver ? report->no_driver : "none";
    CHECK(d->no_driver ? strstr(why, d->no_driver) != NULL : !report->no_driver, "%s", why);
    CHECK(strstr(report->driver, "/libcuda.so.1"), "%s", report->driver);
    CHECK(!report->cublas == (d->why_not && !d->gpu), "%s", why);
    CHECK(report->num_gpus == d->num_gpus, "%d GPUs", report->num_gpus);
    for (int k = 0; k < report->num_gpus; k++) {
        const rnl_gpu *gpu = &report->gpus[k];
        why = gpu->why_not ? gpu->why_not : "none";
        CHECK(d->gpu ? strstr(why, d->gpu) != NULL : !gpu->why_not, "%s", why);
        CHECK(d->gpu || (gpu->capability == 90 && !strncmp(gpu->name, "Stub GPU ", 9)), "%s",
              gpu->name);
    }
    if (!d->no_driver)
        apart(check_fork, NULL);
}

void check_drivers(void)
{
    for (size_t k = 0; k < sizeof with_drivers / sizeof with_drivers[0]; k++)
        apart(check_driven, &with_drivers[k]);
}

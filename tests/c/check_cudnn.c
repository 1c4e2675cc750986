/* Which cuDNN is found, and what is said of the others? Folders of stubs, good and bad ones, and
 * each search in a process of its own: what is open stays open. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "rnnlayout.h"

enum { NUM_MACHINES = 300, MOST_NCHARS = 512 };

static char root[] = "/tmp/rnnlayout-check-XXXXXX";

/* One of the last texts made. */
static const char *format(const char *text, ...)
{
    static char made[16][MOST_NCHARS];
    static int turn;
    va_list arguments;
    turn = (turn + 1) % 16;
    va_start(arguments, text);
    vsnprintf(made[turn], MOST_NCHARS, text, arguments);
    va_end(arguments);
    return made[turn];
}

static void command(const char *text)
{
    if (system(text) != 0) {
        fprintf(stderr, "failed: %s\n", text);
        exit(1);
    }
}

/* -------------------------------------------------------------------------- kinds of cuDNN -- */

typedef struct kind {
    const char *name;
    const char *stub;                   /* the main library's folder; NULL: there is none */
    const char *major;                  /* of its file's name                             */
    const char *spoil;                  /* what is done to a whole folder                 */
    const char *why;                    /* why it is not taken; NULL: it is               */
    enum { NOTHING, PARTS, ALL } opens; /* until that is known           */
} kind;

static const kind kinds[] = {
    {"empty", NULL, NULL, "true", "no libcudnn.so.9 or libcudnn.so.8", NOTHING},
    {"good9", "good", "9", "true", NULL, ALL},
    {"good8", "good", "8", "true", NULL, ALL},
    {"lone9", "good", "9", "rm libcudnn_*", "without libcudnn_graph.so.9, libcudnn_ops.so.9",
     NOTHING},
    {"pipe", "good", "9", "rm libcudnn_ops.so.9 && mkfifo libcudnn_ops.so.9",
     "libcudnn_ops.so.9: no 64-bit library", NOTHING},
    {"lone8", "good", "8", "rm libcudnn_*", "without libcudnn_ops_infer.so.8, ", NOTHING},
    {"no_adv", "good", "9", "rm libcudnn_adv*", "without libcudnn_adv.so.9,", NOTHING},
    {"cut", "good", "9", "truncate -s 5000 libcudnn_adv.so.9", "cut short, at 5000 bytes", NOTHING},
    {"cut_late", "good", "9",
     "set -- $(readelf -lW libcudnn_graph.so.9 | grep DYNAMIC) && "
     "truncate -s $(($2 + 1)) libcudnn_graph.so.9",
     "libcudnn_graph.so.9: cut short, at", NOTHING},
    {"text", "good", "9", "echo version https://git-lfs > libcudnn_ops.so.9",
     "libcudnn_ops.so.9: no 64-bit library", NOTHING},
    {"foreign", "good", "9",
     "printf '\\002' | dd of=libcudnn_graph.so.9 bs=1 seek=18 conv=notrunc 2>/dev/null",
     "libcudnn_graph.so.9: for another kind of machine", NOTHING},
    {"secret", "good", "9", "ln -sf nowhere libcudnn_ops.so.9", "without libcudnn_ops.so.9,",
     NOTHING},
    {"old", "old", "8", "true", "cuDNN 8.5.0 is too old", ALL},
    {"lying", "lying", "9", "true", "it is cuDNN 8.9.6 by its own word", ALL},
    {"other", "other", "9", "true", "it is cuDNN 10.0.0 by its own word", ALL},
    {"mixed", "mixed", "9", "true", "cudnnAdvVersionCheck answers 1002 (STUB_STATUS)", ALL},
    {"undefined", "good", "9", "cp " STUBS "/undefined/* .", "libcudnn_adv.so.9 does not open: /",
     PARTS},
    {"lacking", "lacking", "9", "true", "it has no cudnnGetVersion", ALL},
    {"seven", NULL, NULL, "touch libcudnn.so.7", "cuDNN 7: 8.9 or 9 is needed", NOTHING},
};
enum {
    NUM_KINDS = sizeof kinds / sizeof kinds[0],
    EMPTY = 0,
    GOOD9 = 1,
    GOOD8 = 2,
    LONE9 = 3,
    PIPE = 4
};

static void make_folder(const char *folder, const kind *k)
{
    command(format("mkdir -p %s", folder));
    if (k->stub) {
        command(format("cp -P " STUBS "/parts/libcudnn_*.so.%s %s", k->major, folder));
        command(format("cp " STUBS "/%s/libcudnn.so.%s %s", k->stub, k->major, folder));
    }
    command(format("cd %s && %s", folder, k->spoil));
}

/* ---------------------------------------------------------------------------------- places -- */

typedef struct place {
    const char *name, *origin, *under;
} place;

static const place places[] = {
    {"loaded", "already loaded", "lib"}, {"site", "packages", "nvidia/cudnn/lib"},
    {"user", "packages", "torch/lib"},   {"conda", "CONDA_PREFIX", "lib"},
    {"venv", "environment", "lib"},      {"cudnn", "CUDNN_PATH", "lib64"},
    {"home", "CUDNN_HOME", "."},         {"cuda", "CUDA_PATH", "targets/x86_64-linux/lib"},
    {"cuda_home", "CUDA_HOME", "lib"},   {"first", "LD_LIBRARY_PATH", "."},
    {"second", "LD_LIBRARY_PATH", "."},  {"loader", "loader", "."},
};
enum { LOADED, SITE, USER, CONDA, VENV, CUDNN, CUDA_HOME = 8, FIRST, SECOND, LOADER, NUM_PLACES };

/* The root of a place, as a machine has it that has such a cuDNN there. */
static const char *root_of(int place_at, int kind_at)
{
    return format("%s/%s/%s", root, places[place_at].name, kinds[kind_at].name);
}

static const char *folder_of(int place_at, int kind_at)
{
    return format("%s/%s", root_of(place_at, kind_at), places[place_at].under);
}

static void make_all(void)
{
    if (!mkdtemp(root))
        exit(1);
    for (int k = 0; k < NUM_KINDS; k++) {
        make_folder(folder_of(SITE, k), &kinds[k]);
        for (int p = 0; p < LOADER; p++)
            if (p != SITE)
                command(format("mkdir -p %s && cp -a %s/. %s", folder_of(p, k), folder_of(SITE, k),
                               folder_of(p, k)));
    }
}

/* ---------------------------------------------------------------------- a search in a child -- */

/* Run a function in a process of its own, which must end by itself, and count its checks. */
static void apart(void (*function)(const void *), const void *argument)
{
    long counts[2] = {0, 1};
    int ends[2], status = 0;
    fflush(NULL);
    if (pipe(ends) != 0)
        exit(1);
    const pid_t child = fork();
    if (child == 0) {
        check_passed = check_failed = 0;
        alarm(600); /* seconds: one that hangs is a failure, one that gets no CPU is not */
        function(argument);
        counts[0] = check_passed;
        counts[1] = check_failed;
        exit(write(ends[1], counts, sizeof counts) != (ssize_t)sizeof counts);
    }
    close(ends[1]);
    const bool told = read(ends[0], counts, sizeof counts) == (ssize_t)sizeof counts;
    close(ends[0]);
    waitpid(child, &status, 0);
    CHECK(told && WIFEXITED(status) && WEXITSTATUS(status) == 0, "a search ended with %d", status);
    check_passed += counts[0];
    check_failed += counts[1];
}

static const rnl_cudnn_report *search(const char *const *packages, const char *const *environments)
{
    const rnl_cudnn_search where = {packages, environments};
    const rnl_cudnn_report *report = NULL;
    rnl_error err;
    CHECK(rnl_cudnn_find(&where, &report, &err) == RNL_OK, "%s", err.text);
    return report;
}

/* --------------------------------------------------------------------- all the places at once --
 */

typedef struct machine {
    int kind[NUM_PLACES];
} machine;

/* What the process has open, in the model: by major version, the main library and anything at all.
 */
typedef struct opened {
    bool main[10], any[10];
} opened;

static int major_of(const kind *k)
{
    return k->stub ? atoi(k->major) : 0;
}

/* The next place of the report is as it should be; whether it is the one. */
static bool check_place(const rnl_cudnn_report *report, int *at, const place *p, const kind *k,
                        opened *open, bool shared)
{
    const int major = major_of(k);
    const bool blocked = !shared && open->any[major];
    while (*at < report->num_places && !strcmp(report->places[*at].origin, "usual folders"))
        ++*at;
    CHECK(*at < report->num_places, "%s is not in the report", p->name);
    if (*at >= report->num_places)
        return true;
    const rnl_cudnn_place *found = &report->places[(*at)++];
    const char *why = found->why_not ? found->why_not : "taken";
    CHECK(!strcmp(found->origin, p->origin), "%s: %s", p->name, found->origin);
    const bool as_it_is = k->why ? strstr(why, k->why) != NULL : !found->why_not;
    const bool as_another = blocked && strstr(why, "has another cuDNN's libcudnn");
    CHECK(as_another || (as_it_is && !(blocked && k->opens)), "%s %s: %s", p->name, k->name, why);
    if (!as_another) {
        open->any[major] |= k->opens >= PARTS;
        open->main[major] |= k->opens == ALL;
    }
    return !found->why_not;
}

static bool check_loader(const rnl_cudnn_report *report, int *at, const machine *m, opened *open)
{
    const kind *k = &kinds[m->kind[LOADER]];
    for (int major = 9; major >= 8; major--) {
        const bool there = major_of(k) == major;
        const kind none = {.name = "none", .why = "cannot open shared object file"};
        const kind refused = {.name = "refused", .why = "not asked"};
        const bool above = major_of(&kinds[m->kind[FIRST]]) == major ||
                           major_of(&kinds[m->kind[SECOND]]) == major || open->main[major];
        const kind *now = there ? k : &none;
        if (check_place(report, at, &places[LOADER], above ? &refused : now, open, false))
            return true;
    }
    return false;
}

static void check_machine(const void *argument)
{
    const machine *m = argument;
    const char *roots[NUM_PLACES], *under[NUM_PLACES];
    opened open = {{false}, {false}};
    int at = 0;
    bool taken = false;
    for (int p = 0; p < LOADER; p++) {
        roots[p] = strdup(root_of(p, m->kind[p]));
        under[p] = strdup(folder_of(p, m->kind[p]));
    }
    for (int p = CONDA; p <= CUDA_HOME; p++)
        if (p != VENV)
            setenv(places[p].origin, roots[p], 1);
    setenv("LD_LIBRARY_PATH", format("%s:%s", roots[FIRST], roots[SECOND]), 1);
    command("rm -f " STUBS "/loader/*");
    make_folder(STUBS "/loader", &kinds[m->kind[LOADER]]);
    const kind *loaded = &kinds[m->kind[LOADED]];
    if (loaded->stub) {
        const char *file = format("%s/libcudnn.so.%s", under[LOADED], loaded->major);
        CHECK(dlopen(file, RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
    }
    const rnl_cudnn_report *report = search((const char *[]){roots[SITE], roots[USER], NULL},
                                            (const char *[]){roots[VENV], NULL});
    if (loaded->stub)
        open.main[major_of(loaded)] = open.any[major_of(loaded)] = true;
    const kind none = {.name = "none", .why = "neither is in this process"};
    taken = check_place(report, &at, &places[LOADED], loaded->stub ? loaded : &none, &open, true);
    for (int p = SITE; p < LOADER && !taken; p++)
        taken = check_place(report, &at, &places[p], &kinds[m->kind[p]], &open, false);
    if (!taken)
        taken = check_loader(report, &at, m, &open);
    CHECK(at == report->num_places, "%d places more", report->num_places - at);
    CHECK(taken == (report->path != NULL), "%d", taken);
    CHECK(!taken || (report->version == 91900 || report->version == 8906), "%d", report->version);
    CHECK(!taken || report->cuda_version == 13010, "%d", report->cuda_version);
    CHECK(report->why_not && report->no_driver && !report->cublas, "%s", "no driver");
    const rnl_cudnn_report *again = search(NULL, NULL);
    CHECK(again == report, "%s", "the answer is kept");
    rnl_cudnn_report_free(again);
    rnl_cudnn_report_free(report);
    for (int p = 0; p < LOADER; p++) {
        free((char *)roots[p]);
        free((char *)under[p]);
    }
}

static void check_machines(void)
{
    for (int turn = 0; turn < NUM_MACHINES; turn++) {
        machine m;
        for (int p = 0; p < NUM_PLACES; p++) {
            const int bad = turn % 3 ? EMPTY : (int)random_below(NUM_KINDS);
            m.kind[p] = random_below(3) ? bad : (int)random_below(NUM_KINDS);
            if (turn % 2 && !kinds[m.kind[p]].why) /* to go on to the last places */
                m.kind[p] = EMPTY;
        }
        if (m.kind[LOADER] == PIPE) /* the system's loader would wait for it */
            m.kind[LOADER] = EMPTY;
        if (turn < NUM_PLACES * 2)
            m.kind[turn / 2] = turn % 2 ? GOOD8 : GOOD9;
        apart(check_machine, &m);
    }
}

/* ---------------------------------------------------------------------- the one that is named --
 */

typedef struct choice {
    bool by_call;
    const char *path, *why;
    int also; /* the kind that is loaded by something else, EMPTY: none */
} choice;

static void check_choice(const void *argument)
{
    const choice *c = argument;
    const char *packages[] = {root_of(SITE, GOOD9), NULL};
    rnl_error err;
    if (c->also)
        CHECK(dlopen(format("%s/libcudnn.so.9", folder_of(LOADED, c->also)), RTLD_NOW), "%s",
              dlerror());
    setenv("RNNLAYOUT_CUDNN", c->by_call ? "/nowhere" : c->path, 1);
    CHECK(!c->by_call || rnl_cudnn_choose(c->path, &err) == RNL_OK, "%s", err.text);
    const rnl_cudnn_report *report = search(packages, NULL);
    CHECK(report->num_places == 1, "%d places", report->num_places);
    const rnl_cudnn_place *found = &report->places[0];
    const char *why = found->why_not ? found->why_not : "taken";
    CHECK(!strcmp(found->origin, c->by_call ? "chosen" : "RNNLAYOUT_CUDNN"), "%s", found->origin);
    CHECK(c->why ? strstr(why, c->why) != NULL : !found->why_not, "%s: %s", c->path, why);
    CHECK((report->path != NULL) == !c->why && report->why_not, "%s", c->path);

    /* Another one can be named unless this one is in use. */
    const rnl_status status = rnl_cudnn_choose(NULL, &err);
    CHECK(status == (c->why ? RNL_OK : RNL_E_SPEC), "%s", c->why ? "" : err.text);
    unsetenv("RNNLAYOUT_CUDNN");
    const rnl_cudnn_report *again = search(packages, NULL);
    CHECK((again == report) == !c->why, "%s", c->path);
    rnl_cudnn_report_free(again);
    rnl_cudnn_report_free(report);
}

static void check_choices(void)
{
    for (int turn = 0; turn < 2 * NUM_KINDS; turn++) {
        const kind *k = &kinds[turn / 2];
        const char *folder = folder_of(SITE, turn / 2);
        const choice by_folder = {turn % 2, folder, k->why, EMPTY};
        apart(check_choice, &by_folder);
        const choice by_root = {turn % 2, root_of(CUDA_HOME, turn / 2), k->why, EMPTY};
        apart(check_choice, &by_root);
        if (k->stub) {
            const choice by_file = {turn % 2, format("%s/libcudnn.so.%s", folder, k->major), k->why,
                                    EMPTY};
            apart(check_choice, &by_file);
        }
    }
    const choice others[] = {
        {true, "off", "switched off", EMPTY},
        {false, "off", "switched off", EMPTY},
        {true, "/nowhere/at/all", "there is no such file or folder", EMPTY},
        {false, "nowhere.so", "there is no such file or folder", EMPTY},
        {true, format("%s/libcudnn_adv.so.9", folder_of(SITE, GOOD9)), "not called libcudnn.so.9",
         EMPTY},
        {true, folder_of(SITE, GOOD9), "has another cuDNN's libcudnn.so.9 already, from /", LONE9},
        {true, folder_of(LOADED, GOOD9), NULL, GOOD9},
        {true, folder_of(SITE, GOOD8), NULL, GOOD9},
    };
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
        apart(check_choice, &others[k]);
}

/* -------------------------------------------------------------------------------- the driver -- */

typedef struct driven {
    const char *driver;            /* the stub's folder */
    int kind;                      /* of cuDNN          */
    const char *variables[4];      /* NAME=value        */
    const char *cublas;            /* its folder, from cuDNN's; NULL: nowhere */
    const char *why_not;           /* the report's; NULL: a GPU can be used   */
    const char *place, *no_driver; /* said of cuDNN's place, and of the driver */
    const char *gpu;               /* said of the first GPU */
    const char *without;           /* a file that is not there all the same */
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
     "no cuDNN was found",
     "it needs libcublas.so.11, ",
     .without = "libcublas.so.11",
     .num_gpus = 1},
    {"driver",
     GOOD9,
     {"STUB_GPUS=1"},
     NULL,
     "no cuDNN was found",
     "it needs libcublasLt.so.13, ",
     .num_gpus = 1},
    {"driver",
     GOOD9,
     {"STUB_DRIVER=12040"},
     ".",
     "no cuDNN was found",
     "built for CUDA 13, and the driver runs CUDA 12.4 at most",
     .num_gpus = 1},
    {"driver",
     GOOD9,
     {"STUB_NEWEST_GPU=890"},
     ".",
     "knows up to 8.9",
     .gpu = "capability is 9.0, and this cuDNN knows up to 8.9",
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
     "no cuDNN was found",
     "no libcudnn.so.9",
     .num_gpus = 1},
    {"old_driver",
     GOOD9,
     {"STUB_GPUS=1"},
     ".",
     "no NVIDIA driver",
     .no_driver = "has no cuDevicePrimaryCtxRetain: the driver is too old"},
};

static void check_fork(const void *parents)
{
    const rnl_cudnn_report *report = NULL;
    const rnl_cudnn_search where = {NULL, NULL};
    rnl_error err;
    const rnl_status status = rnl_cudnn_find(&where, &report, &err);
    CHECK(status == RNL_E_NO_CUDNN && strstr(err.text, "spawn") && !report, "%d", (int)status);
    rnl_cudnn_report_free(parents);
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
        apart(check_fork, report);
    rnl_cudnn_report_free(report);
}

/* What two variables name is looked at once. */
static void check_twice(const void *unused)
{
    (void)unused;
    setenv("CUDA_PATH", root_of(CUDA_HOME, LONE9), 1);
    setenv("CUDA_HOME", root_of(CUDA_HOME, LONE9), 1);
    setenv("CUDNN_PATH", root_of(CUDA_HOME, EMPTY), 1);
    setenv("CUDNN_HOME", root_of(CUDA_HOME, EMPTY), 1);
    const rnl_cudnn_report *report = search(NULL, NULL);
    int lone = 0, empty = 0;
    for (int k = 0; k < report->num_places; k++) {
        lone += strstr(report->places[k].path, "/lone9/") != NULL;
        empty += strstr(report->places[k].path, "/empty") != NULL;
    }
    CHECK(lone == 1 && empty == 1, "%d, %d times", lone, empty);
    rnl_cudnn_report_free(report);
}

int main(void)
{
    static const char *const variables[] = {
        "CONDA_PREFIX", "CUDNN_PATH",      "CUDNN_HOME",      "CUDA_PATH",
        "CUDA_HOME",    "LD_LIBRARY_PATH", "RNNLAYOUT_CUDNN", "CUDA_VISIBLE_DEVICES"};
    for (size_t k = 0; k < sizeof variables / sizeof variables[0]; k++)
        unsetenv(variables[k]);
    make_all();
    rnl_cudnn_report_free(NULL);
    check_machines();
    check_choices();
    apart(check_twice, NULL);
    for (size_t k = 0; k < sizeof with_drivers / sizeof with_drivers[0]; k++)
        apart(check_driven, &with_drivers[k]);
    command(format("rm -rf %s", root));
    return check_end();
}

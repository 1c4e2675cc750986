/* Which cuDNN is found, and what is reported about the others? The places are folders with good and
 * bad stubs. Each search runs in its own process, because opened libraries stay open. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cudnn/driver.h"
#include "cudnn/folders.h"
#include "cudnn/search.h"
#include "rnnlayout.h"

enum { NUM_MACHINES = 300 };

/* ----------------------------------------------------------------------- all places at once -- */

typedef struct machine {
    int kind[NUM_PLACES];
} machine;

/* The libraries that the model has opened, by major version: the main library, and any library. */
typedef struct opened {
    bool main[10], any[10];
} opened;

static int major_of(const kind *k)
{
    return k->stub ? atoi(k->major) : 0;
}

/* Check the next place of the report. Return whether it is the one in use. */
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
    const bool as_another = blocked && strstr(why, "has already loaded libcudnn");
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
    const kind none = {.name = "none", .why = "not loaded in this process"};
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
            const int bad = turn % 3 ? EMPTY : (int)random_below(num_kinds);
            m.kind[p] = random_below(3) ? bad : (int)random_below(num_kinds);
            if (turn % 2 &&
                !kinds[m.kind[p]].why) /* so that the search goes on to the last places */
                m.kind[p] = EMPTY;
        }
        if (m.kind[LOADER] == PIPE) /* the system's loader would wait for it */
            m.kind[LOADER] = EMPTY;
        if (turn < NUM_PLACES * 2)
            m.kind[turn / 2] = turn % 2 ? GOOD8 : GOOD9;
        apart(check_machine, &m);
    }
}

/* ------------------------------------------------------------------------ the chosen place -- */

typedef struct choice {
    bool by_call;
    const char *path, *why;
    int also; /* the kind that other code has loaded; EMPTY: none */
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

    /* Another one can be chosen unless this one is in use. */
    const char *const before = format("%s", why);
    const rnl_status status = rnl_cudnn_choose(NULL, &err);
    CHECK(status == (c->why ? RNL_OK : RNL_E_SPEC), "%s", c->why ? "" : err.text);
    unsetenv("RNNLAYOUT_CUDNN");
    const rnl_cudnn_report *again = search(packages, NULL);
    CHECK((again == report) == !c->why, "%s", c->path);
    why = found->why_not ? found->why_not : "taken"; /* the first report stays as it is */
    CHECK(report->num_places == 1 && !strcmp(why, before), "%s: %s", c->path, why);
}

static void check_choices(void)
{
    for (int turn = 0; turn < 2 * num_kinds; turn++) {
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
        {true, "/nowhere/at/all", "no such file or folder", EMPTY},
        {false, "nowhere.so", "no such file or folder", EMPTY},
        {true, format("%s/libcudnn_adv.so.9", folder_of(SITE, GOOD9)), "not called libcudnn.so.9",
         EMPTY},
        {true, folder_of(SITE, GOOD9), "has already loaded libcudnn.so.9 of another cuDNN, from /",
         LONE9},
        {true, folder_of(LOADED, GOOD9), NULL, GOOD9},
        {true, folder_of(SITE, GOOD8), NULL, GOOD9},
    };
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
        apart(check_choice, &others[k]);
}

/* A place that two variables name is searched once. */
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
}

int main(void)
{
    static const char *const variables[] = {
        "CONDA_PREFIX", "CUDNN_PATH",      "CUDNN_HOME",      "CUDA_PATH",
        "CUDA_HOME",    "LD_LIBRARY_PATH", "RNNLAYOUT_CUDNN", "CUDA_VISIBLE_DEVICES"};
    for (size_t k = 0; k < sizeof variables / sizeof variables[0]; k++)
        unsetenv(variables[k]);
    make_all();
    check_machines();
    check_choices();
    apart(check_twice, NULL);
    check_drivers();
    remove_all();
    return check_end();
}

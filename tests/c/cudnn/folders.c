#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cudnn/folders.h"

static char root[] = "/tmp/rnnlayout-check-XXXXXX";

const char *format(const char *text, ...)
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

void command(const char *text)
{
    if (system(text) != 0) {
        fprintf(stderr, "failed: %s\n", text);
        exit(1);
    }
}

const kind kinds[] = {
    [EMPTY] = {"empty", NULL, NULL, "true", "no libcudnn.so.9 or libcudnn.so.8", NOTHING},
    [GOOD9] = {"good9", "good", "9", "true", NULL, ALL},
    [GOOD8] = {"good8", "good", "8", "true", NULL, ALL},
    [LONE9] = {"lone9", "good", "9", "rm libcudnn_*",
               "without libcudnn_graph.so.9, libcudnn_ops.so.9", NOTHING},
    [PIPE] = {"pipe", "good", "9", "rm libcudnn_ops.so.9 && mkfifo libcudnn_ops.so.9",
              "libcudnn_ops.so.9: not a 64-bit library", NOTHING},
    {"lone8", "good", "8", "rm libcudnn_*", "without libcudnn_ops_infer.so.8, ", NOTHING},
    {"no_adv", "good", "9", "rm libcudnn_adv*", "without libcudnn_adv.so.9,", NOTHING},
    {"cut", "good", "9", "truncate -s 5000 libcudnn_adv.so.9", "truncated at 5000 bytes", NOTHING},
    {"cut_late", "good", "9",
     "set -- $(readelf -lW libcudnn_graph.so.9 | grep DYNAMIC) && "
     "truncate -s $(($2 + 1)) libcudnn_graph.so.9",
     "libcudnn_graph.so.9: truncated at", NOTHING},
    {"text", "good", "9", "echo version https://git-lfs > libcudnn_ops.so.9",
     "libcudnn_ops.so.9: not a 64-bit library", NOTHING},
    {"foreign", "good", "9",
     "printf '\\002' | dd of=libcudnn_graph.so.9 bs=1 seek=18 conv=notrunc 2>/dev/null",
     "libcudnn_graph.so.9: built for another CPU architecture", NOTHING},
    {"secret", "good", "9", "ln -sf nowhere libcudnn_ops.so.9", "without libcudnn_ops.so.9,",
     NOTHING},
    {"old", "old", "8", "true", "cuDNN 8.5.0 is too old", ALL},
    {"lying", "lying", "9", "true", "it reports version 8.9.6", ALL},
    {"other", "other", "9", "true", "it reports version 10.0.0", ALL},
    {"mixed", "mixed", "9", "true", "cudnnAdvVersionCheck returned 1002 (STUB_STATUS)", ALL},
    {"undefined", "good", "9", "cp " STUBS "/undefined/* .", "libcudnn_adv.so.9 does not open: /",
     PARTS},
    {"lacking", "lacking", "9", "true", "it lacks cudnnGetVersion", ALL},
    {"seven", NULL, NULL, "touch libcudnn.so.7", "cuDNN 7: 8.9 or 9 is needed", NOTHING},
};

const int num_kinds = sizeof kinds / sizeof kinds[0];

void make_folder(const char *folder, const kind *k)
{
    command(format("mkdir -p %s", folder));
    if (k->stub) {
        command(format("cp -P " STUBS "/parts/libcudnn_*.so.%s %s", k->major, folder));
        command(format("cp " STUBS "/%s/libcudnn.so.%s %s", k->stub, k->major, folder));
    }
    command(format("cd %s && %s", folder, k->spoil));
}

const place places[] = {
    {"loaded", "already loaded", "lib"}, {"site", "packages", "nvidia/cudnn/lib"},
    {"user", "packages", "torch/lib"},   {"conda", "CONDA_PREFIX", "lib"},
    {"venv", "environment", "lib"},      {"cudnn", "CUDNN_PATH", "lib64"},
    {"home", "CUDNN_HOME", "."},         {"cuda", "CUDA_PATH", "targets/x86_64-linux/lib"},
    {"cuda_home", "CUDA_HOME", "lib"},   {"first", "LD_LIBRARY_PATH", "."},
    {"second", "LD_LIBRARY_PATH", "."},  {"loader", "loader", "."},
};

const char *root_of(int place_at, int kind_at)
{
    return format("%s/%s/%s", root, places[place_at].name, kinds[kind_at].name);
}

const char *folder_of(int place_at, int kind_at)
{
    return format("%s/%s", root_of(place_at, kind_at), places[place_at].under);
}

void make_all(void)
{
    if (!mkdtemp(root))
        exit(1);
    for (int k = 0; k < num_kinds; k++) {
        make_folder(folder_of(SITE, k), &kinds[k]);
        for (int p = 0; p < LOADER; p++)
            if (p != SITE)
                command(format("mkdir -p %s && cp -a %s/. %s", folder_of(p, k), folder_of(SITE, k),
                               folder_of(p, k)));
    }
}

void remove_all(void)
{
    command(format("rm -rf %s", root));
}

/*
 * Are calls on a GPU right? They run on the fakes of tests/fakes. These end the process if a rule
 * is broken, so each part runs in its own process, for several versions of cuDNN.
 *
 *     check_gpu            all parts
 *     check_gpu PART       one part, in the current environment
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "gpu/fakes.h"
#include "gpu/parts.h"

/* These leaks are intended: the fakes keep freed memory to find its use, the parts keep problems.
 */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcudnn.so\nleak:libcuda.so\nleak:lstm\n";
}

static const struct {
    const char *name;
    void (*check)(void);
    const char *environments[5];
} PARTS[] = {
    {"numbers",
     check_numbers,
     {"RNNLAYOUT_CUDNN=" FAKES "/cudnn8 FAKE_CUDNN=8906",
      "RNNLAYOUT_CUDNN=" FAKES "/cudnn8 FAKE_CUDNN=8907 FAKE_CUDA_ORDER=now", "FAKE_CUDNN=90300",
      "FAKE_CUDNN=91900", "FAKE_CUDNN=92800 FAKE_CUDA_ORDER=now"}},
    {"sequences", check_sequences, {"FAKE_CUDNN=92800"}},
    {"pool", check_pool, {"FAKE_CUDNN=92800"}},
    {"no_pools", check_no_pools, {"FAKE_CUDA_POOLS=0"}},
    {"failures", check_failures, {"", "RNNLAYOUT_CUDNN=" FAKES "/cudnn8 FAKE_CUDNN=8906"}},
    {"threads", check_threads, {"FAKE_CUDNN_LINGER=200", "FAKE_CUDA_ORDER=now"}},
    {"capture", check_capture, {"", "FAKE_CUDA_ORDER=now"}},
    {"graphs", check_graphs, {""}},
    {"streams", check_streams, {"FAKE_CUDA_REUSE=1"}},
    {"results", check_results, {"", "FAKE_CUDA_POOLS=0"}},
    {"algos",
     check_algos,
     {"", "FAKE_CUDA_CAPABILITY=70 FAKE_CUDA_PROCESSORS=80", "FAKE_CUDNN_NO_PERSIST=forward"}},
    {"fork", check_fork, {""}},
    {"sticky",
     check_sticky,
     {"STICKY=719", "RNNLAYOUT_CUDNN=" FAKES "/cudnn8 STICKY=702", "STICKY=226", "STICKY=721",
      "STICKY=911"}},
    {"refused", check_refused, {"FAKE_CUDA_DEVICES=2"}},
    {"limits",
     check_limits,
     {"FAKE_CUDA_CAPABILITY=50", "RNNLAYOUT_CUDNN=" FAKES "/cudnn8 FAKE_CUDA_CAPABILITY=50",
      "FAKE_CUDNN=91002 FAKE_CUDA_CAPABILITY=50"}},
    {"empty", check_empty, {"FAKE_CUDNN=90100"}},
    {"blocked", check_blocked, {""}},
    {"no_memory", check_no_memory, {"FAKE_CUDA_MEMORY=100000"}},
    {"poll", check_poll, {"FAKE_CUDA_SLOW=8000"}},
    {"large", check_large, {"", "FAKE_CUDA_ORDER=now"}},
};

/* Run a part in its own process and add its counts. */
static void run_part(const char *program, const char *name, const char *environment)
{
    char command[4000], line[200];
    long passed = 0, failed = 0;
    snprintf(command, sizeof command, "RNNLAYOUT_CUDNN=%s %s '%s' %s", FAKES "/cudnn9", environment,
             program, name);
    if (strncmp(environment, "RNNLAYOUT_CUDNN", 15) == 0)
        snprintf(command, sizeof command, "%s '%s' %s", environment, program, name);
    fflush(stdout);
    FILE *child = popen(command, "r");
    while (child && fgets(line, sizeof line, child))
        if (sscanf(line, "%ld passed, %ld failed", &passed, &failed) != 2)
            fputs(line, stdout);
    const int status = child ? pclose(child) : -1;
    check_passed += passed;
    check_failed += failed;
    CHECK(status == 0 && passed > 0, "%s ends with %d", command, status);
}

int main(int argc, char **argv)
{
    char program[2000] = "";
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return 2;
    for (size_t k = 0; k < sizeof PARTS / sizeof PARTS[0]; k++) {
        if (argc > 1 && strcmp(argv[1], PARTS[k].name) == 0) {
            find_fakes();
            PARTS[k].check();
        }
        for (int e = 0; argc == 1 && e < 5 && PARTS[k].environments[e]; e++)
            run_part(program, PARTS[k].name, PARTS[k].environments[e]);
    }
    return check_end();
}

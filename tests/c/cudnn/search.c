#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "cudnn/search.h"

void apart(void (*function)(const void *), const void *argument)
{
    long counts[2] = {0, 1};
    int ends[2], status = 0;
    fflush(NULL);
    if (pipe(ends) != 0)
        exit(1);
    const pid_t child = fork();
    if (child == 0) {
        check_passed = check_failed = 0;
        alarm(600); /* seconds: long enough for a busy machine, so only a hanging process fails */
        function(argument);
        counts[0] = check_passed;
        counts[1] = check_failed;
        exit(write(ends[1], counts, sizeof counts) != (ssize_t)sizeof counts);
    }
    close(ends[1]);
    const bool reported = read(ends[0], counts, sizeof counts) == (ssize_t)sizeof counts;
    close(ends[0]);
    waitpid(child, &status, 0);
    CHECK(reported && WIFEXITED(status) && WEXITSTATUS(status) == 0, "a search ended with %d",
          status);
    check_passed += counts[0];
    check_failed += counts[1];
}

const rnl_cudnn_report *search(const char *const *packages, const char *const *environments)
{
    const rnl_cudnn_search where = {packages, environments};
    const rnl_cudnn_report *report = NULL;
    rnl_error err;
    CHECK(rnl_cudnn_find(&where, &report, &err) == RNL_OK, "%s", err.text);
    return report;
}

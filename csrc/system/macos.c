/* The part of system.h for macOS. */
#include <stdlib.h>
#include <sys/sysctl.h>

#include "system/system.h"

void *rnl_memory_new(int64_t nbytes)
{
    void *memory;
    return posix_memalign(&memory, RNL_ALIGNMENT, (size_t)nbytes) ? NULL : memory;
}

void rnl_memory_free(void *memory)
{
    free(memory);
}

/* Return the number that the system gives for a name; 0: unknown name. */
static int number_of(const char *name)
{
    int n = 0;
    size_t nbytes = sizeof n;
    return sysctlbyname(name, &n, &nbytes, NULL, 0) == 0 ? n : 0;
}

/* Members of a team wait for each other at every step: a slow core would hold up the fast cores. */
int rnl_num_cpus(void)
{
    const int fast = number_of("hw.perflevel0.logicalcpu"); /* Apple silicon alone has levels */
    return fast ? fast : number_of("hw.logicalcpu");
}

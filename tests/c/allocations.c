#include "allocations.h"

#include <errno.h>
#include <stdlib.h>

volatile long live, taken, fail_at = NEVER;

void *__real_malloc(size_t nbytes);
void *__real_calloc(size_t n, size_t nbytes);
void *__real_realloc(void *block, size_t nbytes);
int __real_posix_memalign(void **block, size_t alignment, size_t nbytes);
void __real_free(void *block);
void *__wrap_malloc(size_t nbytes);
void *__wrap_calloc(size_t n, size_t nbytes);
void *__wrap_realloc(void *block, size_t nbytes);
int __wrap_posix_memalign(void **block, size_t alignment, size_t nbytes);
void __wrap_free(void *block);

static int refused(void)
{
    return taken++ == fail_at;
}

static void *counted(void *block)
{
    live += block != NULL;
    return block;
}

void *__wrap_malloc(size_t nbytes)
{
    return refused() ? NULL : counted(__real_malloc(nbytes));
}

void *__wrap_calloc(size_t n, size_t nbytes)
{
    return refused() ? NULL : counted(__real_calloc(n, nbytes));
}

void *__wrap_realloc(void *block, size_t nbytes)
{
    if (refused())
        return NULL;
    live += !block;
    return __real_realloc(block, nbytes);
}

int __wrap_posix_memalign(void **block, size_t alignment, size_t nbytes)
{
    if (refused() || __real_posix_memalign(block, alignment, nbytes))
        return ENOMEM;
    counted(*block);
    return 0;
}

void __wrap_free(void *block)
{
    live -= block != NULL;
    __real_free(block);
}

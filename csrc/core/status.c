#include "core/status.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

rnl_status rnl_fail(rnl_error *err, rnl_status status, const char *format, ...)
{
    va_list args;
    assert(err); /* required by rnnlayout.h */
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    err->status = status;
    return status;
}

void rnl_append_name(char *list, size_t nbytes, const char *name)
{
    strncat(list, *list ? ", " : "", nbytes - strlen(list) - 1);
    strncat(list, name, nbytes - strlen(list) - 1);
}

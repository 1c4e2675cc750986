/* The version of the library. */
#include "rnnlayout.h"

const char *rnl_version(void)
{
    return RNL_VERSION;
}

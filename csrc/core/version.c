/* Which version is this? */
#include "rnnlayout.h"

const char *rnl_version(void)
{
    return RNL_VERSION;
}

/* All functions of cuDNN by their names; they are not called. Those with an answer are in cudnn.c,
 * which is linked with this file. */
#include <stdlib.h>

#define CUDNN(returns, name, arguments)                                                            \
    void name(void);                                                                               \
    __attribute__((weak)) void name(void)                                                          \
    {                                                                                              \
        abort();                                                                                   \
    }
#include "forward/cudnn/symbols.def"

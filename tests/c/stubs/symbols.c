/* All functions of a library by their names; they are not called. Functions with an answer are in
 * the file linked with this one. */
#include <stdlib.h>

#define STUB(name)                                                                                 \
    void name(void);                                                                               \
    __attribute__((weak)) void name(void)                                                          \
    {                                                                                              \
        abort();                                                                                   \
    }
#ifdef VERSION
#define CUDNN(returns, name, arguments) STUB(name)
#else
#define DRIVER(returns, name, arguments) STUB(name)
#endif
#include "forward/cudnn/symbols.def"

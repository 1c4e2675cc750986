/* All functions of a library by their names; they are not called. Functions with an answer are in
 * the file linked with this one. */
#include <stdlib.h>

#define STUB(name)                                                                                 \
    void name(void);                                                                               \
    __attribute__((weak)) void name(void)                                                          \
    {                                                                                              \
        abort();                                                                                   \
    }
#define HAS_0(name) STUB(name)
#if defined(MAJOR)
#if MAJOR == 8
#define HAS_8(name) STUB(name)
#define HAS_9(name)
#else
#define HAS_8(name)
#define HAS_9(name) STUB(name)
#endif
#define CUDNN(major, returns, name, arguments) HAS_##major(name)
#else
#define HAS_1(name)
#define DRIVER(optional, returns, name, arguments) HAS_##optional(name)
#endif
#include "forward/cudnn/symbols.def"

/* All functions of a library by their names; they are not called. Functions with an answer are in
 * the file linked with this one. */
#include <stdlib.h>

#define STUB(name)                                                                                 \
    void name(void);                                                                               \
    __attribute__((weak)) void name(void)                                                          \
    {                                                                                              \
        abort();                                                                                   \
    }
#if defined(MAJOR)
#define HAS_0(name) STUB(name)
#if MAJOR == 8
#define HAS_8(name) STUB(name)
#define HAS_9(name)
#else
#define HAS_8(name)
#define HAS_9(name) STUB(name)
#endif
#define CUDNN(major, returns, name, arguments) HAS_##major(name)
#else
#define HAS_0(name)
#define HAS_1(name) STUB(name)
#define DRIVER(needed, returns, name, arguments) HAS_##needed(name)
#endif
#include "forward/cudnn/symbols.def"

#include "cpu/imitate.h"

#if defined(__x86_64__) && defined(__linux__)
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

#include "kernels/tier.h"
#include "kernels/tile_registers.h"

long imitated;

/* An instruction with a VEX prefix of three bytes: Intel's manual, volume 2, 2.3.5. */
typedef struct instruction {
    int prefix, opcode, reg, rm, vvvv, nbytes;
    bool reads_memory;
    char *base;
    int64_t index; /* 0: none */
} instruction;

enum { NO_PREFIX, F3 = 2, F2 = 3, CONFIGURE = 0x49, MOVE = 0x4b, MULTIPLY = 0x5c, NO_INDEX = 4 };

static int64_t general_register(const ucontext_t *at, int number)
{
    static const int places[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                 REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                 REG_R12, REG_R13, REG_R14, REG_R15};
    return at->uc_mcontext.gregs[places[number]];
}

static instruction decoded(const ucontext_t *at)
{
    const uint8_t *const bytes = (const uint8_t *)at->uc_mcontext.gregs[REG_RIP];
    if (bytes[0] != 0xc4 || (bytes[1] & 0x1f) != 2) /* of the map 0F38 */
        abort();
    const int way = bytes[4] >> 6, rm = bytes[4] & 7, x = bytes[1] & 0x40 ? 0 : 8,
              b = bytes[1] & 0x20 ? 0 : 8;
    instruction it = {.prefix = bytes[2] & 3,
                      .opcode = bytes[3],
                      .reg = bytes[4] >> 3 & 7,
                      .rm = rm,
                      .vvvv = ~bytes[2] >> 3 & 15,
                      .nbytes = 5,
                      .reads_memory = way != 3};
    if (!it.reads_memory)
        return it;
    int base = rm | b;
    if (rm == 4) { /* base and index are in one more byte */
        const int sib = bytes[it.nbytes++], index = (sib >> 3 & 7) | x;
        base = (sib & 7) | b;
        if (index != NO_INDEX)
            it.index = general_register(at, index) << (sib >> 6);
    }
    if (way == 0 && (base & 7) == 5) /* no base */
        abort();
    it.base = (char *)general_register(at, base);
    if (way == 1) {
        it.base += (int8_t)bytes[it.nbytes];
    } else if (way == 2) {
        int32_t more;
        memcpy(&more, bytes + it.nbytes, sizeof more);
        it.base += more;
    }
    it.nbytes += way == 1 ? 1 : way == 2 ? 4 : 0;
    return it;
}

static void imitate(int signal, siginfo_t *info, void *context)
{
    ucontext_t *const at = context;
    const instruction it = decoded(at);
    (void)signal;
    (void)info;
    if (it.opcode == CONFIGURE && it.prefix == NO_PREFIX && it.reads_memory)
        tiles_shape((const tile_shapes *)(const void *)(it.base + it.index));
    else if (it.opcode == CONFIGURE && it.prefix == NO_PREFIX)
        TILES_RELEASE();
    else if (it.opcode == MOVE && it.prefix == F2)
        TILE_LOAD(it.reg, it.base, it.index);
    else if (it.opcode == MOVE && it.prefix == F3)
        TILE_STORE(it.reg, it.base, it.index);
    else if (it.opcode == MULTIPLY && it.prefix == F3)
        TILE_ADD_PRODUCT(it.reg, it.rm, it.vvvv);
    else
        abort();
    imitated++;
    at->uc_mcontext.gregs[REG_RIP] += it.nbytes;
}

bool imitate_tiles(void)
{
    const struct sigaction action = {.sa_sigaction = imitate, .sa_flags = SA_SIGINFO};
    /* the only tier that uses all the rest, on CPUs without tiles */
    return strcmp(rnl_tier_get()->name, "avx512bf16") == 0 && sigaction(SIGILL, &action, NULL) == 0;
}
#else
long imitated;

bool imitate_tiles(void)
{
    return false;
}
#endif

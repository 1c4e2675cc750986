/*
 * Device memory, in a table of ranges.
 *
 * A device address is not valid on the host, so that our code cannot read it by mistake, and is
 * used only once: freed memory stays known as freed. New memory is filled with NaN.
 * FAKE_CUDA_MEMORY: bytes of a device (0: no limit).
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256, GAP = 4096, NAN_BYTE = 0xff, KEPT = 64 };
#define FIRST_ADDRESS (1ULL << 60) /* no x86-64 or AArch64 process uses it */

/* Work that touched a part of a block. */
struct touch {
    size_t from, to;
    int write, stream;
    uint32_t number;
    char name[40];
};

struct block {
    struct block *next;
    CUdeviceptr at;
    size_t nbytes;
    char *host;
    int device, alive, counted, touches;
    struct touch *touch; /* room for KEPT, while the block is alive */
};

static struct block *blocks;
static CUdeviceptr next_address = FIRST_ADDRESS;
static size_t in_use[FAKE_MAX_DEVICES];

CUdeviceptr fake_alloc(size_t nbytes, int device);
void fake_free(CUdeviceptr at);
void fake_read(CUdeviceptr at, void *to, size_t nbytes);
void fake_write(CUdeviceptr at, const void *from, size_t nbytes);

static struct block *new_block(size_t nbytes, int device)
{
    struct block *made = calloc(1, sizeof *made);
    size_t whole = (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *made = (struct block){.next = blocks, .nbytes = nbytes, .device = device, .alive = 1};
    made->touch = calloc(KEPT, sizeof *made->touch);
    made->host = aligned_alloc(ALIGNMENT, whole);
    memset(made->host, NAN_BYTE, whole);
    made->at = next_address;
    next_address += whole + GAP - whole % GAP + GAP;
    return blocks = made;
}

static void end_block(struct block *block)
{
    block->alive = 0;
    in_use[block->device] -= block->nbytes;
    if (block->counted)
        fake_count(FAKE_MEMORY, -1);
    free(block->host);
    free(block->touch);
    block->host = NULL;
    block->touch = NULL;
}

/* The block that contains an address of the device. */
static struct block *block_of(CUdeviceptr at)
{
    for (struct block *b = blocks; b; b = b->next)
        if (at >= b->at && at - b->at < b->nbytes)
            return b;
    return NULL;
}

static struct block *describe(CUdeviceptr at, size_t nbytes, const char *what)
{
    if (!at)
        fake_die("%s is NULL", what);
    struct block *found = block_of(at);
    if (!found)
        fake_die("%s: %llx is not device memory", what, (unsigned long long)at);
    if (!found->alive)
        fake_die("%s: %llx was freed already", what, (unsigned long long)at);
    if (nbytes > found->nbytes - (at - found->at))
        fake_die("%s: %zu bytes are used, the block has %zu", what, nbytes,
                 (size_t)(found->nbytes - (at - found->at)));
    return found;
}

void *fake_bytes(CUdeviceptr at, size_t nbytes, const char *what)
{
    struct block *found = describe(at, nbytes, what);
    return found->host + (at - found->at);
}

/* ---- accesses and their order ---- */

static void keep(struct block *block, struct touch touch, const struct fake_clock *clock)
{
    /* an access ordered before this one and covered by it finds no further races */
    int left = 0;
    for (int i = 0; i < block->touches; i++) {
        struct touch *old = &block->touch[i];
        int ordered = old->number <= clock->at[old->stream];
        int covered = old->from >= touch.from && old->to <= touch.to && touch.write >= old->write;
        if (!(ordered && covered))
            block->touch[left++] = *old;
    }
    if (left == KEPT) /* drop the oldest */
        memmove(block->touch, block->touch + 1, (size_t)--left * sizeof touch);
    block->touch[left] = touch;
    block->touches = left + 1;
}

void fake_touch(const struct fake_access *access, const char *work, int stream,
                const struct fake_clock *clock)
{
    if (!access->nbytes)
        return;
    struct block *block = describe(access->at, access->nbytes, access->what);
    size_t from = access->at - block->at;
    struct touch touch = {from,   from + access->nbytes, access->write,
                          stream, clock->at[stream],     ""};
    strncpy(touch.name, work, sizeof touch.name - 1);
    for (int i = 0; i < block->touches; i++) {
        struct touch *old = &block->touch[i];
        int overlap = old->from < touch.to && touch.from < old->to;
        if (overlap && (old->write || touch.write) && old->number > clock->at[old->stream])
            fake_die("race: %s of %s %s %llx, which %s %s on stream %d, and nothing orders the two",
                     access->what, work, touch.write ? "writes" : "reads",
                     (unsigned long long)access->at, old->name, old->write ? "writes" : "reads",
                     old->stream);
    }
    keep(block, touch, clock);
}

/* ---- the driver's calls ---- */

static CUresult allocate(CUdeviceptr *at, size_t nbytes, int device)
{
    if (!nbytes)
        return CU_INVALID_VALUE;
    const char *most = getenv("FAKE_CUDA_MEMORY");
    if (most && *most && atoll(most) && in_use[device] + nbytes > (size_t)atoll(most))
        return CU_OUT_OF_MEMORY;
    struct block *made = new_block(nbytes, device);
    in_use[device] += nbytes;
    made->counted = 1;
    fake_count(FAKE_MEMORY, 1);
    *at = made->at;
    return CU_OK;
}

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t nbytes)
{
    DRIVER_CALL("nbytes=%zu", nbytes);
    fake_refuse_in_capture(__func__);
    if (fake_current_device() < 0)
        return CU_INVALID_CONTEXT;
    return allocate(at, nbytes, fake_current_device());
}

static struct block *whole_block(CUdeviceptr at, const char *call)
{
    struct block *block = describe(at, 1, call);
    if (block->at != at)
        fake_die("%s: %llx is not the start of an allocation", call, (unsigned long long)at);
    return block;
}

CUresult cuMemFree_v2(CUdeviceptr at)
{
    LOCKED;
    fake_refuse_in_capture(__func__);
    CUresult status = fake_driver_call(__func__, "at=%llx", (unsigned long long)at);
    if (!at || fake_sticky())
        return status;
    if (fake_current_device() < 0)
        fake_die("cuMemFree_v2: no context is current");
    fake_wait_for_all();
    end_block(whole_block(at, __func__));
    return status;
}

/* ---- for tests: memory that the test owns, and access to any memory ---- */

/* Not counted as alive: the test owns it, on any device. */
CUdeviceptr fake_alloc(size_t nbytes, int device)
{
    LOCKED;
    struct block *made = new_block(nbytes, device);
    in_use[device] += nbytes;
    return made->at;
}

void fake_free(CUdeviceptr at)
{
    LOCKED;
    fake_wait_for_all();
    end_block(whole_block(at, "fake_free"));
}

/* Access memory as it is now: work that nothing waited for is not done. */
void fake_read(CUdeviceptr at, void *to, size_t nbytes)
{
    LOCKED;
    memcpy(to, fake_bytes(at, nbytes, "fake_read"), nbytes);
}

void fake_write(CUdeviceptr at, const void *from, size_t nbytes)
{
    LOCKED;
    memcpy(fake_bytes(at, nbytes, "fake_write"), from, nbytes);
}

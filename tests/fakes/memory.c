/*
 * Device memory, in a table of ranges, and who accesses it in which order.
 *
 * A device address is not valid on the host, so that our code cannot read it by mistake, and is
 * used only once: freed memory stays known as freed. New memory is filled with NaN.
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
    const char *name;
};

struct block {
    struct block *next;
    rnl_cu_address at;
    size_t nbytes;
    char *host; /* NULL: freed */
    int device, counted, touches;
    struct touch touch[KEPT];
};

static struct block *blocks;
static rnl_cu_address next_address = FIRST_ADDRESS;
static size_t in_use[FAKE_MAX_DEVICES];

rnl_cu_address fake_new_block(size_t nbytes, int device, int counted)
{
    struct block *made = calloc(1, sizeof *made);
    const size_t whole = (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    made->next = blocks;
    made->nbytes = nbytes;
    made->device = device;
    made->counted = counted;
    made->host = memset(aligned_alloc(ALIGNMENT, whole), NAN_BYTE, whole);
    made->at = next_address;
    next_address += whole + GAP - whole % GAP + GAP;
    in_use[device] += nbytes;
    fake_count(FAKE_MEMORY, counted);
    blocks = made;
    return made->at;
}

size_t fake_in_use(int device)
{
    return in_use[device];
}

static struct block *find(rnl_cu_address at, size_t nbytes, const char *what)
{
    struct block *found = blocks;
    while (found && !(at >= found->at && at - found->at < found->nbytes))
        found = found->next;
    if (!found)
        fake_die("%s: %llx is not device memory", what, at);
    if (!found->host)
        fake_die("%s: %llx was freed already", what, at);
    if (nbytes > found->nbytes - (at - found->at))
        fake_die("%s: %zu bytes are used, the block has %zu", what, nbytes,
                 (size_t)(found->nbytes - (at - found->at)));
    return found;
}

void fake_end_block(rnl_cu_address at, const char *call)
{
    struct block *const block = find(at, 1, call);
    if (block->at != at)
        fake_die("%s: %llx is not the start of an allocation", call, at);
    in_use[block->device] -= block->nbytes;
    fake_count(FAKE_MEMORY, -block->counted);
    free(block->host);
    block->host = NULL;
}

void *fake_bytes(rnl_cu_address at, size_t nbytes, const char *what)
{
    const struct block *const found = find(at, nbytes, what);
    return found->host + (at - found->at);
}

/* ---- accesses and their order ---- */

static void keep(struct block *block, struct touch touch, const struct fake_clock *clock)
{
    /* an access ordered before this one and covered by it finds no further races */
    int left = 0;
    for (int i = 0; i < block->touches; i++) {
        const struct touch *old = &block->touch[i];
        const int ordered = old->number <= clock->at[old->stream];
        const int covered = old->from >= touch.from && old->to <= touch.to &&
                            touch.write >= old->write;
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
    struct block *const block = find(access->at, access->nbytes, access->what);
    const size_t from = access->at - block->at, to = from + access->nbytes;
    for (int i = 0; i < block->touches; i++) {
        const struct touch *old = &block->touch[i];
        const int overlap = old->from < to && from < old->to;
        if (overlap && (old->write || access->write) && old->number > clock->at[old->stream])
            fake_die("race: %s of %s %s %llx, which %s %s on stream %d, and nothing orders the two",
                     access->what, work, access->write ? "writes" : "reads", access->at, old->name,
                     old->write ? "writes" : "reads", old->stream);
    }
    if (stream >= 0)
        keep(block, (struct touch){from, to, access->write, stream, clock->at[stream], work},
             clock);
}

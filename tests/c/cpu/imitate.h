/* The tile instructions of kernels/rnn_amx.c on a CPU that lacks them: it raises an exception at
 * each, whose handler computes what the instruction would, by the C form of tile_registers.h. So
 * the compiled kernel itself is tested, with its operands and addresses. */
#ifndef CPU_IMITATE_H
#define CPU_IMITATE_H

#include <stdbool.h>

/* From now on. False: this machine has tiles, or lacks what else the kernel uses. */
bool imitate_tiles(void);

/* How many instructions were imitated. */
extern long imitated;

#endif

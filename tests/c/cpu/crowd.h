/* Imitate a machine with or without other busy processes: the linker replaces the clock, the
 * barrier, and the report of a crowded call by the functions of crowd.c (--wrap). */
#ifndef CPU_CROWD_H
#define CPU_CROWD_H

#include <stdint.h>

/* How long each wait of each member takes, and how much of that is lost. */
extern int64_t crowd_wait_ns, crowd_lost_ns;

/* Return how many calls were crowded since the last question. */
int crowd_calls(void);

#endif

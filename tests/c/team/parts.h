/* What check_team asks besides: about the number of threads, and about the library in threads. */
#ifndef TEAM_PARTS_H
#define TEAM_PARTS_H

/* Check the environment variables; this must be the process's first use of a team. */
void check_variables(void);

/* Check CPUs and the quotas of control groups, of this machine and of others. */
void check_cpus(void);

/* Check that a thread leaves the CPU of another. */
void check_moves(void);

/* Check that threads can convert at the same time. */
void check_conversions(void);

#endif

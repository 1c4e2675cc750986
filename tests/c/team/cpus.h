/* The number of threads that a team may have, on this machine and on others. */
#ifndef TEAM_CPUS_H
#define TEAM_CPUS_H

enum { MOST = 64 }; /* threads of a team */

/* Check the environment variables; this must be the process's first use of a team. */
void check_variables(void);

/* Check CPUs and the quotas of control groups. */
void check_cpus(void);

/* Check that a thread leaves the CPU of another. */
void check_moves(void);

#endif

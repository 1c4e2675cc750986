/* How many threads may a team have, on this machine and on others? */
#ifndef TEAM_CPUS_H
#define TEAM_CPUS_H

enum { MOST = 64 }; /* threads of a team */

/* The variables of the environment; this has to be the process's first use of a team. */
void check_variables(void);

/* CPUs and the shares of control groups. */
void check_cpus(void);

#endif

/* Each runs in a separate process (check_gpu.c). */
#ifndef GPU_PARTS_H
#define GPU_PARTS_H

void check_numbers(void);
void check_large(void);
void check_sequences(void);
void check_pool(void);
void check_no_pools(void);
void check_graphs(void);
void check_capture(void);
void check_streams(void);
void check_algos(void);
void check_results(void);
void check_failures(void);
void check_sticky(void);
void check_no_memory(void);
void check_poll(void);
void check_threads(void);
void check_fork(void);
void check_refused(void);
void check_limits(void);
void check_empty(void);
void check_blocked(void);

#endif

/* An RNN and the arrays of a call, run on the CPU and on a GPU. */
#ifndef GPU_PROBLEM_H
#define GPU_PROBLEM_H

#include <stddef.h>
#include <stdint.h>

#include "check.h"
#include "rnnlayout.h"

enum { MOST = 1 << 14 }; /* bytes of any array here */
enum { X, H0, C0, Y, HN, CN, ARRAYS };
enum { FULL, ALL_T, RANDOM, WITH_ZERO, ZEROS, EQUAL, SHORTER, LENGTHS };

typedef struct problem {
    rnl_spec spec;
    rnl_gpu_options options;
    int64_t T, N, lengths[8];
    int has_lengths, batch_first, no_state, no_y;
    char host[ARRAYS][MOST], got[ARRAYS][MOST], weights[MOST];
    uint64_t device[ARRAYS];
    size_t nbytes[ARRAYS];
} problem;

enum { ON_HOST, ON_DEVICE, IN_PLACE, WAYS };

/* Fill with random numbers: the weights for a spec, lengths of a kind for T and N, then the arrays.
 */
void fill_weights(problem *p);
void set_lengths(problem *p, int kind);
void fill_arrays(problem *p);

/* Allocate and free device memory for the arrays; copy the host's arrays there, and the results
 * back. */
void give_memory(problem *p);
void take_memory(problem *p);
void upload(problem *p);
void download(problem *p, int way);

/* An LSTM problem with all of this, and the RNN of a problem. */
problem *lstm(void);
rnl_gpu_rnn *new_rnn(problem *p);

/* The call; IN_PLACE: the results overwrite the states. */
rnl_gpu_call call_of(problem *p, int way, void *stream);

/* Put the CPU's results in p->host. */
rnl_status on_cpu(problem *p, rnl_error *err);

/* Check that p->got, the GPU's results, is close to them. */
void compare(const problem *p, const char *what);

/* Make both calls, and compare them. */
void run_and_compare(rnl_gpu_rnn *rnn, problem *p, int way, void *stream, const char *what);

/* Check that a call is refused with this status and with `word` in the text. */
void refuse(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_status wanted, const char *word);

#endif

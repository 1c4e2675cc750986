/*
 * The kernels: what is done to the elements of one strided grid. Strides in elements; src and dst
 * do not overlap. ref.c has the obvious twin of each fast one.
 */
#ifndef RNL_KERNELS_KERNELS_H
#define RNL_KERNELS_KERNELS_H

#include "core/dtype.h"

/* Element (r, c) of a grid is base[r * row + c * col]. */
typedef struct rnl_grid {
    int64_t row, col;
} rnl_grid;

typedef struct rnl_job {
    rnl_dtype src_dtype, dst_dtype;
    const void *src, *src2;
    void *dst;
    int64_t rows, cols;
    rnl_grid src_grid, src2_grid, dst_grid;
    int64_t diagonal; /* for identities: the column of the one in row 0, of a part of the matrix */
    bool negate;
    bool stream; /* the whole target is larger than the caches: write past them */
} rnl_job;

typedef void rnl_kernel(const rnl_job *job);

/* dst = +-src. Of equal dtypes: the bits, with the sign bit flipped or not. Else rounded once, to
 * nearest even. */
void rnl_copy(const rnl_job *job);
void rnl_copy_ref(const rnl_job *job);

/* dst = +-(src + src2), the sum formed in double and rounded once; if one operand is zero the
 * other as rnl_copy has it, if both are, src. */
void rnl_add(const rnl_job *job);

/* dst = 0, dst = +-identity; the zeros of -identity are -0, so that a second negation gives
 * identity bit for bit. */
void rnl_fill_zero(const rnl_job *job);
void rnl_fill_identity(const rnl_job *job);

/* Looking before writing. Each returns the index r * cols + c of the first element that ...,
 * or -1. */
int64_t rnl_find_nonzero(const rnl_job *job);
int64_t rnl_find_not_identity(const rnl_job *job); /* ... is not that of +-identity          */
int64_t rnl_find_overflow(const rnl_job *job);     /* ... is finite, but not in dst_dtype    */
int64_t rnl_find_sum_overflow(const rnl_job *job); /* ... and the same of src + src2         */
int64_t rnl_count_sums(const rnl_job *job);        /* How many have two non-zero operands?   */

#endif

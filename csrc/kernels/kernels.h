/*
 * The kernels of conversions: operations on the elements of a strided grid. Strides are in
 * elements; src and dst do not overlap. ref.c has a simple version of the fast kernel, for
 * comparison.
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
    int64_t diagonal; /* of an identity: the column of the 1 in row 0 of this job */
    double shift;     /* a constant that is added */
    bool negate;
    bool stream; /* write past the caches, because the whole target is larger than the caches */
} rnl_job;

typedef void rnl_kernel(const rnl_job *job);

/* dst = +-src. For equal dtypes: the same bits, with the sign bit flipped or not. Otherwise rounded
 * once, to nearest even. */
void rnl_copy(const rnl_job *job);
void rnl_copy_ref(const rnl_job *job);

/* dst = +-(src + src2): the exact sum, rounded once. If an operand is zero, the remaining operand
 * is converted as in rnl_copy; if both are zero, src. */
void rnl_add(const rnl_job *job);

/* dst = src + src2 + shift, rounded once after src + src2 is rounded to double. src and src2 may be
 * missing. */
void rnl_shift(const rnl_job *job);

/* dst = 0, dst = +-identity. The zeros of -identity are -0, so that a second negation gives the
 * identity bit for bit. */
void rnl_fill_zero(const rnl_job *job);
void rnl_fill_identity(const rnl_job *job);

/* Checks before writing. Return the index r * cols + c of the first element of src that ..., or -1.
 */
int64_t rnl_find_nonzero(const rnl_job *job);      /* ... is not zero after the shift is added */
int64_t rnl_find_not_identity(const rnl_job *job); /* ... differs from +-identity            */
int64_t rnl_find_overflow(const rnl_job *job);     /* ... is finite, but not in dst_dtype    */
int64_t rnl_find_sum_overflow(const rnl_job *job); /* ... likewise for src + src2 + shift    */

int64_t rnl_find_negative(const rnl_job *job); /* ... is less than zero                  */
int64_t rnl_find_unequal(const rnl_job *job);  /* ... differs from src2, beyond rounding */

/* Return the number of elements with src != src2. */
int64_t rnl_count_unequal(const rnl_job *job);

/* Return the number of elements with src and src2 both non-zero. */
int64_t rnl_count_sums(const rnl_job *job);

/* Return the number of elements with src and src2 both non-zero, or with a rounded rnl_shift(). */
int64_t rnl_count_shifts(const rnl_job *job);

#endif

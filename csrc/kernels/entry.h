/*
 * The functions in the tables of kernels: a kernel, and then a cleanup of the vector registers for
 * code without AVX.
 *
 * On Intel's CPUs values in the upper halves of ymm0 to ymm15 make the next instruction without
 * AVX, and the next with AVX after it, wait for some 65 ns each: as long as a step with H = 8.
 * Compilers zero these halves where a function returns. But gcc does not in a function that takes
 * or returns vectors, nor before a jump to such a function. So the tables have ENTRY(kernel), not
 * the kernel; tests/c/check_registers.c reads the registers after each function in a table.
 */
#ifndef RNL_KERNELS_ENTRY_H
#define RNL_KERNELS_ENTRY_H

#ifdef __AVX__
#define ZERO_UPPER_HALVES() __builtin_ia32_vzeroupper()
#else
#define ZERO_UPPER_HALVES() (void)0
#endif

#define ENTRY(kernel) kernel##_entry

/* Define ENTRY(kernel), of a kernel that returns nothing. */
#define DEFINE_ENTRY(kernel, parameters, arguments)                                                \
    static void ENTRY(kernel) parameters                                                           \
    {                                                                                              \
        kernel arguments;                                                                          \
        ZERO_UPPER_HALVES();                                                                       \
    }

#endif

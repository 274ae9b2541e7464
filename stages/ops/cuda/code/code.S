/* SPDX-License-Identifier: Apache-2.0 */
/* The fatbin of all kernels, FATBIN, as constant data. */
    .section .rodata
    .balign 64
    .globl pst_cuda_code
    .hidden pst_cuda_code
pst_cuda_code:
    .incbin FATBIN
    .section .note.GNU-stack, "", @progbits

/* SPDX-License-Identifier: Apache-2.0 */
/* A fatbin, FATBIN, as constant data under the name NAME. */
    .section .rodata
    .balign 64
    .globl NAME
    .hidden NAME
NAME:
    .incbin FATBIN
    .section .note.GNU-stack, "", @progbits

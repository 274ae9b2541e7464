/* SPDX-License-Identifier: Apache-2.0 */
/* Defines constant data NAME with the contents of the file FATBIN. */
    .section .rodata
    .balign 64
    .globl NAME
    .hidden NAME
NAME:
    .incbin FATBIN
    .section .note.GNU-stack, "", @progbits

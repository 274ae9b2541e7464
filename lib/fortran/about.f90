! SPDX-License-Identifier: Apache-2.0
!
! libpenstock for Fortran 2008: penstock.h by ISO_C_BINDING, without copies.
! Compile this file with the program, and link with -lpenstock. Programs use the
! module penstock; the other modules of the file are parts of it.
!
!     use penstock
!     type(penstock_model)   :: model
!     type(penstock_session) :: session
!     type(penstock_step)    :: step
!     real(real32), target   :: x(64, 8), y(64, 1)    ! 64 rows
!
!     call penstock_open('model.pt2', model)
!     call penstock_session_new(model, session, &
!         [character(20) :: 'microbatches=4', 'optimizer=adamw', 'lr=1e-3'])
!     call penstock_train_step(session, [penstock_tensor(x), &
!                              penstock_tensor(y)], step)
!     print *, step%loss
!
! The procedures have the names of penstock.h, which describes them: threads,
! which calls are collective, what an error leaves. Differences:
!
! Tensors: penstock_tensor(a) makes one of a scalar or an array of rank 1 to 7,
! real32, real64, int32, int64 or complex of real32 or real64, also a section
! with strides. It refers to the memory of a, which must be a target and stay in
! place until the call with the tensor returns. The indices of a are those of
! the model in the same order: x(row, feature) is the model's x[row, feature],
! so that the batch is the first index if batch_index (penstock_info) is 1.
! penstock_reversed(tensor) has them in reverse order: x(feature, row), whose
! rows are contiguous.
! penstock_no_tensor is for an input that no stage of the rank reads, and for a
! result on other ranks than 0.
! Programs: operands are penstock_operand('name', tensor), in a list; results are
! described by penstock_result_info, and copied by penstock_copy_result.
! Indices: inputs and outputs are numbered from 1, as are
! results and operands of programs.
! Options: each is 'name=value' or 'name', a flag.
! Errors: without the argument `error` a failure prints its text and stops the
! program, as `stat` does in allocate.
! notes: a unit that notes and warnings are written to; absent: none are.

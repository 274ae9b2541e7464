! SPDX-License-Identifier: Apache-2.0
!
! Sessions and steps, and all that the module gives to programs (about.f90).
module penstock
    use, intrinsic :: iso_c_binding
    use penstock_c
    use penstock_arrays, only: penstock_tensor, penstock_no_tensor, &
                               penstock_reversed, to_pointer
    use penstock_models
    use penstock_programs
    use, intrinsic :: iso_fortran_env, only: int64, real64
    implicit none
    private

    type, public :: penstock_session
        private
        type(c_ptr) :: handle = c_null_ptr
    end type

    type, public :: penstock_step
        integer(int64) :: step
        real(real64) :: loss, grad_norm, lr
        logical :: applied
    end type

    abstract interface
        ! Writes an input of a microbatch, whose numbers count from 1; step:
        ! number of finished steps. values: the memory, without gaps; shape: the
        ! model's. An array that
        !     call c_f_pointer(values, a, shape(size(shape):1:-1))
        ! associates has the model's indices in reverse order: a(feature, row).
        ! failed = .true. fails the step on all ranks. Called as
        ! penstock_fill_fn, also by threads of the library. It should be a
        ! procedure of a module: for one that a program contains, gfortran needs
        ! an executable stack.
        subroutine penstock_fill(step, microbatch, input, values, shape, failed)
            import :: c_ptr, int64
            integer(int64), intent(in) :: step
            integer, intent(in) :: microbatch, input
            type(c_ptr), intent(in) :: values
            integer(int64), intent(in) :: shape(:)
            logical, intent(inout) :: failed
        end subroutine
    end interface

    ! The argument of run_fill.
    type :: fill_holder
        procedure(penstock_fill), pointer, nopass :: fill
    end type

    public :: penstock_inputs, penstock_outputs, penstock_parameters, &
        penstock_buffers, penstock_ok, penstock_err_nomem, &
        penstock_err_usage, penstock_err_input, penstock_err_unsupported, &
        penstock_err_shape, penstock_err_range, penstock_err_not_found, &
        penstock_err_version, penstock_err_mismatch, penstock_err_config, &
        penstock_err_io, penstock_err_peer, penstock_err_busy, &
        penstock_err_denied, penstock_err_cancelled, penstock_err_internal, &
        penstock_err_damaged, penstock_err_device
    public :: penstock_error, penstock_model, penstock_info, penstock_module
    public :: penstock_version, penstock_open, penstock_close, penstock_count, &
        penstock_describe, penstock_find, penstock_module_count, &
        penstock_describe_module, penstock_session_new, &
        penstock_session_free, penstock_session_count, &
        penstock_session_describe, penstock_train_step, &
        penstock_train_step_fill, penstock_forward_backward, &
        penstock_forward_backward_fill, penstock_fill, penstock_update, &
        penstock_forward, penstock_evaluate, penstock_output, penstock_get, &
        penstock_set, penstock_gradient, penstock_set_gradient, &
        penstock_input_gradient, penstock_swap, penstock_save, penstock_load, &
        penstock_session_bytes, penstock_copies, penstock_session_copies, &
        penstock_view, penstock_tensor, penstock_no_tensor, penstock_reversed
    public :: penstock_program, penstock_operand, penstock_call_info, &
        penstock_result_info, penstock_program_open, penstock_program_close, &
        penstock_call, penstock_result, penstock_result_operand, &
        penstock_result_gradient, penstock_copy_result

contains
    ! --- sessions ------------------------------------------------------------

    ! comm: a communicator of `use mpi` or mpif.h, or comm%MPI_VAL of mpi_f08;
    ! absent: all ranks are in this process.
    subroutine penstock_session_new(model, session, options, comm, notes, error)
        type(penstock_model), intent(in) :: model
        type(penstock_session), intent(out) :: session
        character(*), intent(in), optional :: options(:)
        integer, intent(in), optional :: comm, notes
        type(penstock_error), intent(out), optional :: error
        type(option_list), target :: list
        type(c_session_config) :: config
        integer(c_int64_t), target :: of_c(2) ! an MPI_Comm
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        code = 0
        call split_options(list, options)
        config%size = c_sizeof(config)
        config%options = c_loc(list%rows)
        config%n_options = list%n
        config%mpi_comm = c_null_ptr
        if (present(comm)) then
            code = c_comm_from_fortran(int(comm, c_int), c_loc(of_c), &
                                       c_sizeof(of_c), c)
            config%mpi_comm = c_loc(of_c)
        end if
        call set_notes(notes, config%message, config%message_ctx)
        if (code == 0) &
            code = c_session_new(model_handle(model), config, session%handle, c)
        if (code /= 0) session%handle = c_null_ptr
        call finish(code, c, error)
    end subroutine

    subroutine penstock_session_free(session)
        type(penstock_session), intent(inout) :: session

        call c_session_free(session%handle)
        session%handle = c_null_ptr
    end subroutine

    function penstock_session_bytes(session) result(n)
        type(penstock_session), intent(in) :: session
        integer(int64) :: n

        n = int(c_session_bytes(session%handle), int64)
    end function

    subroutine penstock_session_copies(session, copies, error)
        type(penstock_session), intent(in) :: session
        type(penstock_copies), intent(out) :: copies
        type(penstock_error), intent(out), optional :: error
        type(c_error) :: c

        c = no_error()
        copies%size = c_sizeof(copies)
        call finish(c_session_copies(session%handle, copies, c), c, error)
    end subroutine

    function penstock_session_count(session, kind) result(n)
        type(penstock_session), intent(in) :: session
        integer, intent(in) :: kind
        integer :: n

        n = int(c_session_count(session%handle, int(kind, c_int)))
    end function

    ! Inputs and outputs of a whole step; parameters and buffers.
    subroutine penstock_session_describe(session, kind, index, info, error)
        type(penstock_session), intent(in) :: session
        integer, intent(in) :: kind, index
        type(penstock_info), intent(out) :: info
        type(penstock_error), intent(out), optional :: error
        type(c_info) :: found
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        found = empty_info()
        code = c_session_describe(session%handle, int(kind, c_int), &
                                  int(index - 1, c_size_t), found, c)
        if (code == 0) call give_info(found, info)
        call finish(code, c, error)
    end subroutine

    ! --- steps ---------------------------------------------------------------

    ! Describes the inputs of a call in dl, which refers to them.
    function to_pointers(inputs, dl) result(pointers)
        type(penstock_tensor), intent(in), target :: inputs(:)
        type(c_tensor), intent(inout), target :: dl(:)
        type(c_ptr) :: pointers(size(inputs))
        integer :: i

        do i = 1, size(inputs)
            pointers(i) = to_pointer(inputs(i), dl(i))
        end do
    end function

    function no_step() result(s)
        type(c_step) :: s

        s = c_step(c_sizeof(s), 0, 0, 0, 0, 0)
    end function

    subroutine give_step(s, step)
        type(c_step), intent(in) :: s
        type(penstock_step), intent(out) :: step

        step = penstock_step(s%step, s%loss, s%grad_norm, s%lr, s%applied /= 0)
    end subroutine

    subroutine penstock_train_step(session, inputs, step, error)
        type(penstock_session), intent(in) :: session
        type(penstock_tensor), intent(in), target :: inputs(:)
        type(penstock_step), intent(out) :: step
        type(penstock_error), intent(out), optional :: error
        type(c_tensor), target :: dl(size(inputs))
        type(c_step) :: s
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        s = no_step()
        code = c_train_step(session%handle, to_pointers(inputs, dl), &
                            size(inputs, kind=c_size_t), s, c)
        call give_step(s, step)
        call finish(code, c, error)
    end subroutine

    ! The first part of a step: loss and gradients; penstock_update follows.
    subroutine penstock_forward_backward(session, inputs, step, error)
        type(penstock_session), intent(in) :: session
        type(penstock_tensor), intent(in), target :: inputs(:)
        type(penstock_step), intent(out) :: step
        type(penstock_error), intent(out), optional :: error
        type(c_tensor), target :: dl(size(inputs))
        type(c_step) :: s
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        s = no_step()
        code = c_forward_backward(session%handle, to_pointers(inputs, dl), &
                                  size(inputs, kind=c_size_t), s, c)
        call give_step(s, step)
        call finish(code, c, error)
    end subroutine

    function run_fill(ctx, step, microbatch, input, dst) bind(c) result(code)
        type(c_ptr), value :: ctx
        integer(c_int64_t), value :: step
        integer(c_int32_t), value :: microbatch, input
        type(c_tensor), intent(in) :: dst
        integer(c_int) :: code
        type(fill_holder), pointer :: holder
        integer(c_int64_t), pointer :: sizes(:)
        logical :: failed

        call c_f_pointer(ctx, holder)
        call c_f_pointer(dst%shape, sizes, [dst%ndim])
        failed = .false.
        call holder%fill(step, microbatch + 1, input + 1, dst%data, sizes, &
                         failed)
        code = merge(1, 0, failed)
    end function

    ! penstock_train_step with inputs that a procedure writes.
    subroutine penstock_train_step_fill(session, fill, step, error)
        type(penstock_session), intent(in) :: session
        procedure(penstock_fill) :: fill
        type(penstock_step), intent(out) :: step
        type(penstock_error), intent(out), optional :: error
        type(fill_holder), target :: holder
        type(c_step) :: s
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        s = no_step()
        holder%fill => fill
        code = c_train_step_fill(session%handle, c_funloc(run_fill), &
                                 c_loc(holder), s, c)
        call give_step(s, step)
        call finish(code, c, error)
    end subroutine

    ! penstock_forward_backward with inputs that a procedure writes.
    subroutine penstock_forward_backward_fill(session, fill, step, error)
        type(penstock_session), intent(in) :: session
        procedure(penstock_fill) :: fill
        type(penstock_step), intent(out) :: step
        type(penstock_error), intent(out), optional :: error
        type(fill_holder), target :: holder
        type(c_step) :: s
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        s = no_step()
        holder%fill => fill
        code = c_forward_backward_fill(session%handle, c_funloc(run_fill), &
                                       c_loc(holder), s, c)
        call give_step(s, step)
        call finish(code, c, error)
    end subroutine

    subroutine penstock_update(session, step, error)
        type(penstock_session), intent(in) :: session
        type(penstock_step), intent(out) :: step
        type(penstock_error), intent(out), optional :: error
        type(c_step) :: s
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        s = no_step()
        code = c_update(session%handle, s, c)
        call give_step(s, step)
        call finish(code, c, error)
    end subroutine

    ! loss: NaN if the model has none.
    subroutine penstock_forward(session, inputs, loss, error)
        type(penstock_session), intent(in) :: session
        type(penstock_tensor), intent(in), target :: inputs(:)
        real(real64), intent(out), optional :: loss
        type(penstock_error), intent(out), optional :: error
        type(c_tensor), target :: dl(size(inputs))
        real(c_double) :: found
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        code = c_forward(session%handle, to_pointers(inputs, dl), &
                         size(inputs, kind=c_size_t), found, c)
        if (code == 0 .and. present(loss)) loss = found
        call finish(code, c, error)
    end subroutine

    ! inputs have any number of rows.
    subroutine penstock_evaluate(session, inputs, loss, error)
        type(penstock_session), intent(in) :: session
        type(penstock_tensor), intent(in), target :: inputs(:)
        real(real64), intent(out) :: loss
        type(penstock_error), intent(out), optional :: error
        type(c_tensor), target :: dl(size(inputs))
        real(c_double) :: found
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        found = 0
        code = c_evaluate(session%handle, to_pointers(inputs, dl), &
                          size(inputs, kind=c_size_t), found, c)
        loss = found
        call finish(code, c, error)
    end subroutine

    ! dst: penstock_no_tensor on ranks other than 0.
    subroutine penstock_output(session, index, dst, error)
        type(penstock_session), intent(in) :: session
        integer, intent(in) :: index
        type(penstock_tensor), intent(in), target :: dst
        type(penstock_error), intent(out), optional :: error
        type(c_tensor), target :: dl
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        code = c_output(session%handle, int(index - 1, c_size_t), &
                        to_pointer(dst, dl), c)
        call finish(code, c, error)
    end subroutine

    ! dst: penstock_no_tensor on ranks other than 0.
    subroutine penstock_get(session, name, dst, error)
        type(penstock_session), intent(in) :: session
        character(*), intent(in) :: name
        type(penstock_tensor), intent(in), target :: dst
        type(penstock_error), intent(out), optional :: error
        type(c_tensor), target :: dl
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        code = c_get(session%handle, to_c(trim(name)), to_pointer(dst, dl), c)
        call finish(code, c, error)
    end subroutine

    ! dst: penstock_no_tensor on ranks other than 0.
    subroutine penstock_gradient(session, name, dst, error)
        type(penstock_session), intent(in) :: session
        character(*), intent(in) :: name
        type(penstock_tensor), intent(in), target :: dst
        type(penstock_error), intent(out), optional :: error
        type(c_tensor), target :: dl
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        code = c_gradient(session%handle, to_c(trim(name)), &
                          to_pointer(dst, dl), c)
        call finish(code, c, error)
    end subroutine

    ! Between penstock_forward_backward and penstock_update: sets the gradient,
    ! or, with add=.true., adds to it.
    subroutine penstock_set_gradient(session, name, src, add, error)
        type(penstock_session), intent(in) :: session
        character(*), intent(in) :: name
        type(penstock_tensor), intent(in), target :: src
        logical, intent(in), optional :: add
        type(penstock_error), intent(out), optional :: error
        type(c_tensor), target :: dl
        type(c_error) :: c
        integer(c_int) :: code, adds

        c = no_error()
        adds = 0
        if (present(add)) adds = merge(1, 0, add)
        code = c_set_gradient(session%handle, to_c(trim(name)), &
                              to_pointer(src, dl), adds, c)
        call finish(code, c, error)
    end subroutine

    ! dst: penstock_no_tensor on ranks other than 0.
    subroutine penstock_input_gradient(session, index, dst, error)
        type(penstock_session), intent(in) :: session
        integer, intent(in) :: index
        type(penstock_tensor), intent(in), target :: dst
        type(penstock_error), intent(out), optional :: error
        type(c_tensor), target :: dl
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        code = c_input_gradient(session%handle, int(index - 1, c_size_t), &
                                to_pointer(dst, dl), c)
        call finish(code, c, error)
    end subroutine

    ! values: the first element, in memory of the session, which penstock_view
    ! of C describes; shape: the model's. An array is associated with it as in
    ! penstock_fill; it must not be changed.
    subroutine penstock_view(session, kind, index, values, shape, error)
        type(penstock_session), intent(in) :: session
        integer, intent(in) :: kind, index
        type(c_ptr), intent(out) :: values
        integer(int64), allocatable, intent(out) :: shape(:)
        type(penstock_error), intent(out), optional :: error
        integer(c_int64_t), pointer :: sizes(:)
        type(c_tensor) :: view
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        values = c_null_ptr
        code = c_view(session%handle, int(kind, c_int), &
                      int(index - 1, c_size_t), view, c)
        if (code == 0) then
            call c_f_pointer(view%shape, sizes, [view%ndim])
            values = view%data
            shape = sizes
        end if
        call finish(code, c, error)
    end subroutine

    subroutine penstock_set(session, name, src, error)
        type(penstock_session), intent(in) :: session
        character(*), intent(in) :: name
        type(penstock_tensor), intent(in), target :: src
        type(penstock_error), intent(out), optional :: error
        type(c_tensor), target :: dl
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        code = c_set(session%handle, to_c(trim(name)), to_pointer(src, dl), c)
        call finish(code, c, error)
    end subroutine

    subroutine penstock_swap(session, module, path, options, error)
        type(penstock_session), intent(in) :: session
        character(*), intent(in) :: module, path
        character(*), intent(in), optional :: options(:)
        type(penstock_error), intent(out), optional :: error
        type(option_list), target :: list
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        call split_options(list, options)
        code = c_swap(session%handle, to_c(trim(module)), to_c(trim(path)), &
                      c_loc(list%rows), list%n, c)
        call finish(code, c, error)
    end subroutine

    subroutine penstock_save(session, folder, error)
        type(penstock_session), intent(in) :: session
        character(*), intent(in) :: folder
        type(penstock_error), intent(out), optional :: error
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        code = c_save(session%handle, to_c(trim(folder)), c)
        call finish(code, c, error)
    end subroutine

    ! step: number of finished steps of the checkpoint.
    subroutine penstock_load(session, folder, step, error)
        type(penstock_session), intent(in) :: session
        character(*), intent(in) :: folder
        integer(int64), intent(out), optional :: step
        type(penstock_error), intent(out), optional :: error
        integer(c_int64_t) :: found
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        code = c_load(session%handle, to_c(trim(folder)), found, c)
        if (code == 0 .and. present(step)) step = found
        call finish(code, c, error)
    end subroutine
end module

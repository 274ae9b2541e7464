! SPDX-License-Identifier: Apache-2.0
!
! libpenstock for Fortran 2008: penstock.h by ISO_C_BINDING, without copies.
! Compile penstock_c.f90, penstock_arrays.f90 and this file with the program,
! and link with -lpenstock.
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
! Tensors: penstock_tensor(a) makes one of a scalar or an array of rank 1 to 4,
! real32, real64, int32 or int64, also a section with strides. It refers to the
! memory of a, which must be a target and stay in place until the call with the
! tensor returns. The indices of a are those of the model in the same order:
! x(row, feature) is the model's x[row, feature], so that the batch is the first
! index if batch_index (penstock_info) is 1. penstock_reversed(tensor) has them
! in reverse order: x(feature, row), whose rows are contiguous.
! penstock_no_tensor is for an input that no stage of the rank reads, and for a
! result on other ranks than 0.
! Indices: inputs and outputs are numbered from 1.
! Options: each is 'name=value' or 'name', a flag.
! Errors: without the argument `error` a failure prints its text and stops the
! program, as `stat` does in allocate.
! notes: a unit that notes and warnings are written to; absent: none are.
module penstock
    use, intrinsic :: iso_c_binding
    use penstock_c
    use penstock_arrays, only: penstock_tensor, penstock_no_tensor, &
                               penstock_reversed, to_pointer
    use, intrinsic :: iso_fortran_env, only: error_unit, int64, real64
    implicit none
    private

    integer, parameter, public :: penstock_inputs = 0, &
        penstock_outputs = 1, penstock_parameters = 2, penstock_buffers = 3

    ! Members of enum penstock_status.
    integer, parameter, public :: penstock_ok = 0, penstock_err_nomem = -1, &
        penstock_err_usage = -2, penstock_err_input = -3, &
        penstock_err_unsupported = -4, penstock_err_shape = -5, &
        penstock_err_range = -6, penstock_err_not_found = -7, &
        penstock_err_version = -8, penstock_err_mismatch = -9, &
        penstock_err_config = -10, penstock_err_io = -11, &
        penstock_err_peer = -12, penstock_err_busy = -14, &
        penstock_err_denied = -15, penstock_err_cancelled = -17, &
        penstock_err_internal = -18, penstock_err_damaged = -20, &
        penstock_err_device = -21

    type, public :: penstock_error
        integer :: status = 0
        character(:), allocatable :: id, text, remedy
    end type

    type, public :: penstock_model
        private
        type(c_ptr) :: handle = c_null_ptr
    end type

    type, public :: penstock_session
        private
        type(c_ptr) :: handle = c_null_ptr
    end type

    type, public :: penstock_info
        character(:), allocatable :: name
        character(:), allocatable :: dtype ! float32, int64, bfloat16, bool ...
        integer(int64), allocatable :: shape(:)
        integer :: batch_index ! divided into microbatches; 0: none is
        logical :: trained
    end type

    type, public :: penstock_module
        character(:), allocatable :: name, class
        integer(int64) :: own_parameters, parameters
        integer :: calls
        integer, allocatable :: stages(:) ! they count from 0, as in options
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
        penstock_tensor, penstock_no_tensor, penstock_reversed

    ! Options as texts of C: rows has pointers to the others.
    type :: option_list
        integer(c_size_t) :: n
        character(c_char), allocatable :: names(:, :), values(:, :)
        type(c_option), allocatable :: rows(:)
    end type

contains
    ! --- texts, options, errors ----------------------------------------------

    ! Returns the text with the zero that ends it in C.
    pure function to_c(text) result(chars)
        character(*), intent(in) :: text
        character(c_char) :: chars(len(text) + 1)
        integer :: i

        do i = 1, len(text)
            chars(i) = text(i:i)
        end do
        chars(len(text) + 1) = c_null_char
    end function

    pure function from_c(chars) result(text)
        character(c_char), intent(in) :: chars(:)
        character(:), allocatable :: text
        integer :: i, n

        n = 0
        do while (n < size(chars))
            if (chars(n + 1) == c_null_char) exit
            n = n + 1
        end do
        allocate (character(n) :: text)
        do i = 1, n
            text(i:i) = chars(i)
        end do
    end function

    function from_pointer(text) result(copy)
        type(c_ptr), intent(in) :: text
        character(:), allocatable :: copy
        character(c_char), pointer :: chars(:)

        call c_f_pointer(text, chars, [c_strlen(text)])
        copy = from_c(chars)
    end function

    subroutine finish(code, c, error)
        integer(c_int), intent(in) :: code
        type(c_error), intent(in) :: c
        type(penstock_error), intent(out), optional :: error

        if (present(error)) then
            error%status = code
            if (code == 0) return
            error%id = from_c(c%id)
            error%text = from_c(c%text)
            error%remedy = from_c(c%remedy)
        else if (code /= 0) then
            write (error_unit, '(a)') 'penstock: '//from_c(c%text)//' ['// &
                from_c(c%id)//']', from_c(c%remedy)
            error stop 1
        end if
    end subroutine

    function no_error() result(c)
        type(c_error) :: c

        c%size = c_sizeof(c)
        c%status = 0
        c%id = c_null_char
        c%text = c_null_char
        c%remedy = c_null_char
    end function

    ! Writes a note or warning to a unit, whose number is the value of ctx.
    subroutine write_note(ctx, text) bind(c)
        type(c_ptr), value :: ctx, text

        write (int(transfer(ctx, 0_c_intptr_t)), '(a)') from_pointer(text)
    end subroutine

    subroutine set_notes(notes, message, ctx)
        integer, intent(in), optional :: notes
        type(c_funptr), intent(out) :: message
        type(c_ptr), intent(out) :: ctx

        message = c_null_funptr
        ctx = c_null_ptr
        if (.not. present(notes)) return
        message = c_funloc(write_note)
        ctx = transfer(int(notes, c_intptr_t), ctx)
    end subroutine

    subroutine split_options(list, options)
        type(option_list), intent(out), target :: list
        character(*), intent(in), optional :: options(:)
        integer :: i, at, n

        list%n = 0
        if (present(options)) list%n = size(options)
        n = 0
        if (present(options)) n = len(options) + 4
        allocate (list%names(n, list%n), list%values(n, list%n), &
                  list%rows(list%n + 1))
        do i = 1, int(list%n)
            n = len_trim(options(i))
            at = index(options(i), '=')
            if (at == 0) then
                list%names(:n + 1, i) = to_c(options(i)(:n))
                list%values(:4, i) = to_c('yes')
            else
                list%names(:at, i) = to_c(options(i)(:at - 1))
                list%values(:n - at + 1, i) = to_c(options(i)(at + 1:n))
            end if
            list%rows(i) = c_option(c_loc(list%names(1, i)), &
                                    c_loc(list%values(1, i)))
        end do
    end subroutine

    function penstock_version() result(text)
        character(:), allocatable :: text

        text = from_pointer(c_version())
    end function

    ! --- models --------------------------------------------------------------

    subroutine penstock_open(path, model, options, notes, error)
        character(*), intent(in) :: path
        type(penstock_model), intent(out) :: model
        character(*), intent(in), optional :: options(:)
        integer, intent(in), optional :: notes
        type(penstock_error), intent(out), optional :: error
        type(option_list), target :: list
        type(c_open_config) :: config
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        call split_options(list, options)
        config%size = c_sizeof(config)
        config%options = c_loc(list%rows)
        config%n_options = list%n
        call set_notes(notes, config%message, config%message_ctx)
        code = c_open(to_c(trim(path)), config, model%handle, c)
        if (code /= 0) model%handle = c_null_ptr
        call finish(code, c, error)
    end subroutine

    subroutine penstock_close(model)
        type(penstock_model), intent(inout) :: model

        call c_close(model%handle)
        model%handle = c_null_ptr
    end subroutine

    function penstock_count(model, kind) result(n)
        type(penstock_model), intent(in) :: model
        integer, intent(in) :: kind
        integer :: n

        n = int(c_count(model%handle, int(kind, c_int)))
    end function

    function empty_info() result(c)
        type(c_info) :: c

        c%size = c_sizeof(c)
        c%name = c_null_ptr
        c%shape = c_null_ptr
    end function

    subroutine give_info(c, info)
        type(c_info), intent(in) :: c
        type(penstock_info), intent(out) :: info
        integer(c_int64_t), pointer :: shape(:)
        character(7), parameter :: codes(0:6) = [character(7) :: 'int', &
            'uint', 'float', 'handle', 'bfloat', 'complex', 'bool']
        character(4) :: bits ! those of complex128 are negative in a byte

        info%name = from_pointer(c%name)
        write (bits, '(i0)') iand(int(c%bits), 255)
        info%dtype = 'other'
        if (c%code >= 0 .and. c%code <= 6) info%dtype = trim(codes(c%code))
        if (c%code /= 6) info%dtype = info%dtype//trim(bits)
        allocate (info%shape(c%ndim))
        if (c%ndim > 0) then
            call c_f_pointer(c%shape, shape, [c%ndim])
            info%shape(:) = shape
        end if
        info%batch_index = c%batch_dim + 1
        info%trained = c%trained /= 0
    end subroutine

    ! Inputs and outputs as they were exported.
    subroutine penstock_describe(model, kind, index, info, error)
        type(penstock_model), intent(in) :: model
        integer, intent(in) :: kind, index
        type(penstock_info), intent(out) :: info
        type(penstock_error), intent(out), optional :: error
        type(c_info) :: found
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        found = empty_info()
        code = c_describe(model%handle, int(kind, c_int), &
                          int(index - 1, c_size_t), found, c)
        if (code == 0) call give_info(found, info)
        call finish(code, c, error)
    end subroutine

    function penstock_module_count(model) result(n)
        type(penstock_model), intent(in) :: model
        integer :: n

        n = int(c_module_count(model%handle))
    end function

    subroutine penstock_describe_module(model, index, module, error)
        type(penstock_model), intent(in) :: model
        integer, intent(in) :: index
        type(penstock_module), intent(out) :: module
        type(penstock_error), intent(out), optional :: error
        integer(c_int32_t), pointer :: stages(:)
        type(c_module) :: found
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        found%size = c_sizeof(found)
        code = c_describe_module(model%handle, int(index - 1, c_size_t), &
                                 found, c)
        if (code == 0) then
            call c_f_pointer(found%stages, stages, [found%n_stages])
            module%name = from_pointer(found%name)
            module%class = from_pointer(found%type)
            module%own_parameters = found%own_parameters
            module%parameters = found%parameters
            module%calls = found%calls
            module%stages = stages
        end if
        call finish(code, c, error)
    end subroutine

    ! index: 0 if there is none and `error` is present.
    subroutine penstock_find(model, kind, name, index, error)
        type(penstock_model), intent(in) :: model
        integer, intent(in) :: kind
        character(*), intent(in) :: name
        integer, intent(out) :: index
        type(penstock_error), intent(out), optional :: error
        integer(c_size_t) :: found
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        code = c_find(model%handle, int(kind, c_int), to_c(trim(name)), &
                      found, c)
        index = 0
        if (code == 0) index = int(found) + 1
        call finish(code, c, error)
    end subroutine

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
            code = c_session_new(model%handle, config, session%handle, c)
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

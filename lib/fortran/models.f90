! SPDX-License-Identifier: Apache-2.0
!
! Models, and what all calls share: errors, options, notes, descriptions.
module penstock_models
    use, intrinsic :: iso_c_binding
    use penstock_c
    use, intrinsic :: iso_fortran_env, only: error_unit, int64
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

    public :: penstock_version, penstock_open, penstock_close, penstock_count, &
        penstock_describe, penstock_find, penstock_module_count, &
        penstock_describe_module

    ! For the modules that follow.
    public :: model_handle, to_c, finish, no_error, set_notes, option_list, &
        split_options, empty_info, give_info, to_dtype

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

    ! Returns the penstock_model of C.
    function model_handle(model) result(handle)
        type(penstock_model), intent(in) :: model
        type(c_ptr) :: handle

        handle = model%handle
    end function

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

    ! Returns the name of a DLDataType.
    function to_dtype(code, bits) result(dtype)
        integer(c_int8_t), intent(in) :: code, bits
        character(:), allocatable :: dtype
        character(7), parameter :: codes(0:6) = [character(7) :: 'int', &
            'uint', 'float', 'handle', 'bfloat', 'complex', 'bool']
        character(4) :: digits ! those of complex128 are negative in a byte

        write (digits, '(i0)') iand(int(bits), 255)
        dtype = 'other'
        if (code >= 0 .and. code <= 6) dtype = trim(codes(code))
        if (code /= 6) dtype = dtype//trim(digits)
    end function

    subroutine give_info(c, info)
        type(c_info), intent(in) :: c
        type(penstock_info), intent(out) :: info
        integer(c_int64_t), pointer :: shape(:)

        info%name = from_pointer(c%name)
        info%dtype = to_dtype(c%code, c%bits)
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
end module

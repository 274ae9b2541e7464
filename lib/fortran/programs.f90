! SPDX-License-Identifier: Apache-2.0
!
! Programs on operands that share memory.
module penstock_programs
    use, intrinsic :: iso_c_binding
    use penstock_c
    use penstock_arrays
    use penstock_models
    use, intrinsic :: iso_fortran_env, only: int64
    implicit none
    private

    integer, parameter :: max_name = 256
    integer(c_int64_t), parameter :: read_only_flag = 1

    type, public :: penstock_program
        private
        type(c_ptr) :: handle = c_null_ptr
    end type

    type, public :: penstock_operand
        private
        character(max_name) :: name = '', same_as = ''
        type(penstock_tensor) :: tensor, storage
        logical :: has_storage = .false., read_only = .false.
    end type

    interface penstock_operand
        module procedure make_operand
    end interface

    type, public :: penstock_call_info
        integer :: results, bases, plans
        integer(int64) :: copied, passed, in_place
        logical :: is_new
    end type

    ! A result, operand or gradient after a call, until the next one. values:
    ! the first element, c_null_ptr for an operand that set_() has moved;
    ! strides count elements. operand: the number, in the list of the call, of
    ! an operand with the storage that it is a view of; 0: it is in memory of
    ! the program, which must not be changed.
    type, public :: penstock_result_info
        type(c_ptr) :: values
        character(:), allocatable :: dtype
        integer(int64), allocatable :: shape(:), strides(:)
        integer :: operand
        logical :: moved
        type(c_tensor), private :: tensor
    end type

    public :: penstock_program_open, penstock_program_close, penstock_call, &
        penstock_result, penstock_result_operand, penstock_result_gradient, &
        penstock_copy_result

contains
    ! text: JSON (docs/library.md, "Programs").
    subroutine penstock_program_open(text, program, options, notes, error)
        character(*), intent(in) :: text
        type(penstock_program), intent(out) :: program
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
        code = c_program_open(to_c(text), len(text, kind=c_size_t), config, &
                              program%handle, c)
        if (code /= 0) program%handle = c_null_ptr
        call finish(code, c, error)
    end subroutine

    subroutine penstock_program_close(program)
        type(penstock_program), intent(inout) :: program

        call c_program_close(program%handle)
        program%handle = c_null_ptr
    end subroutine

    ! The operand `name` of a call. storage: the array that the tensor is a view
    ! of; absent: the memory that this operand and those that overlap it cover.
    ! same_as: the name of an operand before it in the list; both are one
    ! tensor, that of the first. read_only: the program must not write it.
    function make_operand(name, tensor, storage, same_as, read_only) &
        result(operand)
        character(*), intent(in) :: name
        type(penstock_tensor), intent(in), target :: tensor
        type(penstock_tensor), intent(in), optional, target :: storage
        character(*), intent(in), optional :: same_as
        logical, intent(in), optional :: read_only
        type(penstock_operand) :: operand

        operand%name = name
        operand%tensor = tensor
        operand%has_storage = present(storage)
        if (present(storage)) operand%storage = storage
        if (present(same_as)) operand%same_as = same_as
        if (present(read_only)) operand%read_only = read_only
    end function

    ! Runs the program. operands: all that it names, in any order. Their arrays
    ! must stay in place as long as results are used.
    subroutine penstock_call(program, operands, info, error)
        type(penstock_program), intent(in) :: program
        type(penstock_operand), intent(in), target :: operands(:)
        type(penstock_call_info), intent(out), optional :: info
        type(penstock_error), intent(out), optional :: error
        type(c_tensor), target :: dl(size(operands))
        type(c_operand) :: rows(size(operands))
        character(c_char), target :: names(max_name + 1, size(operands))
        integer(c_int64_t) :: flags(size(operands))
        type(c_call_info) :: c_info
        type(c_error) :: c
        integer(c_int) :: code
        integer :: i, k

        c = no_error()
        flags = 0
        do i = 1, size(operands)
            names(:, i) = to_c(operands(i)%name)
            names(len_trim(operands(i)%name) + 1, i) = c_null_char
            rows(i)%name = c_loc(names(1, i))
            rows(i)%tensor = to_pointer(operands(i)%tensor, dl(i))
            rows(i)%storage = c_null_ptr
            rows(i)%storage_bytes = 0
            if (operands(i)%has_storage) call tensor_memory( &
                operands(i)%storage, rows(i)%storage, rows(i)%storage_bytes)
            if (operands(i)%read_only) flags(i) = read_only_flag
            if (operands(i)%same_as == '') cycle
            rows(i)%tensor = c_null_ptr
            do k = 1, i - 1
                if (operands(k)%name /= operands(i)%same_as) cycle
                rows(i) = c_operand(rows(i)%name, rows(k)%tensor, &
                                    rows(k)%storage, rows(k)%storage_bytes)
            end do
        end do
        c_info%size = c_sizeof(c_info)
        code = c_call_flags(program%handle, rows, flags, &
                            size(operands, kind=c_size_t), c_info, c)
        if (code == 0 .and. present(info)) info = penstock_call_info( &
            int(c_info%results), int(c_info%bases), int(c_info%plans), &
            c_info%copied, c_info%passed, c_info%in_place, c_info%is_new /= 0)
        call finish(code, c, error)
    end subroutine

    function no_result() result(r)
        type(c_result) :: r

        r%size = c_sizeof(r)
    end function

    subroutine give_result(code, r, found)
        integer(c_int), intent(in) :: code
        type(c_result), intent(in) :: r
        type(penstock_result_info), intent(out) :: found
        integer(c_int64_t), pointer :: numbers(:)

        found%values = c_null_ptr
        found%operand = 0
        found%moved = .false.
        if (code /= 0) return
        found%tensor = r%tensor
        found%dtype = to_dtype(r%tensor%code, r%tensor%bits)
        call c_f_pointer(r%tensor%shape, numbers, [r%tensor%ndim])
        found%shape = numbers
        call c_f_pointer(r%tensor%strides, numbers, [r%tensor%ndim])
        found%strides = numbers
        if (c_associated(r%tensor%data)) &
            found%values = moved(r%tensor%data, r%tensor%byte_offset)
        found%operand = r%operand + 1
        found%moved = r%moved /= 0
    end subroutine

    ! index: the place in "returns".
    subroutine penstock_result(program, index, found, error)
        type(penstock_program), intent(in) :: program
        integer, intent(in) :: index
        type(penstock_result_info), intent(out) :: found
        type(penstock_error), intent(out), optional :: error
        type(c_result) :: r
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        r = no_result()
        code = c_result_at(program%handle, int(index - 1, c_size_t), r, c)
        call give_result(code, r, found)
        call finish(code, c, error)
    end subroutine

    subroutine penstock_result_operand(program, name, found, error)
        type(penstock_program), intent(in) :: program
        character(*), intent(in) :: name
        type(penstock_result_info), intent(out) :: found
        type(penstock_error), intent(out), optional :: error
        type(c_result) :: r
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        r = no_result()
        code = c_result_operand(program%handle, to_c(trim(name)), r, c)
        call give_result(code, r, found)
        call finish(code, c, error)
    end subroutine

    subroutine penstock_result_gradient(program, name, found, error)
        type(penstock_program), intent(in) :: program
        character(*), intent(in) :: name
        type(penstock_result_info), intent(out) :: found
        type(penstock_error), intent(out), optional :: error
        type(c_result) :: r
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        r = no_result()
        code = c_result_gradient(program%handle, to_c(trim(name)), r, c)
        call give_result(code, r, found)
        call finish(code, c, error)
    end subroutine

    ! Copies the elements of a result, whose strides may be any, to dst, an
    ! array of its type and shape. dst is a target, since compilers take memory
    ! that is reached through other arguments with intent(in) for unchanged.
    subroutine penstock_copy_result(found, dst, error)
        type(penstock_result_info), intent(in) :: found
        type(penstock_tensor), intent(in), target :: dst
        type(penstock_error), intent(out), optional :: error
        character(*), parameter :: text = &
            'the array has another type or shape than the result, or the '// &
            'result has no memory', remedy = &
            'Give an array with the dtype and shape of penstock_result_info.', &
            id = 'library.tensor'
        type(c_error) :: c
        integer(c_int) :: code

        c = no_error()
        code = 0
        if (c_associated(found%values)) then
            if (.not. copy_elements(found%tensor, dst)) code = penstock_err_shape
        else
            code = penstock_err_shape
        end if
        if (code /= 0) then
            c%id(:len(id) + 1) = to_c(id)
            c%text(:len(text) + 1) = to_c(text)
            c%remedy(:len(remedy) + 1) = to_c(remedy)
        end if
        call finish(code, c, error)
    end subroutine
end module

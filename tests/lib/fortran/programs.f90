! SPDX-License-Identifier: Apache-2.0
!
! Programs on arrays that share memory (penstock_call). Expected numbers are
! those that the same lines gave in PyTorch 2.13, on tensors with the strides of
! these arrays.
module checks
    use penstock
    use, intrinsic :: iso_c_binding, only: c_associated, c_f_pointer, c_loc
    use, intrinsic :: iso_fortran_env
    implicit none
    character(*), parameter :: newline = new_line('a')

contains
    subroutine require(is_true, what)
        logical, intent(in) :: is_true
        character(*), intent(in) :: what

        if (is_true) return
        write (error_unit, '(a)') 'wrong: '//what
        error stop 1
    end subroutine

    ! Two windows of one array: what is written to one, the other one sees.
    subroutine windows
        real(real32), target :: x(6)
        real(real32), target :: sums(4)
        real(real32), pointer :: part(:)
        type(penstock_program) :: program
        type(penstock_call_info) :: info
        type(penstock_result_info) :: found
        integer :: turn

        call penstock_program_open( &
            '{"tensors": {"a": {"dtype": "float32"}, "b": {}},'// &
            ' "args": ["a", "b"], "ops": ['// &
            ' {"op": "aten.mul_.Scalar", "args": ["%a", 10]},'// &
            ' {"op": "aten.add.Tensor", "args": ["%a", "%b"],'// &
            '  "out": ["sum"]},'// &
            ' {"op": "aten.slice.Tensor", "args": ["%b", 0, 1, 3],'// &
            '  "out": ["part"]}], "returns": ["sum", "part"]}', program)
        do turn = 1, 2
            x = [1, 2, 3, 4, 5, 6]
            call penstock_call(program, [ &
                penstock_operand('b', penstock_tensor(x(3:6))), &
                penstock_operand('a', penstock_tensor(x(1:4)))], info)
            call require(info%results == 2 .and. info%bases == 1 .and. &
                         info%copied == 16 .and. info%plans == 1 .and. &
                         (info%is_new .eqv. turn == 1), 'info')
            call require(all(abs(x - [10., 20., 30., 40., 5., 6.]) <= 0), 'a is written')
            call penstock_result(program, 1, found)
            call require(found%operand == 0 .and. found%dtype == 'float32' &
                         .and. all(found%shape == [4]), 'the sum is new')
            call penstock_copy_result(found, penstock_tensor(sums))
            call require(all(abs(sums - [40., 60., 35., 46.]) <= 0), 'sum')
            call penstock_result(program, 2, found)
            call require(found%operand == 2, 'part is in the memory')
            call c_f_pointer(found%values, part, found%shape)
            call require(all(abs(part - [40., 5.]) <= 0), 'part')
            call require(c_associated(found%values, c_loc(x(4))), 'its place')
        end do
        call penstock_program_close(program)
    end subroutine

    ! A matrix in Fortran's order, its second row, and columns by as_strided(),
    ! which reaches the whole storage.
    subroutine rows_and_columns
        real(real64), target :: m(3, 4), row(4), back(4, 3), wide(2, 2)
        type(penstock_program) :: program
        type(penstock_call_info) :: info
        type(penstock_result_info) :: found
        type(penstock_error) :: error
        integer :: i

        m = reshape([(real(i, real64), i = 1, 12)], [3, 4])
        call penstock_program_open( &
            '{"tensors": {"m": {}, "row": {}}, "args": ["m", "row"],'// &
            ' "ops": [{"op": "aten.add_.Scalar", "args": ["%row", 100]},'// &
            ' {"op": "aten.t", "args": ["%m"], "out": ["back"]},'// &
            ' {"op": "aten.as_strided", "args": ["%row", [2, 2], [1, 6], 0],'// &
            '  "out": ["wide"]},'// &
            ' {"op": "aten.mul_.Scalar", "args": ["%wide", 2]}],'// &
            ' "returns": ["back", "wide"]}', program)
        call penstock_call(program, [ &
            penstock_operand('m', penstock_tensor(m), penstock_tensor(m)), &
            penstock_operand('row', penstock_tensor(m(2, :)), &
                             storage=penstock_tensor(m))], info)
        call require(all(nint(m) == reshape([2, 204, 3, 4, 105, 6, 14, 216, &
                                             9, 10, 111, 12], [3, 4])), &
                     'm is written')
        call penstock_result(program, 1, found)
        call require(found%operand == 1 .and. all(found%shape == [4, 3]) .and. &
                     all(found%strides == [3, 1]), 'back is m, transposed')
        call penstock_copy_result(found, penstock_tensor(back))
        call require(all(abs(back - transpose(m)) <= 0), 'back')
        call penstock_result(program, 2, found)
        call require(found%operand == 1 .and. all(found%strides == [1, 6]), &
                     'wide is in the memory of m')
        call penstock_copy_result(found, penstock_tensor(wide))
        call require(all(nint(wide) == reshape([2, 204, 14, 216], [2, 2])), &
                     'wide')
        call penstock_copy_result(found, penstock_tensor(row), error)
        call require(error%status == penstock_err_shape .and. &
                     error%id == 'library.tensor', 'another shape')
        ! Without its storage the row reaches no further than itself.
        row = 1
        call penstock_call(program, [ &
            penstock_operand('m', penstock_tensor(m)), &
            penstock_operand('row', penstock_tensor(row))], error=error)
        call require(error%text == 'views of "row" reach the bytes 0 to 63 '// &
                     'of its storage, which has 32', 'wide leaves the row')
        call require(all(abs(row - 1) <= 0), 'nothing was written')
        call penstock_program_close(program)
    end subroutine

    ! One tensor with two names, whose geometry changes, and two equal tensors.
    subroutine names
        integer(int32), target :: a(2, 3)
        type(penstock_program) :: program
        type(penstock_result_info) :: found

        a = 0
        call penstock_program_open( &
            '{"tensors": {"x": {}, "y": {}}, "args": ["x", "y"],'// &
            ' "ops": [{"op": "aten.t_", "args": ["%x"]}], "returns": []}', &
            program)
        call penstock_call(program, [ &
            penstock_operand('x', penstock_tensor(a)), &
            penstock_operand('y', penstock_tensor(a), same_as='x')])
        call penstock_result_operand(program, 'y', found)
        call require(found%moved .and. all(found%shape == [3, 2]), 'same_as')
        call penstock_call(program, [ &
            penstock_operand('x', penstock_tensor(a)), &
            penstock_operand('y', penstock_tensor(a))])
        call penstock_result_operand(program, 'y', found)
        call require(.not. found%moved .and. all(found%shape == [2, 3]) .and. &
                     all(found%strides == [1, 2]), 'two tensors')
        call penstock_result_operand(program, 'x', found)
        call require(all(found%shape == [3, 2]), 'x')
        call penstock_program_close(program)
    end subroutine

    subroutine refuses
        real(real32), target :: a(3)
        type(penstock_program) :: program
        type(penstock_error) :: error

        a = 1
        call penstock_program_open('{"tensors": {"a": {}}, "args": ["a"],'// &
            newline//'"ops": [{"op": "aten.zero_", "args": ["%a"]}],'// &
            newline//'"returns": []}', program)
        call penstock_call(program, [penstock_operand('a', &
            penstock_tensor(a), read_only=.true.)], error=error)
        call require(index(error%text, 'E_READ_ONLY') > 0, 'read-only')
        call penstock_call(program, [penstock_operand('b', &
            penstock_tensor(a))], error=error)
        call require(error%status /= 0, 'no such operand')
        call penstock_call(program, [penstock_operand('a', &
            penstock_tensor(a), same_as='z')], error=error)
        call require(error%status /= 0, 'the same as nothing')
        call penstock_call(program, [penstock_operand('a', &
            penstock_no_tensor)], error=error)
        call require(error%status /= 0, 'no tensor')
        call require(all(abs(a - 1) <= 0), 'nothing was written')
        call penstock_call(program, [penstock_operand('a', &
            penstock_tensor(a(3:1:-2)), read_only=.false.)], error=error)
        call require(error%status /= 0, 'a negative stride')
        call penstock_call(program, [penstock_operand('a', &
            penstock_tensor(a(1:3:2)), read_only=.false.)])
        call require(all(abs(a - [0., 1., 0.]) <= 0), 'a section')
        call penstock_program_close(program)
        call penstock_program_open('{"ops": ', program, error=error)
        call require(error%status == penstock_err_input, 'no JSON')
    end subroutine

    ! sum((w * x)^2) with two leaves of one array; the optimizer's step.
    subroutine gradients
        real(real32), target :: both(4), grad(2)
        type(penstock_program) :: program
        type(penstock_result_info) :: found

        both = [1, 2, 3, 4]
        call penstock_program_open( &
            '{"tensors": {"w": {"requires_grad": true}, "x": {}},'// &
            ' "args": ["w", "x"], "ops": ['// &
            ' {"op": "aten.mul.Tensor", "args": ["%w", "%x"], "out": ["p"]},'// &
            ' {"op": "aten.mul.Tensor", "args": ["%p", "%p"], "out": ["s"]},'// &
            ' {"op": "aten.sum", "args": ["%s"], "out": ["loss"]}],'// &
            ' "returns": ["loss"], "backward": true}', program, &
            [character(16) :: 'optimizer=sgd', 'lr=0.0625'])
        call penstock_call(program, [ &
            penstock_operand('w', penstock_tensor(both(1:3:2))), &
            penstock_operand('x', penstock_tensor(both(2:4:2)))])
        call penstock_result_gradient(program, 'w', found)
        call penstock_copy_result(found, penstock_tensor(grad))
        call require(all(abs(grad - [8., 96.]) <= 0), 'gradient')
        call require(all(abs(both - [.5, 2., -3., 4.]) <= 0), 'the step')
        call penstock_program_close(program)
    end subroutine

    ! Arrays of more ranks than models in other tests have.
    subroutine ranks
        real(real32), target :: a(2, 1, 3, 2, 2), total
        complex(real32), target :: c(2, 1, 1, 2, 1, 2)
        integer(int64), target :: b(2, 1, 2, 1, 2, 1, 3), sums(2, 3)
        type(penstock_program) :: program
        type(penstock_result_info) :: found
        integer :: i

        a = reshape([(real(i), i = 1, 24)], shape(a))
        b = reshape([(int(i, int64), i = 1, 24)], shape(b))
        c = reshape([(cmplx(i, -i), i = 1, 8)], shape(c))
        total = 0
        call penstock_program_open( &
            '{"tensors": {"a": {}, "b": {}, "c": {}},'// &
            ' "args": ["a", "b", "c"], "ops": ['// &
            ' {"op": "aten.select.int", "args": ["%a", 2, 1],'// &
            '  "out": ["part"]},'// &
            ' {"op": "aten.sum", "args": ["%part"], "out": ["total"]},'// &
            ' {"op": "aten.sum.dim_IntList",'// &
            '  "args": ["%b", [0, 1, 3, 4, 5]], "out": ["sums"]},'// &
            ' {"op": "aten.select.int", "args": ["%c", 5, 1],'// &
            '  "out": ["last"]},'// &
            ' {"op": "aten.mul_.Scalar", "args": ["%last", 3]}],'// &
            ' "returns": ["total", "sums"]}', program)
        call penstock_call(program, [ &
            penstock_operand('a', penstock_tensor(a)), &
            penstock_operand('b', penstock_tensor(b)), &
            penstock_operand('c', penstock_tensor(c))])
        call penstock_result(program, 1, found)
        call penstock_copy_result(found, penstock_tensor(total))
        call require(abs(total - 100) <= 0, 'total')
        call penstock_result(program, 2, found)
        call penstock_copy_result(found, penstock_tensor(sums))
        call require(all(sums(1, :) == [14, 46, 78]) .and. &
                     all(sums(2, :) == [22, 54, 86]), 'sums')
        do i = 1, 2
            call require(all(abs(c(:, 1, 1, i, 1, 2) - 3*[ &
                cmplx(2*i + 3, -2*i - 3), cmplx(2*i + 4, -2*i - 4)]) <= 0), 'c')
            call require(all(abs(c(:, 1, 1, i, 1, 1) - [ &
                cmplx(2*i - 1, 1 - 2*i), cmplx(2*i, -2*i)]) <= 0), &
                         'the rest of c')
        end do
        call penstock_program_close(program)
    end subroutine
end module

program programs
    use checks
    implicit none

    call windows
    call rows_and_columns
    call names
    call refuses
    call gradients
    call ranks
end program

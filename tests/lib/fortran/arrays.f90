! SPDX-License-Identifier: Apache-2.0
!
! The module penstock on arrays of all types and ranks: fortran ARRAYS.pt2
! FOLDER. The model is that of tests/golden/make/make_arrays.py, which printed
! PyTorch's losses, scale and weight.
module rows
    use, intrinsic :: iso_c_binding, only: c_associated, c_f_pointer, c_ptr
    use, intrinsic :: iso_fortran_env
    implicit none
    integer, parameter :: n = 4 ! rows of a step: two microbatches
    real(real32), target :: a(n, 3, 4, 5)
    real(real64), target :: b(n, 3, 4)
    integer(int32), target :: c(n, 3)
    integer(int64), target :: d(n)

contains
    ! The rows of a microbatch; the number of the step is that of the checkpoint
    ! and one more.
    subroutine write_rows(step, microbatch, input, values, shape, failed)
        integer(int64), intent(in) :: step
        integer, intent(in) :: microbatch, input
        type(c_ptr), intent(in) :: values
        integer(int64), intent(in) :: shape(:)
        logical, intent(inout) :: failed
        real(real32), pointer :: to_a(:, :, :, :)
        real(real64), pointer :: to_b(:, :, :)
        integer(int32), pointer :: to_c(:, :)
        integer(int64), pointer :: to_d(:)
        integer :: first, last, row

        first = (microbatch - 1)*int(shape(1)) + 1
        last = first + int(shape(1)) - 1
        failed = step < 2 .or. step > 3 .or. last > n
        if (failed) return
        select case (input)
        case (1)
            call c_f_pointer(values, to_a, shape(4:1:-1))
            do row = first, last
                to_a(:, :, :, row - first + 1) = &
                    reshape(a(row, :, :, :), [5, 4, 3], order=[3, 2, 1])
            end do
        case (2)
            call c_f_pointer(values, to_b, shape(3:1:-1))
            do row = first, last
                to_b(:, :, row - first + 1) = transpose(b(row, :, :))
            end do
        case (3)
            call c_f_pointer(values, to_c, shape(2:1:-1))
            to_c = transpose(c(first:last, :))
        case (4)
            call c_f_pointer(values, to_d, shape)
            to_d = d(first:last)
        end select
    end subroutine

    subroutine broken(step, microbatch, input, values, shape, failed)
        integer(int64), intent(in) :: step
        integer, intent(in) :: microbatch, input
        type(c_ptr), intent(in) :: values
        integer(int64), intent(in) :: shape(:)
        logical, intent(inout) :: failed

        failed = step >= 0 .and. microbatch > 0 .and. input > 0 .and. &
            c_associated(values) .and. size(shape) > 0
    end subroutine
end module

program fortran
    use, intrinsic :: iso_fortran_env
    use penstock
    use rows
    implicit none
    real(real64), parameter :: by_pytorch(4) = [35.5286979675293_real64, &
        32.007110595703125_real64, 28.86567497253418_real64, &
        26.058847427368164_real64]
    character(24), parameter :: options(6) = [character(24) :: &
        'microbatches=2', 'optimizer=sgd', 'lr=1e-3', 'threads=1', 'ranks=2', &
        'input-gradients=a']
    real(real32), target :: wide(2*n, 3, 9, 5)
    real(real64), target :: turned(4, 3, n)
    type(penstock_model) :: model
    type(penstock_session) :: session
    type(penstock_tensor) :: inputs(4)
    type(penstock_error) :: error
    type(penstock_step) :: step
    character(4096) :: path, folder
    real(real64) :: losses(4)
    real(real32) :: weight_after(3, 4, 5)
    real(real32), target :: weight_now(3, 4, 5)
    type(penstock_copies) :: copies
    integer :: k

    call get_command_argument(1, path)
    call get_command_argument(2, folder)
    call fill()
    call penstock_open(path, model, ['stages=2'])
    call descriptions()
    call penstock_session_new(model, session, options)
    call check(penstock_session_bytes(session) > 0, 'bytes')
    inputs = [penstock_tensor(a), penstock_tensor(b), penstock_tensor(c), &
              penstock_tensor(d)]
    call outputs()
    call penstock_session_copies(session, copies)
    call check(copies%in_place == 0 .and. copies%written > 0, 'copies')
    do k = 1, 4
        if (k == 2) then ! the same values by other strides, and in reverse
            wide(n:1:-1, :, 2:8:2, :) = a
            turned = reshape(b, shape(turned), order=[3, 2, 1])
            inputs(1) = penstock_tensor(wide(n:1:-1, :, 2:8:2, :))
            inputs(2) = penstock_reversed(penstock_tensor(turned))
        end if
        if (k == 3) then ! the same step in two calls
            call penstock_forward_backward(session, inputs, step)
            call check(step%step == 2 .and. .not. step%applied, 'half a step')
            call gradients()
            call penstock_update(session, step)
        else
            call penstock_train_step(session, inputs, step)
        end if
        call check(step%step == k .and. step%applied, 'a step')
        call check(abs(step%lr - 1e-3_real64) < 1e-12_real64, 'its lr')
        losses(k) = step%loss
        call check(abs(step%loss / by_pytorch(k) - 1) < 1e-6_real64, 'a loss')
        if (k == 2) call penstock_save(session, trim(folder)//'/checkpoint')
        if (k == 3) then
            call penstock_get(session, 'weight', penstock_tensor(weight_now))
            call check(maxval(abs(weight_now - weight_after)) < 1e-6, 'update')
        end if
    end do
    call state()
    call errors()
    call penstock_session_free(session)
    call penstock_close(model)

contains
    subroutine check(good, what)
        logical, intent(in) :: good
        character(*), intent(in) :: what

        if (good) return
        write (error_unit, '(a)') 'fortran: wrong: '//what
        error stop 1
    end subroutine

    ! make_arrays.inputs
    subroutine fill()
        integer :: i1, i2, i3, i4

        do i1 = 1, n
            d(i1) = i1
            do i2 = 1, 3
                c(i1, i2) = i1 + 2*i2
                do i3 = 1, 4
                    b(i1, i2, i3) = (i1 + 2*i2 + 3*i3) / 16.0_real64
                    do i4 = 1, 5
                        a(i1, i2, i3, i4) = (i1 + 2*i2 + 3*i3 + 4*i4) / 16.0
                    end do
                end do
            end do
        end do
    end subroutine

    subroutine descriptions()
        type(penstock_info) :: info
        type(penstock_module) :: module
        integer :: at

        call check(penstock_module_count(model) == 1, 'modules')
        call penstock_describe_module(model, 1, module)
        call check(module%name == '' .and. module%class == '__main__.Arrays' &
                   .and. module%own_parameters == 61 .and. &
                   module%parameters == 61 .and. module%calls == 1 .and. &
                   all(module%stages == [0]), 'a module')
        call penstock_describe_module(model, 2, module, error)
        call check(error%id == 'library.argument', 'a second module')
        call check(penstock_count(model, penstock_inputs) == 4, 'inputs')
        call check(penstock_count(model, penstock_buffers) == 4, 'buffers')
        call penstock_describe(model, penstock_inputs, 2, info)
        call check(info%name == 'b' .and. info%dtype == 'float64', 'dtype')
        call check(all(info%shape == [2, 3, 4]), 'shape')
        call check(info%batch_index == 1 .and. .not. info%trained, 'batch')
        call penstock_find(model, penstock_parameters, 'scale', at)
        call penstock_describe(model, penstock_parameters, at, info)
        call check(info%name == 'scale' .and. size(info%shape) == 0, 'scale')
        call check(info%batch_index == 0 .and. info%trained, 'trained')
        call penstock_find(model, penstock_parameters, 'scales', at, error)
        call check(at == 0 .and. error%status == penstock_err_not_found .and. &
                   error%id == 'library.name', 'a name that is not there')
        call check(penstock_version() == '0.1.0', 'version')
    end subroutine

    ! Every output is an input and the decimal digits of the indices.
    subroutine outputs()
        real(real32), target :: all_a(n, 3, 4, 5)
        real(real64), target :: all_b(4, 3, n)
        integer(int32), target :: all_c(2*n, 6)
        integer(int64), target :: all_d(n)
        type(penstock_info) :: info
        real(real64) :: loss
        integer :: i2, i3, i4

        call penstock_forward(session, inputs, loss)
        call check(abs(loss / by_pytorch(1) - 1) < 1e-6_real64, 'forward')
        call penstock_session_describe(session, penstock_outputs, 2, info)
        call check(all(info%shape == shape(all_a)), 'shape of an output')
        all_c = -1
        call penstock_output(session, 2, penstock_tensor(all_a))
        call penstock_output(session, 3, &
                             penstock_reversed(penstock_tensor(all_b)))
        call penstock_output(session, 4, penstock_tensor(all_c(::2, 6:1:-2)))
        call penstock_output(session, 5, penstock_tensor(all_d))
        call check(all(all_d == d), 'd')
        do i2 = 1, 3
            call check(all(all_c(::2, 8 - 2*i2) == c(:, i2) + i2 - 1), 'c')
            do i3 = 1, 4
                call check(all(abs(all_b(i3, i2, :) - b(:, i2, i3) - &
                               10*(i2 - 1) - i3 + 1) <= 0), 'b')
                do i4 = 1, 5
                    call check(all(abs(all_a(:, i2, i3, i4) - &
                                   a(:, i2, i3, i4) - 100*(i2 - 1) - &
                                   10*(i3 - 1) - i4 + 1) <= 0), 'a')
                end do
            end do
        end do
        call check(all(all_c(2::2, :) == -1) .and. all(all_c(:, 1::2) == -1), &
                   'gaps of a section')
    end subroutine

    ! The update of sgd is lr times the gradient.
    subroutine gradients()
        real(real32), target :: grad(3, 4, 5), old(3, 4, 5), set(3, 4, 5), &
            of_a(n, 3, 4, 5)
        real(real64) :: loss
        type(penstock_error) :: error

        call penstock_gradient(session, 'weight', penstock_tensor(grad))
        call check(maxval(abs(grad)) > 0, 'a gradient')
        set = 2*grad
        call penstock_set_gradient(session, 'weight', penstock_tensor(set))
        set = -grad
        call penstock_gradient(session, 'weight', penstock_tensor(old))
        call check(all(abs(old - 2*grad) <= 0), 'a gradient that was set')
        call penstock_set_gradient(session, 'weight', penstock_tensor(set), &
                                   add=.true.)
        call penstock_gradient(session, 'weight', penstock_tensor(old))
        call check(all(abs(old - grad) <= 0), 'what was added to it')
        call penstock_set_gradient(session, 'weight', &
                                   penstock_tensor(set(1:2, :, :)), error=error)
        call check(error%id == 'library.tensor', 'a part of a gradient')
        call penstock_get(session, 'weight', penstock_tensor(old))
        call penstock_input_gradient(session, 1, penstock_tensor(of_a))
        call check(maxval(abs(of_a)) > 0, 'a gradient of an input')
        call penstock_input_gradient(session, 2, penstock_tensor(of_a), error)
        call check(error%id == 'library.gradient', 'not wanted')
        call penstock_evaluate(session, inputs, loss)
        call check(abs(loss / by_pytorch(3) - 1) < 1e-6_real64, 'evaluate')
        weight_after = old - 1e-3*grad
    end subroutine

    subroutine state()
        real(real32), target :: weight(3, 4, 5), other(3, 4, 5), scale, old
        integer(int64) :: done
        type(penstock_error) :: error

        call penstock_get(session, 'weight', penstock_tensor(weight))
        call check(abs(weight(3, 1, 2) - .6808227) < 1e-6, 'weight')
        call penstock_get(session, 'scale', penstock_tensor(old))
        scale = 8
        call penstock_set(session, 'scale', penstock_tensor(scale))
        scale = 0
        call penstock_get(session, 'scale', penstock_tensor(scale))
        call check(abs(old - .2795022) < 1e-6, 'scale')
        call check(abs(scale - 8) <= 0, 'scale that was set')
        call penstock_load(session, trim(folder)//'/checkpoint', done)
        call check(done == 2, 'load')
        call penstock_train_step_fill(session, broken, step, error)
        call check(error%id == 'library.callback', 'a callback that fails')
        call penstock_train_step_fill(session, write_rows, step)
        call check(abs(step%loss - losses(3)) <= 0, 'the same loss again')
        call penstock_forward_backward_fill(session, broken, step, error)
        call check(error%id == 'library.callback', 'a callback that fails')
        call penstock_forward_backward_fill(session, write_rows, step)
        call check(step%step == 3 .and. .not. step%applied, 'half a step')
        call penstock_update(session, step)
        call check(abs(step%loss - losses(4)) <= 0, 'the same loss again')
        call penstock_get(session, 'weight', penstock_tensor(other))
        call check(all(abs(other - weight) <= 0), 'the same weight again')
    end subroutine

    subroutine errors()
        call penstock_train_step(session, [inputs(1:3), inputs(1)], step, error)
        call check(error%status == penstock_err_shape .and. &
                   error%id == 'library.tensor' .and. &
                   index(error%text, "'d'") > 0 .and. &
                   len(error%remedy) > 0, 'a wrong tensor')
        call penstock_train_step(session, [inputs(1:3), penstock_no_tensor], &
                                 step, error)
        call check(error%status == penstock_err_shape, 'no tensor')
        call penstock_train_step(session, inputs, step, error)
        call check(error%status == penstock_ok .and. step%step == 5, 'a step')
        call check(penstock_session_count(session, penstock_parameters) == 2, &
                   'parameters')
        call penstock_swap(session, 'nobody', 'nowhere.pt2', ['state=keep'], &
                           error)
        call check(error%id == 'file.missing' .or. &
                   error%id == 'module.unknown', 'swap')
        call penstock_session_free(session)
        call penstock_session_new(model, session, ['lr'], error=error)
        call check(error%status == penstock_err_usage, 'a flag')
        call penstock_session_new(model, session, ['data=x'], error=error)
        call check(error%id == 'library.option', 'an option of jobs')
        call penstock_update(session, step, error)
        call check(error%status == penstock_err_usage, 'no session')
        call penstock_set_gradient(session, 'scale', inputs(1), error=error)
        call check(error%id == 'library.argument', 'no session for a gradient')
        call penstock_train_step(session, inputs, step, error)
        call check(error%status == penstock_err_usage, 'no session')
    end subroutine
end program

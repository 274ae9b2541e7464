! SPDX-License-Identifier: Apache-2.0
!
! complexes COMPLEX.pt2 COMPLEX128.pt2: the module penstock on arrays of complex
! numbers, and tensors in memory of the session. The models are those of
! tests/golden/make/make_complex.py; values are compared with those of Fortran's
! complex numbers.
program complexes
    use, intrinsic :: iso_c_binding, only: c_associated, c_f_pointer, c_ptr
    use, intrinsic :: iso_fortran_env
    use penstock
    implicit none
    integer, parameter :: rows = 2, cols = 3, n = rows*cols
    complex(real64), parameter :: w(cols) = [(1, 2), (0, -3), (0.5, -1.0)]
    complex(real64) :: z(rows, cols), t(rows, cols), zw(rows, cols), &
        far(rows, cols), of_w(cols)
    type(penstock_model) :: model
    type(penstock_session) :: session
    type(penstock_error) :: error
    type(penstock_step) :: step
    type(c_ptr) :: values
    integer(int64), allocatable :: shape_now(:)
    real(real64) :: loss, wanted
    character(4096) :: path
    integer :: i, k

    do k = 1, cols
        do i = 1, rows
            z(i, k) = cmplx(mod(i + 2*k, 5) - 1.25, mod(i + k, 3), real64)
            t(i, k) = cmplx(mod(i, 4) / 4.0, -0.75*mod(k, 2), real64)
        end do
    end do
    zw = z*spread(w, 1, rows)
    far = (zw - t) / n
    wanted = sum(abs(zw - t)**2) / (2*n)
    of_w = sum(conjg(z)*far, 1)
    call get_command_argument(1, path)
    call begin()
    call singles()
    call ends()
    call get_command_argument(2, path)
    call begin()
    call doubles()
    call ends()

contains
    subroutine check(good, what)
        logical, intent(in) :: good
        character(*), intent(in) :: what

        if (good) return
        write (error_unit, '(a)') 'complexes: wrong: '//what
        error stop 1
    end subroutine

    ! The difference is rounding.
    subroutine near(a, b, what)
        complex(real64), intent(in) :: a(:), b(:)
        character(*), intent(in) :: what

        call check(size(a) == size(b) .and. all(abs(a - b) < 1e-5), what)
    end subroutine

    subroutine begin()
        call penstock_open(path, model)
        call penstock_session_new(model, session, [character(20) :: &
            'optimizer=none', 'threads=1', 'input-gradients=*'])
        call penstock_view(session, penstock_outputs, 2, values, shape_now, &
                           error)
        call check(error%id == 'library.order' .and. &
                   .not. c_associated(values), 'an output before a pass')
    end subroutine

    subroutine ends()
        call penstock_view(session, penstock_inputs, 1, values, shape_now, &
                           error)
        call check(error%id == 'library.argument', 'a view of an input')
        call penstock_view(session, penstock_parameters, 2, values, &
                           shape_now, error)
        call check(error%id == 'library.argument', 'a second parameter')
        call penstock_session_free(session)
        call penstock_close(model)
    end subroutine

    subroutine singles()
        complex(real32), target :: wide(5, 8), whole(rows, cols), &
            thin(rows, 1, cols), one, four(2, 2, 2, 3), of_1(cols)
        complex(real32), pointer :: seen(:, :), seen_w(:)
        type(penstock_tensor) :: inputs(2)

        wide = 99
        wide(5:2:-3, 2:7:2) = cmplx(z, kind=real32) ! strides -3 and 10
        whole = cmplx(t, kind=real32)
        inputs = [penstock_tensor(wide(5:2:-3, 2:7:2)), penstock_tensor(whole)]
        call penstock_forward(session, inputs, loss)
        call check(abs(loss - wanted) < 1e-5, 'loss')
        call penstock_view(session, penstock_outputs, 2, values, shape_now)
        call check(all(shape_now == [rows, cols, 2]), 'shape of a view')
        call c_f_pointer(values, seen, [cols, rows])
        call near(pack(transpose(seen) + 0d0, .true.), pack(zw, .true.), 'view')
        wide = 0
        call penstock_output(session, 3, penstock_tensor(wide(2:5:3, 1:5:2)))
        call near(pack(wide(2:5:3, 1:5:2) + 0d0, .true.), &
                  pack(conjg(zw), .true.), 'output')
        call check(all(abs(wide(:, 2::2)) <= 0), 'gaps')
        call penstock_output(session, 4, penstock_tensor(thin))
        call check(all(abs(thin(:, 1, :) - whole) <= 0), 'rank 3')
        wide(5:2:-3, 2:7:2) = cmplx(z, kind=real32)
        call penstock_train_step(session, inputs, step)
        call penstock_input_gradient(session, 1, penstock_tensor(whole))
        call near(pack(whole + 0d0, .true.), &
                  pack(conjg(spread(w, 1, rows))*far, .true.), 'input gradient')
        call penstock_gradient(session, 'w', penstock_tensor(of_1))
        call near(of_1 + 0d0, of_w, 'gradient')
        call penstock_view(session, penstock_parameters, 1, values, shape_now)
        call check(all(shape_now == [cols]), 'shape of w')
        call c_f_pointer(values, seen_w, [cols])
        call near(seen_w + 0d0, w, 'view of w')
        call penstock_set(session, 'w', penstock_tensor(of_1))
        call check(all(abs(seen_w - of_1) <= 0), 'view of w that was set')
        call penstock_forward(session, [penstock_tensor(one), inputs(2)], &
                              error=error)
        call check(index(error%text, ' complex64[],') > 0, 'rank 0')
        call penstock_forward(session, [penstock_tensor(four), inputs(2)], &
                              error=error)
        call check(index(error%text, ' complex64[2, 2, 2, 3],') > 0, 'rank 4')
    end subroutine

    subroutine doubles()
        complex(real64), target :: wide(5, 8), whole(rows, cols), &
            thin(rows, 1, cols), one, four(2, 2, 2, 3), of_1(cols)
        complex(real64), pointer :: seen(:, :)
        type(penstock_tensor) :: inputs(2)

        wide = 99
        wide(5:2:-3, 2:7:2) = z
        whole = t
        inputs = [penstock_tensor(wide(5:2:-3, 2:7:2)), penstock_tensor(whole)]
        call penstock_forward(session, inputs, loss)
        call check(abs(loss - wanted) < 1e-12, 'loss in 64 bits')
        call penstock_view(session, penstock_outputs, 2, values, shape_now)
        call c_f_pointer(values, seen, [cols, rows])
        call check(all(abs(transpose(seen) - zw) < 1e-12), 'view in 64 bits')
        call penstock_output(session, 4, penstock_tensor(thin))
        call check(all(abs(thin(:, 1, :) - t) <= 0), 'rank 3 of 64 bits')
        call penstock_train_step(session, inputs, step)
        call penstock_gradient(session, 'w', penstock_tensor(of_1))
        call check(all(abs(of_1 - of_w) < 1e-12), 'gradient in 64 bits')
        call penstock_forward(session, [penstock_tensor(one), inputs(2)], &
                              error=error)
        call check(index(error%text, ' complex128[],') > 0, 'rank 0')
        call penstock_forward(session, [penstock_tensor(four), inputs(2)], &
                              error=error)
        call check(index(error%text, ' complex128[2, 2, 2, 3],') > 0, 'rank 4')
    end subroutine
end program

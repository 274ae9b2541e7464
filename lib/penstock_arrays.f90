! SPDX-License-Identifier: Apache-2.0
!
! Arrays of Fortran as tensors, for penstock.f90, which describes them.
module penstock_arrays
    use, intrinsic :: iso_c_binding
    use penstock_c
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
    implicit none
    private

    integer, parameter :: max_rank = 4
    integer(c_int8_t), parameter :: bits_128 = -127_c_int8_t - 1_c_int8_t

    type, public :: penstock_tensor
        private
        type(c_ptr) :: data = c_null_ptr
        logical :: given = .false.
        integer(c_int32_t) :: ndim = 0
        integer(c_int8_t) :: code = 0, bits = 0
        integer(c_int64_t) :: shape(max_rank) = 0, strides(max_rank) = 0
    end type

    type(penstock_tensor), parameter, public :: &
        penstock_no_tensor = penstock_tensor()

    interface penstock_tensor
        module procedure real32_0, real32_1, real32_2, real32_3, real32_4, &
            real64_0, real64_1, real64_2, real64_3, real64_4, &
            int32_0, int32_1, int32_2, int32_3, int32_4, &
            int64_0, int64_1, int64_2, int64_3, int64_4, &
            complex32_0, complex32_1, complex32_2, complex32_3, complex32_4, &
            complex64_0, complex64_1, complex64_2, complex64_3, complex64_4
    end interface

    public :: penstock_reversed, to_pointer

contains
    ! Describes t in dl, which refers to it, and returns a pointer to dl.
    function to_pointer(t, dl) result(pointer)
        type(penstock_tensor), intent(in), target :: t
        type(c_tensor), intent(out), target :: dl
        type(c_ptr) :: pointer

        dl = c_tensor(t%data, dl_cpu, 0, t%ndim, t%code, t%bits, &
                      1_c_int16_t, c_loc(t%shape), c_loc(t%strides), &
                      0_c_int64_t)
        pointer = c_null_ptr
        if (t%given) pointer = c_loc(dl)
    end function

    ! --- parts of tensors ----------------------------------------------------

    pure function make(code, bits, sizes) result(t)
        integer(c_int8_t), intent(in) :: code, bits
        integer, intent(in) :: sizes(:)
        type(penstock_tensor) :: t

        t%given = .true.
        t%code = code
        t%bits = bits
        t%ndim = size(sizes)
        t%shape(:t%ndim) = sizes
    end function

    ! Returns the second index of a dimension, if there is one.
    pure function next(n) result(second)
        integer, intent(in) :: n
        integer :: second

        second = min(2, n)
    end function

    ! Sets memory and strides: those of a section are seen in the addresses of
    ! the second elements along each dimension.
    subroutine place(t, first, second)
        type(penstock_tensor), intent(inout) :: t
        type(c_ptr), intent(in) :: first, second(:)
        integer(c_intptr_t) :: bytes
        integer :: d

        t%data = first
        do d = 1, size(second)
            bytes = transfer(second(d), bytes) - transfer(first, bytes)
            t%strides(d) = bytes / (iand(int(t%bits), 255) / 8)
        end do
    end subroutine

    ! Returns a tensor of the same memory, with the indices in reverse order.
    pure function penstock_reversed(t) result(r)
        type(penstock_tensor), intent(in) :: t
        type(penstock_tensor) :: r

        r = t
        r%shape(:t%ndim) = t%shape(t%ndim:1:-1)
        r%strides(:t%ndim) = t%strides(t%ndim:1:-1)
    end function

    ! --- tensors -------------------------------------------------------------

    function real32_0(a) result(t)
        real(real32), intent(in), target :: a
        type(penstock_tensor) :: t

        t = make(dl_float, 32_c_int8_t, [integer ::])
        t%data = c_loc(a)
    end function

    function real32_1(a) result(t)
        real(real32), intent(in), target :: a(:)
        type(penstock_tensor) :: t

        t = make(dl_float, 32_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1)), [ &
            c_loc(a(next(size(a, 1))))])
    end function

    function real32_2(a) result(t)
        real(real32), intent(in), target :: a(:, :)
        type(penstock_tensor) :: t

        t = make(dl_float, 32_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1)), &
            c_loc(a(1, next(size(a, 2))))])
    end function

    function real32_3(a) result(t)
        real(real32), intent(in), target :: a(:, :, :)
        type(penstock_tensor) :: t

        t = make(dl_float, 32_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1, 1)), &
            c_loc(a(1, next(size(a, 2)), 1)), &
            c_loc(a(1, 1, next(size(a, 3))))])
    end function

    function real32_4(a) result(t)
        real(real32), intent(in), target :: a(:, :, :, :)
        type(penstock_tensor) :: t

        t = make(dl_float, 32_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1, 1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1, 1, 1)), &
            c_loc(a(1, next(size(a, 2)), 1, 1)), &
            c_loc(a(1, 1, next(size(a, 3)), 1)), &
            c_loc(a(1, 1, 1, next(size(a, 4))))])
    end function

    function real64_0(a) result(t)
        real(real64), intent(in), target :: a
        type(penstock_tensor) :: t

        t = make(dl_float, 64_c_int8_t, [integer ::])
        t%data = c_loc(a)
    end function

    function real64_1(a) result(t)
        real(real64), intent(in), target :: a(:)
        type(penstock_tensor) :: t

        t = make(dl_float, 64_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1)), [ &
            c_loc(a(next(size(a, 1))))])
    end function

    function real64_2(a) result(t)
        real(real64), intent(in), target :: a(:, :)
        type(penstock_tensor) :: t

        t = make(dl_float, 64_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1)), &
            c_loc(a(1, next(size(a, 2))))])
    end function

    function real64_3(a) result(t)
        real(real64), intent(in), target :: a(:, :, :)
        type(penstock_tensor) :: t

        t = make(dl_float, 64_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1, 1)), &
            c_loc(a(1, next(size(a, 2)), 1)), &
            c_loc(a(1, 1, next(size(a, 3))))])
    end function

    function real64_4(a) result(t)
        real(real64), intent(in), target :: a(:, :, :, :)
        type(penstock_tensor) :: t

        t = make(dl_float, 64_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1, 1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1, 1, 1)), &
            c_loc(a(1, next(size(a, 2)), 1, 1)), &
            c_loc(a(1, 1, next(size(a, 3)), 1)), &
            c_loc(a(1, 1, 1, next(size(a, 4))))])
    end function

    function int32_0(a) result(t)
        integer(int32), intent(in), target :: a
        type(penstock_tensor) :: t

        t = make(dl_int, 32_c_int8_t, [integer ::])
        t%data = c_loc(a)
    end function

    function int32_1(a) result(t)
        integer(int32), intent(in), target :: a(:)
        type(penstock_tensor) :: t

        t = make(dl_int, 32_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1)), [ &
            c_loc(a(next(size(a, 1))))])
    end function

    function int32_2(a) result(t)
        integer(int32), intent(in), target :: a(:, :)
        type(penstock_tensor) :: t

        t = make(dl_int, 32_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1)), &
            c_loc(a(1, next(size(a, 2))))])
    end function

    function int32_3(a) result(t)
        integer(int32), intent(in), target :: a(:, :, :)
        type(penstock_tensor) :: t

        t = make(dl_int, 32_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1, 1)), &
            c_loc(a(1, next(size(a, 2)), 1)), &
            c_loc(a(1, 1, next(size(a, 3))))])
    end function

    function int32_4(a) result(t)
        integer(int32), intent(in), target :: a(:, :, :, :)
        type(penstock_tensor) :: t

        t = make(dl_int, 32_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1, 1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1, 1, 1)), &
            c_loc(a(1, next(size(a, 2)), 1, 1)), &
            c_loc(a(1, 1, next(size(a, 3)), 1)), &
            c_loc(a(1, 1, 1, next(size(a, 4))))])
    end function

    function int64_0(a) result(t)
        integer(int64), intent(in), target :: a
        type(penstock_tensor) :: t

        t = make(dl_int, 64_c_int8_t, [integer ::])
        t%data = c_loc(a)
    end function

    function int64_1(a) result(t)
        integer(int64), intent(in), target :: a(:)
        type(penstock_tensor) :: t

        t = make(dl_int, 64_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1)), [ &
            c_loc(a(next(size(a, 1))))])
    end function

    function int64_2(a) result(t)
        integer(int64), intent(in), target :: a(:, :)
        type(penstock_tensor) :: t

        t = make(dl_int, 64_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1)), &
            c_loc(a(1, next(size(a, 2))))])
    end function

    function int64_3(a) result(t)
        integer(int64), intent(in), target :: a(:, :, :)
        type(penstock_tensor) :: t

        t = make(dl_int, 64_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1, 1)), &
            c_loc(a(1, next(size(a, 2)), 1)), &
            c_loc(a(1, 1, next(size(a, 3))))])
    end function

    function int64_4(a) result(t)
        integer(int64), intent(in), target :: a(:, :, :, :)
        type(penstock_tensor) :: t

        t = make(dl_int, 64_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1, 1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1, 1, 1)), &
            c_loc(a(1, next(size(a, 2)), 1, 1)), &
            c_loc(a(1, 1, next(size(a, 3)), 1)), &
            c_loc(a(1, 1, 1, next(size(a, 4))))])
    end function

    function complex32_0(a) result(t)
        complex(real32), intent(in), target :: a
        type(penstock_tensor) :: t

        t = make(dl_complex, 64_c_int8_t, [integer ::])
        t%data = c_loc(a)
    end function

    function complex32_1(a) result(t)
        complex(real32), intent(in), target :: a(:)
        type(penstock_tensor) :: t

        t = make(dl_complex, 64_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1)), [ &
            c_loc(a(next(size(a, 1))))])
    end function

    function complex32_2(a) result(t)
        complex(real32), intent(in), target :: a(:, :)
        type(penstock_tensor) :: t

        t = make(dl_complex, 64_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1)), &
            c_loc(a(1, next(size(a, 2))))])
    end function

    function complex32_3(a) result(t)
        complex(real32), intent(in), target :: a(:, :, :)
        type(penstock_tensor) :: t

        t = make(dl_complex, 64_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1, 1)), &
            c_loc(a(1, next(size(a, 2)), 1)), &
            c_loc(a(1, 1, next(size(a, 3))))])
    end function

    function complex32_4(a) result(t)
        complex(real32), intent(in), target :: a(:, :, :, :)
        type(penstock_tensor) :: t

        t = make(dl_complex, 64_c_int8_t, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1, 1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1, 1, 1)), &
            c_loc(a(1, next(size(a, 2)), 1, 1)), &
            c_loc(a(1, 1, next(size(a, 3)), 1)), &
            c_loc(a(1, 1, 1, next(size(a, 4))))])
    end function

    function complex64_0(a) result(t)
        complex(real64), intent(in), target :: a
        type(penstock_tensor) :: t

        t = make(dl_complex, bits_128, [integer ::])
        t%data = c_loc(a)
    end function

    function complex64_1(a) result(t)
        complex(real64), intent(in), target :: a(:)
        type(penstock_tensor) :: t

        t = make(dl_complex, bits_128, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1)), [ &
            c_loc(a(next(size(a, 1))))])
    end function

    function complex64_2(a) result(t)
        complex(real64), intent(in), target :: a(:, :)
        type(penstock_tensor) :: t

        t = make(dl_complex, bits_128, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1)), &
            c_loc(a(1, next(size(a, 2))))])
    end function

    function complex64_3(a) result(t)
        complex(real64), intent(in), target :: a(:, :, :)
        type(penstock_tensor) :: t

        t = make(dl_complex, bits_128, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1, 1)), &
            c_loc(a(1, next(size(a, 2)), 1)), &
            c_loc(a(1, 1, next(size(a, 3))))])
    end function

    function complex64_4(a) result(t)
        complex(real64), intent(in), target :: a(:, :, :, :)
        type(penstock_tensor) :: t

        t = make(dl_complex, bits_128, shape(a))
        if (size(a) > 0) call place(t, c_loc(a(1, 1, 1, 1)), [ &
            c_loc(a(next(size(a, 1)), 1, 1, 1)), &
            c_loc(a(1, next(size(a, 2)), 1, 1)), &
            c_loc(a(1, 1, next(size(a, 3)), 1)), &
            c_loc(a(1, 1, 1, next(size(a, 4))))])
    end function
end module

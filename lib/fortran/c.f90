! SPDX-License-Identifier: Apache-2.0
!
! Structs and functions of penstock.h and dlpack.h, as they are in C.
module penstock_c
    use, intrinsic :: iso_c_binding
    implicit none
    public

    integer(c_int8_t), parameter :: dl_int = 0, dl_float = 2, &
        dl_complex = 5
    integer(c_int), parameter :: dl_cpu = 1

    type, bind(c) :: c_tensor
        type(c_ptr) :: data
        integer(c_int) :: device_type, device_id
        integer(c_int32_t) :: ndim
        integer(c_int8_t) :: code, bits
        integer(c_int16_t) :: lanes
        type(c_ptr) :: shape, strides
        integer(c_int64_t) :: byte_offset
    end type

    type, bind(c) :: c_error
        integer(c_size_t) :: size
        integer(c_int) :: status
        character(c_char) :: id(48), text(4096), remedy(512)
    end type

    type, bind(c) :: c_option
        type(c_ptr) :: name, value
    end type

    type, bind(c) :: c_open_config
        integer(c_size_t) :: size
        type(c_ptr) :: options
        integer(c_size_t) :: n_options
        type(c_funptr) :: message
        type(c_ptr) :: message_ctx
    end type

    type, bind(c) :: c_session_config
        integer(c_size_t) :: size
        type(c_ptr) :: options
        integer(c_size_t) :: n_options
        type(c_ptr) :: mpi_comm
        type(c_funptr) :: message
        type(c_ptr) :: message_ctx
    end type

    type, bind(c) :: c_info
        integer(c_size_t) :: size
        type(c_ptr) :: name
        integer(c_int8_t) :: code, bits
        integer(c_int16_t) :: lanes
        integer(c_int32_t) :: ndim
        type(c_ptr) :: shape
        integer(c_int32_t) :: batch_dim, trained
    end type

    type, bind(c) :: c_module
        integer(c_size_t) :: size
        type(c_ptr) :: name, type
        integer(c_int64_t) :: own_parameters, parameters
        integer(c_int32_t) :: calls, n_stages
        type(c_ptr) :: stages
    end type

    ! bytes that the last call of a session has moved
    type, bind(c) :: penstock_copies
        integer(c_size_t) :: size
        integer(c_int64_t) :: in_place, read, written
    end type

    type, bind(c) :: c_step
        integer(c_size_t) :: size
        integer(c_int64_t) :: step
        real(c_double) :: loss, grad_norm, lr
        integer(c_int32_t) :: applied
    end type

    type, bind(c) :: c_operand
        type(c_ptr) :: name, tensor, storage
        integer(c_size_t) :: storage_bytes
    end type

    type, bind(c) :: c_call_info
        integer(c_size_t) :: size, results, copied, passed, bases, plans
        integer(c_int32_t) :: is_new
        integer(c_size_t) :: in_place
    end type

    ! struct penstock_tensor
    type, bind(c) :: c_result
        integer(c_size_t) :: size
        type(c_tensor) :: tensor
        integer(c_int32_t) :: operand, moved
    end type

    interface
        function c_version() &
            bind(c, name='penstock_version') result(it)
            import
            type(c_ptr) :: it
        end function
        function c_open(path, config, ret, error) &
            bind(c, name='penstock_open') result(code)
            import
            character(c_char), intent(in) :: path(*)
            type(c_open_config), intent(in) :: config
            type(c_ptr), intent(out) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        subroutine c_close(model) &
            bind(c, name='penstock_close')
            import
            type(c_ptr), value :: model
        end subroutine
        function c_count(model, kind) &
            bind(c, name='penstock_count') result(it)
            import
            type(c_ptr), value :: model
            integer(c_int), value :: kind
            integer(c_size_t) :: it
        end function
        function c_describe(model, kind, index, ret, error) &
            bind(c, name='penstock_describe') result(code)
            import
            type(c_ptr), value :: model
            integer(c_int), value :: kind
            integer(c_size_t), value :: index
            type(c_info), intent(inout) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_module_count(model) &
            bind(c, name='penstock_module_count') result(it)
            import
            type(c_ptr), value :: model
            integer(c_size_t) :: it
        end function
        function c_describe_module(model, index, ret, error) &
            bind(c, name='penstock_describe_module') result(code)
            import
            type(c_ptr), value :: model
            integer(c_size_t), value :: index
            type(c_module), intent(inout) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_find(model, kind, name, ret, error) &
            bind(c, name='penstock_find') result(code)
            import
            type(c_ptr), value :: model
            integer(c_int), value :: kind
            character(c_char), intent(in) :: name(*)
            integer(c_size_t), intent(out) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_session_new(model, config, ret, error) &
            bind(c, name='penstock_session_new') result(code)
            import
            type(c_ptr), value :: model
            type(c_session_config), intent(in) :: config
            type(c_ptr), intent(out) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_comm_from_fortran(comm, ret, size, error) &
            bind(c, name='penstock_comm_from_fortran') result(code)
            import
            integer(c_int), value :: comm
            type(c_ptr), value :: ret
            integer(c_size_t), value :: size
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        subroutine c_session_free(session) &
            bind(c, name='penstock_session_free')
            import
            type(c_ptr), value :: session
        end subroutine
        function c_session_describe(session, kind, index, ret, error) &
            bind(c, name='penstock_session_describe') result(code)
            import
            type(c_ptr), value :: session
            integer(c_int), value :: kind
            integer(c_size_t), value :: index
            type(c_info), intent(inout) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_session_count(session, kind) &
            bind(c, name='penstock_session_count') result(it)
            import
            type(c_ptr), value :: session
            integer(c_int), value :: kind
            integer(c_size_t) :: it
        end function
        function c_train_step(session, inputs, n, ret, error) &
            bind(c, name='penstock_train_step') result(code)
            import
            type(c_ptr), value :: session
            type(c_ptr), intent(in) :: inputs(*)
            integer(c_size_t), value :: n
            type(c_step), intent(inout) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_train_step_fill(session, fill, ctx, ret, error) &
            bind(c, name='penstock_train_step_fill') result(code)
            import
            type(c_ptr), value :: session, ctx
            type(c_funptr), value :: fill
            type(c_step), intent(inout) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_forward_backward_fill(session, fill, ctx, ret, error) &
            bind(c, name='penstock_forward_backward_fill') result(code)
            import
            type(c_ptr), value :: session, ctx
            type(c_funptr), value :: fill
            type(c_step), intent(inout) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_forward_backward(session, inputs, n, ret, error) &
            bind(c, name='penstock_forward_backward') result(code)
            import
            type(c_ptr), value :: session
            type(c_ptr), intent(in) :: inputs(*)
            integer(c_size_t), value :: n
            type(c_step), intent(inout) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_update(session, ret, error) &
            bind(c, name='penstock_update') result(code)
            import
            type(c_ptr), value :: session
            type(c_step), intent(inout) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_evaluate(session, inputs, n, loss, error) &
            bind(c, name='penstock_evaluate') result(code)
            import
            type(c_ptr), value :: session
            type(c_ptr), intent(in) :: inputs(*)
            integer(c_size_t), value :: n
            real(c_double), intent(inout) :: loss
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_forward(session, inputs, n, loss, error) &
            bind(c, name='penstock_forward') result(code)
            import
            type(c_ptr), value :: session
            type(c_ptr), intent(in) :: inputs(*)
            integer(c_size_t), value :: n
            real(c_double), intent(out) :: loss
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_output(session, index, dst, error) &
            bind(c, name='penstock_output') result(code)
            import
            type(c_ptr), value :: session, dst
            integer(c_size_t), value :: index
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_view(session, kind, index, ret, error) &
            bind(c, name='penstock_view') result(code)
            import
            type(c_ptr), value :: session
            integer(c_int), value :: kind
            integer(c_size_t), value :: index
            type(c_tensor), intent(inout) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_input_gradient(session, index, dst, error) &
            bind(c, name='penstock_input_gradient') result(code)
            import
            type(c_ptr), value :: session, dst
            integer(c_size_t), value :: index
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_gradient(session, name, dst, error) &
            bind(c, name='penstock_gradient') result(code)
            import
            type(c_ptr), value :: session, dst
            character(c_char), intent(in) :: name(*)
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_set_gradient(session, name, src, add, error) &
            bind(c, name='penstock_set_gradient') result(code)
            import
            type(c_ptr), value :: session, src
            character(c_char), intent(in) :: name(*)
            integer(c_int), value :: add
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_swap(session, module, path, options, n, error) &
            bind(c, name='penstock_swap') result(code)
            import
            type(c_ptr), value :: session, options
            character(c_char), intent(in) :: module(*), path(*)
            integer(c_size_t), value :: n
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_get(session, name, dst, error) &
            bind(c, name='penstock_get') result(code)
            import
            type(c_ptr), value :: session, dst
            character(c_char), intent(in) :: name(*)
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_set(session, name, src, error) &
            bind(c, name='penstock_set') result(code)
            import
            type(c_ptr), value :: session, src
            character(c_char), intent(in) :: name(*)
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_save(session, folder, error) &
            bind(c, name='penstock_save') result(code)
            import
            type(c_ptr), value :: session
            character(c_char), intent(in) :: folder(*)
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_load(session, folder, step, error) &
            bind(c, name='penstock_load') result(code)
            import
            type(c_ptr), value :: session
            character(c_char), intent(in) :: folder(*)
            integer(c_int64_t), intent(out) :: step
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_session_copies(session, ret, error) &
            bind(c, name='penstock_session_copies') result(code)
            import
            type(c_ptr), value :: session
            type(penstock_copies), intent(inout) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_session_bytes(session) &
            bind(c, name='penstock_session_bytes') result(it)
            import
            type(c_ptr), value :: session
            integer(c_size_t) :: it
        end function
        function c_program_open(text, size, config, ret, error) &
            bind(c, name='penstock_program_open') result(code)
            import
            character(c_char), intent(in) :: text(*)
            integer(c_size_t), value :: size
            type(c_open_config), intent(in) :: config
            type(c_ptr), intent(out) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        subroutine c_program_close(program) &
            bind(c, name='penstock_program_close')
            import
            type(c_ptr), value :: program
        end subroutine
        function c_call_flags(program, operands, flags, n, ret, error) &
            bind(c, name='penstock_call_flags') result(code)
            import
            type(c_ptr), value :: program
            type(c_operand), intent(in) :: operands(*)
            integer(c_int64_t), intent(in) :: flags(*)
            integer(c_size_t), value :: n
            type(c_call_info), intent(inout) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_result_at(program, index, ret, error) &
            bind(c, name='penstock_result') result(code)
            import
            type(c_ptr), value :: program
            integer(c_size_t), value :: index
            type(c_result), intent(inout) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_result_operand(program, name, ret, error) &
            bind(c, name='penstock_result_operand') result(code)
            import
            type(c_ptr), value :: program
            character(c_char), intent(in) :: name(*)
            type(c_result), intent(inout) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_result_gradient(program, name, ret, error) &
            bind(c, name='penstock_result_gradient') result(code)
            import
            type(c_ptr), value :: program
            character(c_char), intent(in) :: name(*)
            type(c_result), intent(inout) :: ret
            type(c_error), intent(inout) :: error
            integer(c_int) :: code
        end function
        function c_strlen(text) bind(c, name='strlen') result(n)
            import
            type(c_ptr), value :: text
            integer(c_size_t) :: n
        end function
    end interface
end module

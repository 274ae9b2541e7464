! SPDX-License-Identifier: Apache-2.0
!
! Trains a closure model while a simulation runs, on the same ranks.
!
!     mpirun -n 4 advection closure.pt2 [STEPS [PREFIX]]
!
! The equation is du/dt + du/dx = 0 with a period of 1, solved on a fine grid
! (Lax-Wendroff). A coarse grid has cells of 4 fine ones, and its upwind scheme
! is diffusive. The closure learns the correction of one coarse step from a
! stencil of 5 coarse cells; the fine grid gives the right one.
!
! Each rank has a part of both grids, and exchanges halos with its neighbours on
! one communicator. The first and the last rank are the two stages of the model,
! on a communicator of their own: the stencils of all ranks are gathered at the
! first stage, and the corrections at the last one, where the loss is.
!
! PREFIX: the samples are written to PREFIX.stencil and PREFIX.correction.
program advection
    use, intrinsic :: iso_fortran_env, only: error_unit, int64, real32, real64
    use mpi_f08
    use penstock
    implicit none
    integer, parameter :: coarse_cells = 64, ratio = 4, stencil = 5, halo = 2
    real(real64), parameter :: courant = 0.4_real64, scale = 50
    character(16), parameter :: options(4) = [character(16) :: &
        'microbatches=2', 'optimizer=adamw', 'lr=1e-2', 'threads=1']
    type(MPI_Comm) :: grid, stages
    type(penstock_model) :: model
    type(penstock_session) :: session
    type(penstock_tensor) :: inputs(2)
    type(penstock_step) :: step
    real(real64), allocatable :: fine(:), coarse(:)
    ! The samples of this rank, and at the stages those of all ranks: a row is a
    ! column here, so that it is in one piece.
    real(real32), allocatable, target :: x(:, :), y(:, :), all_x(:, :), &
        all_y(:, :)
    integer :: rank, n_ranks, level, cells, steps, k
    logical :: is_stage
    character(4096) :: path, prefix, word

    call MPI_Init_thread(MPI_THREAD_FUNNELED, level)
    call MPI_Comm_dup(MPI_COMM_WORLD, grid)
    call MPI_Comm_rank(grid, rank)
    call MPI_Comm_size(grid, n_ranks)
    call read_arguments()
    if (level < MPI_THREAD_FUNNELED) call fail('MPI has no threads')
    if (n_ranks < 2 .or. mod(coarse_cells, n_ranks) /= 0 .or. &
        coarse_cells / n_ranks < halo) call fail('64 cells need 2 to 32 ranks')
    cells = coarse_cells / n_ranks
    call begin()

    is_stage = rank == 0 .or. rank == n_ranks - 1
    call MPI_Comm_split(grid, merge(1, MPI_UNDEFINED, is_stage), rank, stages)
    if (is_stage) then
        call penstock_open(path, model, ['stages=2'], notes=error_unit)
        call penstock_session_new(model, session, options, stages%MPI_VAL, &
                                  notes=error_unit)
    end if
    inputs = penstock_no_tensor
    if (rank == 0) inputs(1) = penstock_reversed(penstock_tensor(all_x))
    if (rank == n_ranks - 1) &
        inputs(2) = penstock_reversed(penstock_tensor(all_y))

    do k = 1, steps
        call simulate()
        call gather()
        if (rank == 0 .or. rank == n_ranks - 1) call write_samples()
        if (.not. is_stage) cycle
        call penstock_train_step(session, inputs, step)
        if (rank == 0) print '(a, i0, a, es23.16)', 'step ', k, ': loss ', &
            step%loss
    end do

    if (is_stage) then
        call penstock_session_free(session)
        call penstock_close(model)
        call MPI_Comm_free(stages)
    end if
    call MPI_Comm_free(grid)
    call MPI_Finalize()

contains
    subroutine fail(text)
        character(*), intent(in) :: text

        write (error_unit, '(a)') 'advection: '//text
        call MPI_Abort(grid, 1)
    end subroutine

    subroutine read_arguments()
        integer :: code

        if (command_argument_count() < 1) &
            call fail('usage: advection MODEL.pt2 [STEPS [PREFIX]]')
        steps = 200
        prefix = ''
        call get_command_argument(1, path)
        if (command_argument_count() < 2) return
        call get_command_argument(2, word)
        read (word, *, iostat=code) steps
        if (code /= 0 .or. steps < 1) call fail('STEPS is no number')
        call get_command_argument(3, prefix)
    end subroutine

    ! Makes the arrays, and sets the first state: a wave and a steep hill.
    subroutine begin()
        real(real64), parameter :: pi = acos(-1.0_real64)
        real(real64) :: at
        integer :: i

        allocate (fine(0:ratio * cells + 1), coarse(1 - halo:cells + halo))
        allocate (x(stencil, cells), y(1, cells))
        allocate (all_x(stencil, coarse_cells), all_y(1, coarse_cells))
        do i = 1, ratio * cells
            at = (rank * ratio * cells + i - 0.5_real64) / &
                 (ratio * coarse_cells)
            fine(i) = 0.5_real64 * sin(2 * pi * at) + &
                      exp(-200 * (at - 0.4_real64)**2)
        end do
    end subroutine

    ! Fills the `width` cells beyond both ends of this rank's part from the
    ! neighbours' cells. a begins with those beyond its left end.
    subroutine exchange(a, width)
        real(real64), intent(inout) :: a(:)
        integer, intent(in) :: width
        integer :: left, right, n

        left = modulo(rank - 1, n_ranks)
        right = modulo(rank + 1, n_ranks)
        n = size(a)
        call MPI_Sendrecv(a(n - 2*width + 1:n - width), width, &
                          MPI_DOUBLE_PRECISION, right, 1, a(1:width), width, &
                          MPI_DOUBLE_PRECISION, left, 1, grid, &
                          MPI_STATUS_IGNORE)
        call MPI_Sendrecv(a(width + 1:2*width), width, MPI_DOUBLE_PRECISION, &
                          left, 2, a(n - width + 1:n), width, &
                          MPI_DOUBLE_PRECISION, right, 2, grid, &
                          MPI_STATUS_IGNORE)
    end subroutine

    ! Means of the fine cells in each coarse cell.
    subroutine average()
        integer :: i

        do i = 1, cells
            coarse(i) = sum(fine(ratio*(i - 1) + 1:ratio*i)) / ratio
        end do
    end subroutine

    ! One coarse step, which is `ratio` fine ones; sets this rank's samples.
    subroutine simulate()
        real(real64) :: upwind(cells)
        integer :: i

        call average()
        call exchange(coarse, halo)
        do i = 1, cells
            x(:, i) = real(coarse(i - halo:i + halo), real32)
            upwind(i) = coarse(i) - courant * (coarse(i) - coarse(i - 1))
        end do
        do i = 1, ratio
            call exchange(fine, 1)
            fine(1:ratio*cells) = fine(1:ratio*cells) &
                - courant / 2 * (fine(2:) - fine(:ratio*cells - 1)) &
                + courant**2 / 2 * (fine(2:) - 2*fine(1:ratio*cells) &
                                    + fine(:ratio*cells - 1))
        end do
        call average()
        y(1, :) = real(scale * (coarse(1:cells) - upwind), real32)
    end subroutine

    subroutine gather()
        call MPI_Gather(x, size(x), MPI_REAL, all_x, size(x), MPI_REAL, 0, grid)
        call MPI_Gather(y, size(y), MPI_REAL, all_y, size(y), MPI_REAL, &
                        n_ranks - 1, grid)
    end subroutine

    ! The first stage has all stencils, and the last one all corrections.
    subroutine write_samples()
        character(7) :: status
        integer :: unit

        if (prefix == '') return
        status = merge('replace', 'unknown', k == 1)
        if (rank == 0) then
            open (newunit=unit, file=trim(prefix)//'.stencil', &
                  access='stream', form='unformatted', status=status, &
                  position='append')
            write (unit) all_x
        else
            open (newunit=unit, file=trim(prefix)//'.correction', &
                  access='stream', form='unformatted', status=status, &
                  position='append')
            write (unit) all_y
        end if
        close (unit)
    end subroutine
end program

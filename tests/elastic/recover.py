#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how quickly a supervised job recovers from losing ranks, and checks
that it names a rank that hung.

usage: recover.py PENSTOCK TINY.pt2 NUMBER [SEED]

killed   SIGKILL to a rank: measures the seconds to the next finished step; the
         job must resume from the newest checkpoint
stopped  SIGSTOP: within the watchdog's limit and 2 s, the error names the
         rank, and all ranks have flight records
paused   SIGSTOP, then SIGCONT before the watchdog's limit: nothing is
         restarted

Each fault happens NUMBER times, to one of four ranks. With NUMBER >= 20 the
watchdog's limit is 5 s, and the time limits apply (on an otherwise idle
machine); else it is 2 s.
"""
import os
import random
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import job  # noqa: E402
import chaos  # noqa: E402
import clients  # noqa: E402
import patience  # noqa: E402
import restart_job  # noqa: E402

RANKS, NAME = 4, "job"
WATCHDOG_S = 5 if int(sys.argv[3]) >= 20 else int(patience.WATCHDOG)
P50_S, P99_S, VERDICT_S = 4, 8, 2


def begin(b):
    return b.begin("run", "tiny.plan", "-n", "2x2", "-m", "4", "--data",
                   "data.safetensors", "--lr", "0.001", "--transport", "mpi",
                   "--steps", "1000000000", "--checkpoint", NAME,
                   "--checkpoint-every", "100", "--log-dir", NAME, "--watchdog",
                   str(WATCHDOG_S), "--max-restarts", "5", "--quiet", "--job",
                   f"recover-{os.getpid()}", PENSTOCK_FAULT="F:1+:2")


def newest(b, event, log="rank-0"):
    lines = b.events(NAME, event, log)
    return lines[-1] if lines else None


def await_after(b, event, since, log="rank-0"):
    """Waits for an event after a time. Returns its first log line and the time
    of that line."""
    until = time.monotonic() + job.PATIENCE
    while time.monotonic() < until:
        for line in b.events(NAME, event, log):
            if chaos.at(line) > since:
                return line, chaos.at(line)
        time.sleep(.01)
    raise AssertionError((event, since, log))


def await_progress(b):
    """Waits until the ranks that run now have saved a checkpoint. Returns
    their process ids."""
    started = max(chaos.at(newest(b, "start", f"rank-{r}"))
                  for r in range(RANKS))
    await_after(b, "checkpoint_saved", started)
    found = []
    for rank in range(RANKS):
        found.append(int(job.field(newest(b, "start", f"rank-{rank}"), "pid")))
    assert all(map(restart_job.is_alive, found)), found
    return found


def kill(b, rank, pid):
    before = int(job.field(newest(b, "checkpoint_saved"), "step"))
    since = time.time()
    os.kill(pid, signal.SIGKILL)
    line, _ = await_after(b, "job_restart", since, "supervisor")
    assert int(job.field(line, "checkpoint_step")) >= before, (before, line)
    end, _ = await_after(b, "job_ended", since, "supervisor")
    assert f" of_rank={rank} " in end and " cause=signal " in end, end
    _, at = await_after(b, "step", chaos.at(line))
    return at - since


def error_time(b, since):
    """Returns the time of the first watchdog error after a given time."""
    return min(chaos.at(x) for rank in range(RANKS)
               for x in b.events(NAME, "failed", f"rank-{rank}")
               if "nothing has moved" in x and chaos.at(x) > since)


def stop(b, rank, pid):
    since = time.time()
    os.kill(pid, signal.SIGSTOP)
    end, _ = await_after(b, "job_ended", since, "supervisor")
    took = error_time(b, since) - since
    assert " cause=watchdog " in end and f" of_rank={rank} " in end, (rank, end)
    line, _ = await_after(b, "job_restart", since, "supervisor")
    await_after(b, "step", chaos.at(line))
    for i in range(RANKS):
        path = b.path(NAME, f"rank-{i}.flight.before")
        assert os.path.getsize(path) == 56 * 4097, path
    return took


def pause(b, rank, pid, rng):
    n = len(b.events(NAME, "job_restart"))
    os.kill(pid, signal.SIGSTOP)
    time.sleep(rng.uniform(.1, .5 * WATCHDOG_S))
    os.kill(pid, signal.SIGCONT)
    await_after(b, "checkpoint_saved", time.time())
    assert len(b.events(NAME, "job_restart")) == n, (rank, "started again")
    return 0


def print_times(what, times):
    times = sorted(times)
    print(f"{len(times)} {what}: p50 {times[len(times) // 2]:.2f} s, p99 "
          f"{times[len(times) * 99 // 100]:.2f} s, at most {times[-1]:.2f} s",
          flush=True)
    return times


def main():
    penstock, tiny = map(os.path.abspath, sys.argv[1:3])
    number = int(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    rng = random.Random(seed)
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = job.Bench(penstock, folder)
        b.call("split", tiny, "-o", "tiny.plan")
        clients.write_data(b.path("data.safetensors"))
        run = begin(b)
        for rank in range(RANKS):
            b.pid(NAME, rank)
        took = {kill: [], stop: [], pause: []}
        faults = [kill, stop, pause] * number
        rng.shuffle(faults)
        for fault in faults:
            pids = await_progress(b)
            rank = rng.randrange(RANKS)
            more = (rng,) if fault is pause else ()
            took[fault].append(fault(b, rank, pids[rank], *more))
            assert run.poll() is None, run.communicate()
        b.call("stop", "--job", f"recover-{os.getpid()}")
        assert run.wait(job.PATIENCE) == 130, run.communicate()
        killed = print_times("killed, to the next step", took[kill])
        stopped = print_times("stopped, to the verdict", took[stop])
        print(f"{len(took[pause])} paused: none started again")
        if number >= 20:
            assert killed[len(killed) // 2] <= P50_S, killed
            assert killed[len(killed) * 99 // 100] <= P99_S, killed
            assert stopped[-1] <= WATCHDOG_S + VERDICT_S, stopped
        b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Checks that programs do not depend on state inherited from their parent.

usage: inherited.py PENSTOCK PENSTOCKD TINY.pt2

ignored   SIGCHLD is ignored, which used to make waiting for a child impossible
blocked   SIGTERM is blocked, which used to make it ineffective
bound     SIGINT is ignored, as by `&` in a script, and the client is killed
          before its ranks handle signals; --die-with-client used to be
          ineffective then
variables  PENSTOCK_* variables of options that only ranks have are set;
          programs used to wait because of them
masked    the umask takes rights from the owner, too; runs used to be refused,
          and to leave folders that only root can use
closed    descriptors 0 to 2 are closed; output used to go into the next files
          that were opened
"""
import os
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import clients  # noqa: E402
import job  # noqa: E402
from patience import wait_until  # noqa: E402


USER = 64001  # a user without special rights


def words(*more, steps=3):
    return ["run", "tiny.plan", "-n", "2", "--data", "data.safetensors",
            "--transport", "self", "--steps", str(steps), *more]


def ignore():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def ignored(b):
    for more in [], ["--max-restarts", "1", "--checkpoint", "saved"]:
        run = b.begin_as([b.penstock, *words(*more)], env=b.env,
                         preexec_fn=ignore)
        assert "3 steps" in b.ended(run).stdout


def block():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])


def answers(b):
    return b.done("status", "--job", "bare", code=None).returncode == 0


def blocked(b, penstockd):
    run = b.begin_as([penstockd, "tiny.plan", "--transport", "self", "--ranks",
                      "2", "--job", "bare"], env=b.env, preexec_fn=block)
    try:
        wait_until(lambda: answers(b), "it answers")
        seen = b.begin_as([b.penstock, "watch", "--job", "bare"], env=b.env,
                          preexec_fn=block)
        wait_until(lambda: signal.SIGTERM not in waits(seen.pid), "it watches")
        seen.terminate()
        b.ended(seen, -signal.SIGTERM)
        run.terminate()
        b.ended(run)
    finally:
        run.kill()


def waits(pid):
    """Returns the signals that the process blocks."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        mask, = [int(x.split()[1], 16) for x in file if x.startswith("SigBlk")]
    return {n for n in range(1, 32) if mask >> (n - 1) & 1}


def ignore_interrupt():
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def masks(pid):
    """Returns the signal masks of the process by name, or None if it has
    ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            rows = dict(x.split(":", 1) for x in file)
    except OSError:
        return None
    if rows["State"].split()[0] in "ZX":
        return None
    return {name: int(rows[name], 16) for name in rows
            if name.startswith(("Sig", "Shd")) and name != "SigQ"}


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def bound(b):
    """Checks --die-with-client with programs in the place of penstockd and
    mpirun that install no handlers: so the moment of the death does not
    matter."""
    os.mkdir(b.path("bin"))
    penstock = shutil.copy(b.penstock, b.path("bin", "penstock"))
    for name in "penstockd", "mpirun":
        with open(b.path("bin", name), "w", encoding="utf-8") as file:
            # A shell that waits for a command may clear its signal mask.
            file.write(f"#!/bin/sh\necho $$ > {name}.pid\n"
                       "exec sleep 1000\n")
        os.chmod(b.path("bin", name), 0o755)
    env = dict(b.env, PATH=b.path("bin") + ":" + os.environ["PATH"])
    bit = 1 << signal.SIGINT - 1

    def is_waiting(pid):
        now = masks(pid)
        assert now is not None and not now["SigIgn"] & bit, now
        return now["ShdPnd"] & bit != 0

    for name, transport in ("penstockd", "self"), ("mpirun", "mpi"):
        run = b.begin_as([penstock, *words("--transport", transport,
                                           "--die-with-client")],
                         env=env, preexec_fn=ignore_interrupt)
        pid = int(wait_until(lambda: read(b.path(name + ".pid")), name))
        try:
            run.kill()
            run.communicate()
            if name == "penstockd":
                wait_until(lambda: masks(pid) is None, "it ends")
            else:  # mpirun blocks it, and its ranks see that it is pending
                wait_until(lambda: is_waiting(pid), "it has the signal")
        finally:
            if masks(pid) is not None:
                os.kill(pid, signal.SIGKILL)


def variables(b):
    for name in "STAY", "SERVE", "BEGIN_PAUSED":
        done = b.done(*words(), **{"PENSTOCK_" + name: "yes"})
        assert "3 steps" in done.stdout, done


def masked(b):
    folder = b.path("masked")
    os.makedirs(folder + "/bin")
    for end in "", "d":
        shutil.copy(b.penstock + end, folder + "/bin")
    who = {}
    if os.geteuid() == 0:  # root has all rights
        who = {"user": USER, "group": USER, "extra_groups": []}
        os.chmod(b.folder, 0o755)
        for top in folder, b.path("tiny.plan"):
            for root, _, names in os.walk(top):
                for name in ["", *names]:
                    os.chown(os.path.join(root, name), USER, USER)
        os.chown(b.path("data.safetensors"), USER, USER)
    env = dict(b.env, XDG_RUNTIME_DIR=folder, TMPDIR=folder, HOME=folder)
    for mask in 0o777, 0o377, 0o277:
        for more in [], ["--resume"]:
            b.ended(b.begin_as(
                [folder + "/bin/penstock", *words(
                    *more, "--checkpoint", f"{folder}/saved-{mask:o}",
                    "--log-dir", f"{folder}/log-{mask:o}",
                    steps=6 if more else 3)], env=env, umask=mask, **who))


def close():
    for fd in range(3):
        os.close(fd)


def standard(pid):
    """Returns the files that are open as standard input, output and error."""
    return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)]


def check_closed(b, run, code):
    try:
        wait_until(lambda: answers(b), "it answers")
        assert standard(run.pid) == 3 * ["/dev/null"], standard(run.pid)
        b.call("stop", "--job", "bare")
        assert run.wait() == code, run.returncode
    finally:
        run.kill()


def closed(b, penstockd):
    run = b.begin_as([b.penstock, *words("--job", "bare", "--die-with-client",
                                        steps=10 ** 9)],
                     env=b.env, preexec_fn=close)
    check_closed(b, run, 130)
    run = b.begin_as([penstockd, "tiny.plan", "--transport", "self", "--ranks",
                      "2", "--job", "bare"], env=b.env, preexec_fn=close)
    check_closed(b, run, 0)
    said = b.done("help", code=0)
    assert "usage" in said.stdout
    b.ended(b.begin_as([b.penstock, "help"], env=b.env, preexec_fn=close), 74)


def main():
    penstock, penstockd, model = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            job.Bench(penstock, folder) as b:
        clients.write_data(b.path("data.safetensors"))
        b.call("split", model, "-o", "tiny.plan")
        ignored(b)
        blocked(b, penstockd)
        bound(b)
        closed(b, penstockd)
        variables(b)
        masked(b)
    print("ok")


if __name__ == "__main__":
    main()

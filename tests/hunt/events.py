# SPDX-License-Identifier: Apache-2.0
"""What may happen in a life. Each event is a method with the number n of a
step: it happens after that step."""
import os
import resource
import signal
import time

from ground import LIMIT_S, STATUS_S, Broken, Gone, processes
from life import Job, Late, is_there, name_of, parent
import check

SETS = ["lr=0.003", "lr=0.05", "weight-decay=0.2", "clip-value=0.02",
        "group=biases:lr=0.001", "no-decay=biases", "eval-every=2",
        "checkpoint-every=2", "checkpoint-every=0", "keep=1", "keep=3",
        "log-every=2", "lr-schedule=cosine", "warmup=3", "steps", "patience=9",
        "clip-norm=0.4", "microbatches=2", "lr=0.01 weight-decay=0"]


class Life(Job):
    restarts = 0  # events of the supervisor before an event of the life

    # --- changes of numbers -------------------------------------------------

    def set(self, n):
        text = self.rng.choice(SETS)
        if text == "steps":
            text = f"steps={self.d.steps + self.rng.randint(-2, 3)}"
        if "clip-norm" in text and not self.d.norms:
            text = "lr=0.002"
        self.change(n, ["set", *text.split()], (64, 65, 75))

    def freeze(self, n):
        pattern = self.rng.choice(self.d.about["patterns"])
        self.change(n, [self.rng.choice(["freeze", "unfreeze"]), pattern],
                    (65,))

    def attr_set(self, n):
        name = self.rng.choice(self.d.about["params"] +
                               self.d.about["buffers"])
        state = self.rng.choice([[], ["--state", "reset"]])
        self.change(n, ["attr", "set", name, self.rng.choice(["0.1", "-0.05"]),
                        *state], (65,))

    def attr_cast(self, n):
        name = self.rng.choice(self.d.about["params"] +
                               self.d.about["patterns"])
        self.change(n, ["attr", "cast", name, self.rng.choice(
            ["bf16", "f16", "f32"])], (65,))

    def attr_file(self, n):
        """Sets a module's tensors to their values of now."""
        name = self.rng.choice(self.d.about["modules"])
        self.pause(n)
        self.ask("attr", "get", name, "-o", "values.safetensors")
        kept = f"values-{len(self.course)}.safetensors"
        os.rename(self.g.path("values.safetensors"), self.g.path(kept))
        self.g.note(f"mv values.safetensors {kept}")
        self.change(n, ["attr", "set", name, kept], (65,))

    def swap(self, n):
        name = self.rng.choice(self.d.about["swaps"])
        state = self.rng.choice([[], ["--state", "keep"],
                                 ["--state", "reset"]])
        self.change(n, ["swap", name, f"m/{self.d.name}.{name}.pt2", *state],
                    (65,))

    def two(self, n):
        """Two clients change the job after the same step."""
        d = self.d
        text = self.rng.choice([x for x in SETS if x not in (
            "steps", "clip-norm=0.4")])
        name = self.rng.choice(d.about["swaps"])
        others = self.rng.choice([
            ["freeze", self.rng.choice(d.about["patterns"])],
            ["attr", "cast", self.rng.choice(d.about["params"]), "bf16"],
            ["swap", name, f"m/{d.name}.{name}.pt2"]])
        if "rollback" in d.base:
            return
        pair = [["set", *text.split()], others]
        self.rng.shuffle(pair)
        self.both(n, *pair)

    # --- what changes no number ---------------------------------------------

    def hold(self, n):
        self.pause(n)

    def get(self, n):
        self.reach(n)
        client = self.requested(["attr", "get", ""], n)
        if self.g.wait(client, "attr get").returncode != 0:
            raise Broken(f"code: attr get: {client.out}{client.err}")

    def checkpoint(self, n):
        if self.d.some(.5):
            self.pause(n)
            self.ask("checkpoint")
        else:
            self.reach(n)
            done = self.g.wait(self.requested(["checkpoint"], n), "checkpoint")
            if done.returncode != 0:
                raise Broken(f"code: checkpoint: {done.out}{done.err}")
        if "rollback" in self.d.base:
            return  # the step may be undone before it is saved
        self.g.until(lambda: n in [int(x["step"]) for x in self.events(
            "checkpoint_saved")], f"a checkpoint of step {n}")

    def status(self, n):
        self.reach(n)
        for words in ("status", "--json"), ("log", "--lines", "5"), (
                "trace", "--json"):
            begin = time.monotonic()
            if words[0] == "trace":
                self.g.wait(self.requested(["trace"], n), "trace")
            else:
                self.ask(*words)
            if time.monotonic() - begin > STATUS_S:
                raise Broken(f"status: {words} took "
                             f"{time.monotonic() - begin:.1f} s")

    def beside(self, n):
        """Reads the folder from other processes."""
        self.pause(n)
        self.ask("checkpoint")
        d, data = self.d, f"m/e.{self.d.end}"
        model = [f"m/{d.name}.pt2", *d.cut]
        pack = ["--pack", "0"] if d.about["packed"] else []
        for words in self.rng.sample([
                ["eval", *model, "--data", data, "--checkpoint", "ck", *pack],
                ["infer", *model, "--data", data, "--checkpoint", "ck",
                 "--output", "out.safetensors", *pack],
                ["weights", "ck", "-o", "w.safetensors"],
                ["checkpoints", "ck", "--verify"], ["history", "ck"],
                ["runs", "."], ["report", "log"],
                ["flight", "log"]], 3):
            self.g.do(*words)

    def refused(self, n):
        """Tries commands that must be refused and change nothing."""
        d = self.d
        self.pause(n) if d.some(.5) else self.reach(n)
        wrong = [(["set", "lr=-1"], (64, 65)), (["set", "batch=3"], (64, 65)),
                 (["attr", "set", "nothing", "1"], (65,)),
                 (["swap", "nothing", f"m/{d.name}.pt2"], (65,)),
                 (["freeze", "nothing"], (65,)),
                 (["set", "group=nothing:lr=1"], (64, 65))]
        words, codes = self.rng.choice(wrong)
        if self.paused:
            self.ask(*words, codes=codes)
        else:
            done = self.g.wait(self.requested(words, n), words[0])
            if done.returncode not in codes:
                raise Broken(f"code: {words}: {done.returncode}: {done.err}")
        if self.paused:
            before = check.tree(self.g.path("ck"))
            words = [*self.words(), "--checkpoint-every", "1"]
            self.g.do(*words, codes=(75, 78))
            other = [x if x != "life" else "other" for x in words]
            other[other.index("log")] = "other-log"
            self.g.do(*other, "--resume=auto", codes=(75, 78))
            self.unchanged(before, "a second job")

    def unchanged(self, before, what):
        now = check.tree(self.g.path("ck"))
        if now != before:
            raise Broken(f"changed: {what} changed in ck: "
                         f"{check.different(before, now)}")

    # --- ends and starts ----------------------------------------------------

    def stop(self, n):
        self.pause(n) if self.d.some(.5) else self.reach(n)
        # A signal to `attach` ends that command, not the job.
        how = "stop" if self.d.stays or "attach" in self.run.args else self.rng.choice(
            ["stop", "term", "int"])
        if how == "stop":
            if self.paused:
                self.ask("stop")
            else:
                self.g.wait(self.requested(["stop"], n), "stop")
        else:
            self.g.note(f"kill -{how.upper()} $!")
            self.run.send_signal(signal.SIGTERM if how == "term" else
                                 signal.SIGINT)
            if not self.paused:
                time.sleep(.05)
                self.g.gate(n)
        self.course.append(f"  by {how}")
        self.ended(*{"stop": (130,), "term": (143,), "int": (130,)}[how])
        if self.d.some(.3):
            self.refused_resume()
        lost = self.again()
        if lost:
            raise Broken(f"lost: {lost} by a stop")

    def refused_resume(self):
        """Tries to resume with options that do not fit."""
        other = {"seed": ["--seed", "1000"], "optimizer": ["--optimizer", (
            "sgd" if self.d.optimizer_name != "sgd" else "adamw")],
                 "data": ["--data", "m/nothing.bin"],
                 "eval": ["--eval-data", "m/nothing.bin"],
                 "steps": ["--steps", "1", "--lr", "-1"],
                 "model": []}
        what = self.rng.choice(sorted(other))
        words = [*self.words(), "--checkpoint-every", "1", *other[what]]
        if what == "model":
            words[1] = "m/norm.pt2" if self.d.name != "norm" else "m/plain.pt2"
            words = [x for x in words if x not in self.d.cut]
        before = check.tree(self.g.path("ck"))
        done = self.g.do(*words, "--resume", *self.rng.choice(
            [[], ["--keep-best"], ["--keep", "1"]]), codes=None)
        self.course.append(f"  refused resume: {what}")
        if done.returncode not in (64, 65, 74, 78):
            raise Broken(f"code: resume with other {what} ended with "
                         f"{done.returncode}: {done.out}{done.err}")
        self.unchanged(before, f"a refused resume (other {what})")

    def kill(self, n):
        """Kills a rank in step n + 1 or in a pause."""
        self.pause(n) if self.d.some(.3) else self.reach(n + 1)
        if self.d.some(.5):
            time.sleep(.03)  # a save may end
        rank = self.rng.randrange(self.d.ranks) \
            if self.d.transport == "mpi" else 0
        self.g.note(f"kill -9 $(pid {rank})")
        self.died(lambda: os.kill(self.g.pid_of(rank), signal.SIGKILL))

    def torn(self, n):
        """Kills rank 0 while it has a request for a change."""
        self.reach(n)
        client = self.requested(["attr", "set", self.d.about["params"][0],
                                 "0.3"], n, opens=False)
        self.g.note("kill -9 $(pid 0)")
        self.died(lambda: os.kill(self.g.pid_of(0), signal.SIGKILL))
        if self.g.wait(client, "attr set").returncode == 0:
            raise Broken("a change was answered that was not made")

    def twice(self, n):
        """Kills rank 0, and once more when it has been started again."""
        if not self.supervised or self.d.stays:
            return
        self.reach(n)
        pid = self.g.pid_of(0)
        self.g.note("kill -9 $(pid 0); sleep .2; kill -9 $(pid 0)")

        def happen():
            os.kill(pid, signal.SIGKILL)
            self.g.until(lambda: self.g.pid_of(0) != pid, "another start",
                         self.run)
            os.kill(self.g.pid_of(0), signal.SIGKILL)
            self.g.until(lambda: len(self.supervisor("job_restart")) >= 2,
                         "two restarts", self.run)
            self.seen = len(self.g.lines())
        self.restarts += len(self.supervisor("job_restart"))
        self.died(happen)

    def supervisor(self, event):
        return [x for x in self.g.lines(name="supervisor")
                if x["event"] == event][self.restarts:]

    def launcher(self, n):
        """Kills mpirun; without it the rank."""
        self.reach(n + 1)
        pid = self.g.pid_of(0)
        if self.d.transport == "mpi":
            pid = parent(pid)
            if "mpirun" not in name_of(pid) and "orterun" not in name_of(pid):
                raise Broken(f"the parent of rank 0 is {name_of(pid)}")
        self.g.note("kill -9 $(ps -o ppid= $(pid 0))  # with mpi")
        self.died(lambda: os.kill(pid, signal.SIGKILL))

    def client(self, n):
        """Kills the command `run`, the supervisor if there is one."""
        if self.d.stays:
            return
        self.reach(n + 1)
        self.g.note("kill -9 $!")
        self.run.kill()
        self.g.wait(self.run, "run")
        if self.supervised:
            self.await_nothing()
            self.again()
        else:
            self.run = self.g.start("attach", "life", "--quiet")
            time.sleep(.1)

    def await_nothing(self):
        end = time.monotonic() + LIMIT_S
        while processes(self.g.folder):
            if time.monotonic() > end:
                raise Broken(f"left: {processes(self.g.folder)} after the "
                             "supervisor was killed")
            time.sleep(.01)

    def fault(self, n):
        """Kills a rank at a point of a save or of a step."""
        if self.faulty_saves is None:
            return
        self.reach(n)

        def happen():
            client = None
            if self.faulty_saves:
                client = self.requested(["checkpoint"], n, opens=False)
            with open(self.flag, "w", encoding="utf-8"):
                pass
            self.g.note("touch flag")
            self.g.gate(n)
            if client is not None:
                self.g.wait(client, "checkpoint")
        self.died(happen)

    def died(self, happen):
        """Lets the job die, and goes on after that."""
        was_paused, supervised = self.paused, self.supervised
        self.g.forget_place()
        self.seen = len(self.g.lines())
        gate = self.now_gate()
        happen()
        self.course.append(f"  {'supervised' if supervised else 'alone'}, "
                         f"{self.d.transport}")
        if supervised:
            if not self.await_start():
                raise Broken(f"a restart was refused: {self.refusal}")
        else:
            # `attach` may have been about to connect.
            self.ended(1, *([69] if "attach" in self.run.args else []))
        if is_there(self.flag):
            raise Broken("nothing has died")
        self.g.gate(gate)
        if not supervised:
            self.paused = False
            self.again()
            return
        lost = self.lose()
        line = [x for x in self.g.lines(name="supervisor")
                if x["event"] == "job_restart"][-1]
        # The supervisor of a job that stays does not know the run's folder.
        if bool(line["undone"]) != bool(lost) and not (
                self.d.stays and line["undone"]):
            raise Broken(f"undone: the supervisor says {line['undone']!r}, "
                         f"lost are {lost}")
        if was_paused:
            self.g.until(lambda: self.events("paused"), "paused again",
                         self.run)

    def now_gate(self):
        with open(self.g.path("gate"), encoding="utf-8") as file:
            return int(file.read())

    def away(self, n):
        """Puts a file in the place of the checkpoint folder for a while."""
        self.pause(n)
        ck, aside = self.g.path("ck"), self.g.path("ck.aside")
        if not os.path.isdir(ck):
            return
        self.g.note("mv ck ck.aside; touch ck")
        os.rename(ck, aside)
        with open(ck, "x", encoding="utf-8"):
            pass
        done = self.ask("checkpoint", codes=None)
        if (done.returncode == 0) != self.d.fallback:
            raise Broken(f"code: checkpoint without a folder: "
                         f"{done.returncode} {done.out}{done.err}")
        # A run that ends meanwhile, by --patience, loses its last checkpoint.
        m = n if self.d.patience else min(n + self.rng.randint(0, 2),
                                          self.d.steps - 1)
        self.pause(m)
        self.g.note("rm ck; mv ck.aside ck")
        os.remove(ck)
        os.rename(aside, ck)
        self.ask("checkpoint")

    def missing(self, n):
        """A rank is killed while the checkpoint folder is missing; it comes
        back after a start without it."""
        if not self.supervised or self.d.stays or self.d.fallback:
            return
        self.pause(n)
        self.ask("checkpoint")
        self.paused = False
        self.ask("resume")
        self.reach(n + 1)
        ck, aside = self.g.path("ck"), self.g.path("ck.aside")
        self.restarts += len(self.supervisor("job_restart"))

        def happen():
            os.rename(ck, aside)
            os.kill(self.g.pid_of(0), signal.SIGKILL)
            self.g.until(lambda: len(self.supervisor("job_restart")) >= 2,
                         "a second start", self.run)
            if os.path.isdir(ck):
                raise Broken("a job that had checkpoints began anew")
            os.rename(aside, ck)
        self.g.note("mv ck ck.aside; kill -9 $(pid 0); sleep 1; mv ck.aside ck")
        self.died(happen)

    def full(self, n):
        """No file can become longer than some bytes for a while, as on a full
        disk."""
        if self.d.transport == "mpi":
            return
        self.pause(n)
        self.watching = None  # events that cannot be kept are lost
        pid = self.g.pid_of(0)
        limit = self.rng.choice([0, 100, 3000])
        self.g.note(f"prlimit --pid $(pid 0) --fsize={limit}:")
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, hard))
        done = self.ask("checkpoint", codes=None)
        self.course.append(f"  limit {limit}, checkpoint -> {done.returncode}")
        self.g.note("prlimit --pid $(pid 0) --fsize=unlimited:")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        self.ask("checkpoint")

    def pin(self, n):
        """Pins a checkpoint, which stays until the end."""
        self.pause(n)
        self.ask("checkpoint")
        self.g.do("checkpoints", "ck", "--pin", n)
        self.pins.add(n)

    def warned(self, n):
        """SIGUSR1 saves a checkpoint."""
        self.reach(n)
        self.g.note("kill -USR1 $(pid 0)")
        os.kill(self.g.pid_of(0), signal.SIGUSR1)
        self.g.until(lambda: self.events("early_warning"), "early_warning",
                     self.run)
        self.g.gate(n)
        least = 0 if "rollback" in self.d.base else n
        self.g.until(lambda: any(int(x["step"]) >= least for x in self.events(
            "checkpoint_saved")), "a checkpoint after SIGUSR1", self.run)

    def back(self, n):
        """Stops, and resumes from an older checkpoint."""
        self.pause(n)
        self.ask("stop")
        self.ended(130)
        rows = self.g.json_of("checkpoints", "ck")["checkpoints"]
        step = self.rng.choice(rows)["step"] if rows else 0
        if not step:
            self.again()
            return
        self.course.append(f"  back to {step}")
        self.pins = {x for x in self.pins if x <= step}
        self.went_back = True
        self.again(f"--resume={step}")

    EVENTS = (["set"] * 3 + ["freeze", "attr_set", "attr_cast", "attr_file"] +
              ["swap"] * 2 + ["hold", "get", "checkpoint", "checkpoint",
                              "status", "beside", "refused", "stop", "stop",
                              "kill", "kill", "launcher", "client", "fault",
                              "fault", "away", "back", "full", "pin", "warned", "two",
                              "torn", "twice", "missing"])

    def live(self):
        """Lets the life happen. Returns False if it was refused."""
        d = self.d
        number = self.rng.randint(2, 6)
        at = sorted(self.rng.sample(range(1, d.steps - 2),
                                    min(number, d.steps - 4)))
        self.g.gate(0)
        self.begin()
        if not self.await_start():
            return False
        if self.supervised and d.some(.4):
            self.watching = self.run, self.g.start(
                "watch", "--job", "life", "--from", "1", "--json")
        try:
            for n in at:
                n = max(n, self.now())
                if n == 0 or n > d.steps - 3:
                    continue
                name = self.rng.choice(self.EVENTS)
                self.course.append(f"{n}: {name}")
                try:
                    getattr(self, name)(n)
                except Late:
                    self.course.append("  too late")
            if self.paused:
                self.ask("resume")
            self.g.gate(10 ** 9)
        except Gone as gone:
            self.course.append(f"  the job ended before {gone}")
            self.g.gate(10 ** 9)
        self.ended(0)
        if self.watching is not None and self.watching[0] is self.run:
            check.events_come_once(self.g.wait(self.watching[1], "watch"))
        return True

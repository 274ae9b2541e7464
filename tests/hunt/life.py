# SPDX-License-Identifier: Apache-2.0
"""A life of a job: what happens to it, and its plain form."""
import os
import signal

from ground import Broken, Gone


class Life:
    """A job in the ground `g`, drawn by `rng` (draw.Drawn `d`)."""

    def __init__(self, g, d):
        self.g, self.d, self.rng = g, d, d.rng
        self.run = None
        self.supervised = False
        self.paused = False
        self.begun = False  # a checkpoint may be there
        self.changes = []  # (step, words) that the job's numbers have
        self.told = []  # what happened, for the report

    # --- the job ------------------------------------------------------------

    def words(self):
        return ["run", f"m/{self.d.name}.pt2", *self.d.base, *self.d.evals,
                "--steps", self.d.steps, "--checkpoint", "ck", "--log-dir",
                "log", "--job", "life", "--quiet"]

    def begin(self, *more, **env):
        """Starts the job, anew or from its newest checkpoint."""
        self.supervised = self.rng.random() < .4
        words = [*self.words(), *self.d.layout(), *self.d.saving(), *more]
        if self.supervised:
            words += ["--max-restarts", "3"]
        if self.begun:
            words.append("--resume=auto")
        self.begun = True
        self.paused = False
        self.seen = len(self.g.lines())
        self.g.forget_place()
        self.run = self.g.start(*words, PENSTOCK_GATE=self.g.path("gate"),
                                **env)

    def reach(self, n):
        """Lets the job go on until it waits at the beginning of step n."""
        if self.paused:
            self.ask("resume")
            self.paused = False
        self.g.gate(n - 1)
        self.g.note(f"at {n}")
        self.g.until(lambda: self.g.place() == n, f"step {n}", self.run)

    def ask(self, *words, codes=(0,)):
        return self.g.do(*words, "--job", "life", codes=codes)

    def events(self, *names):
        return [x for x in self.g.lines()[self.seen:] if x["event"] in names]

    def requested(self, words, n):
        """Sends a request at the beginning of step n, so that it takes effect
        after it. Returns the client."""
        before = len(self.events("request"))
        client = self.g.start(*words, "--job", "life")
        self.g.note("sleep .2")
        self.g.until(lambda: client.poll() is not None or len(
            self.events("request")) > before, f"request {words}", self.run)
        self.g.gate(n)
        return client

    def pause(self, n):
        """Pauses the job after step n."""
        if self.paused and self.now() == n:
            return
        self.reach(n)
        pause_at(self.g, "life", n)
        self.paused = True

    # --- changes ------------------------------------------------------------

    def change(self, n, words):
        """Changes the job after step n, paused or in its run."""
        if self.rng.random() < .5:
            self.pause(n)
            done = self.ask(*words, codes=None)
        else:
            self.reach(n)
            done = self.g.wait(self.requested(words, n), words[0])
        if done.returncode == 0:
            line = self.events("set", "swapped", "frozen", "unfrozen",
                               "attr_set", "attr_cast")[-1]
            self.changes.append((int(line["step"]), words))
        self.told.append(f"{n}: {' '.join(words)} -> {done.returncode}")

    def lose(self):
        """After a start from a checkpoint: forgets the changes that it does
        not have. Returns them."""
        lines = self.g.lines()
        first = max(i for i, x in enumerate(lines)
                    if x["event"] in ("resume", "train_begin"))
        resumed = [x for x in lines[first - 3:first + 1]
                   if x["event"] == "resume"]
        step = int(resumed[-1]["step"]) if resumed else 0
        kinds = ("set", "swapped", "frozen", "unfrozen", "attr_set",
                 "attr_cast")
        of_step = [x["event"] for x in lines[:first]
                   if x["event"] in kinds + ("checkpoint_saved",) and
                   int(x["step"]) == step]
        unsaved = 0
        for kind in of_step:
            unsaved = 0 if kind == "checkpoint_saved" else unsaved + 1
        kept = [c for c in self.changes if c[0] <= step]
        if unsaved and kept and kept[-1][0] == step:
            kept = kept[:-unsaved]
        lost = self.changes[len(kept):]
        self.changes = kept
        self.told.append(f"from step {step}, lost {lost}")
        return lost

    # --- ends ---------------------------------------------------------------

    def ended(self, *codes):
        done = self.g.wait(self.run, "run")
        if done.returncode not in codes:
            raise Broken(f"code: the run ended with {done.returncode}, not "
                         f"{codes}:\n{done.out}{done.err}")
        self.run = None
        return done

    def await_start(self):
        """Waits until a start has begun its run. Returns False if it was
        refused."""
        try:
            self.g.until(lambda: self.events("train_begin"), "train_begin",
                         self.run)
        except Gone:
            done = self.g.wait(self.run, "run")
            if done.returncode == 0:
                return True
            if done.returncode in (64, 65, 78):
                self.refusal = done.err.strip().splitlines()[-1:]
                return False
            raise Broken(f"code: the start ended with {done.returncode}:\n"
                         f"{done.out}{done.err}") from None
        return True

    def again(self):
        """Starts the job again, from its newest checkpoint."""
        for _ in range(5):
            self.begin()
            if self.await_start():
                break
            self.told.append(f"refused: {self.refusal}")
        else:
            raise Refused(self.refusal)
        self.lose()

    # --- events: each happens after step n ---------------------------------

    def set(self, n):
        self.change(n, ["set", f"lr={self.rng.choice([.003, .02, .05])}"])

    def checkpoint(self, n):
        if self.rng.random() < .5:
            self.pause(n)
            self.ask("checkpoint")
        else:
            self.reach(n)
            self.g.wait(self.requested(["checkpoint"], n), "checkpoint")

    def stop(self, n):
        self.pause(n)
        self.ask("stop")
        self.ended(130)
        self.again()

    def kill(self, n):
        """Kills rank 0 in step n + 1."""
        self.reach(n + 1)
        self.killed(lambda: self.g.pid_of(0), "$(pid 0)")

    def killed(self, who, text):
        supervised = self.supervised
        self.g.forget_place()
        self.seen = len(self.g.lines())
        self.g.note(f"kill -9 {text}")
        os.kill(who(), signal.SIGKILL)
        self.told.append(f"kill, supervised {supervised}")
        if supervised:
            if not self.await_start():
                raise Broken(f"a restart was refused: {self.refusal}")
            lost = self.lose()
            line = [x for x in self.g.lines(name="supervisor")
                    if x["event"] == "job_restart"][-1]
            if bool(line["undone"]) != bool(lost):
                raise Broken(f"undone: the supervisor says {line['undone']!r}"
                             f", lost are {lost}")
        else:
            self.ended(1)
            self.again()

    EVENTS = ["set", "set", "checkpoint", "stop", "kill"]

    def live(self):
        """Lets the life happen. Returns False if it was refused."""
        d = self.d
        n = self.rng.randint(2, 6)
        at = sorted(self.rng.sample(range(2, d.steps - 1),
                                    min(n, d.steps - 3)))
        self.g.gate(0)
        self.begin()
        if not self.await_start():
            return False
        done = 0
        try:
            for n in at:
                if n <= done:
                    continue
                name = self.rng.choice(self.EVENTS)
                self.told.append(f"{n}: {name}")
                getattr(self, name)(n)
                done = max(n, self.now())
            if self.paused:
                self.ask("resume")
            self.g.gate(10 ** 9)
        except Gone as gone:
            self.told.append(f"the job ended before {gone}")
        self.ended(0)
        return True

    def now(self):
        """Returns the newest step that a gate or a pause is at."""
        if self.paused:
            return int(self.events("paused")[-1]["step"])
        return self.g.place()

    def plain(self):
        """Runs the plain form: one rank for each replica, the changes at their
        steps."""
        g, d = self.g, self.d
        g.note("rm -f gate.at; mkdir plain")
        words = ["run", f"m/{d.name}.pt2", *d.base, *d.evals, "--steps",
                 d.steps, "--checkpoint", "plain-ck", "--log-dir", "plain-log",
                 "--job", "plain", "--quiet", "-n", f"{d.replicas}x1",
                 "--transport", "self", "--stages", "1"]
        g.forget_place()
        steps = sorted({step for step, _ in self.changes})
        g.gate(0 if steps else 10 ** 9)
        run = g.start(*words, PENSTOCK_GATE=g.path("gate"))
        for step in steps:
            g.gate(step - 1)
            g.note(f"at {step}")
            g.until(lambda s=step: g.place() == s, f"step {step}", run)
            pause_at(g, "plain", step)
            for at, change in self.changes:
                if at == step:
                    g.do(*change, "--job", "plain")
            g.do("resume", "--job", "plain")
        g.gate(10 ** 9)
        done = g.wait(run, "plain run")
        if done.returncode != 0:
            raise Broken(f"plain: {done.returncode}\n{done.out}{done.err}")


def pause_at(g, name, n):
    """Pauses a job that waits at the beginning of step n, after that step."""
    log = {"life": "log", "plain": "plain-log"}[name]
    g.do("pause", "--detach", "--job", name)
    g.gate(n)
    g.do("pause", "--job", name)
    at = [int(x["step"]) for x in g.lines(log) if x["event"] == "paused"][-1]
    if at != n:
        raise Broken(f"pause: after {at}, not {n}")


class Refused(Exception):
    pass

# SPDX-License-Identifier: Apache-2.0
"""Draws the options of a life: those that numbers depend on, which its plain
form has, too, and those that must change no bit."""


class Drawn:
    """The options of a life. base: words that both forms have. replicas: of
    both forms."""

    def __init__(self, rng, models):
        self.rng = rng
        self.name = rng.choice(sorted(models))
        self.about = models[self.name]
        self.steps = rng.randint(8, 20)
        self.replicas = 1
        self.micro = rng.choice([2, 4])
        self.base = ["-m", str(self.micro), "--threads", "1", "--seed",
                     str(rng.randrange(100))]
        self.data()
        self.optimizer()
        self.evaluation()

    def data(self):
        end = "bin" if self.about["tokens"] else "safetensors"
        self.end = end
        self.base += ["--data", f"m/a.{end}"]
        if self.about["packed"]:
            self.base += ["--pack", "0"]
        if self.rng.random() < .3:
            self.base.append("--shuffle")

    def optimizer(self):
        self.base += ["--optimizer", self.rng.choice(["adamw", "sgd"]),
                      "--lr", "0.01"]

    def evaluation(self):
        self.evaluates = self.rng.random() < .6
        self.evals = []
        if self.evaluates:
            self.evals = ["--eval-data", f"m/e.{self.end}", "--eval-every",
                          str(self.rng.randint(1, 5)), "--keep-best"]

    def layout(self):
        """Returns options of ranks and memory that change no bit."""
        rng = self.rng
        cuts = rng.sample(self.about["cuts"], rng.randint(0, 2))
        words = [x for name in cuts for x in ("--at", name)]
        ranks = rng.randint(1, len(cuts) + 1)
        self.ranks = ranks * self.replicas
        words += ["-n", f"{self.replicas}x{ranks}", "--transport", "self",
                  "--schedule", rng.choice(["1f1b", "gpipe"])]
        return words

    def saving(self):
        return ["--checkpoint-every", str(self.rng.randint(1, 5))]

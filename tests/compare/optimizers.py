# SPDX-License-Identifier: Apache-2.0
"""PyTorch's optimizers by penstock's names (MAKERS), and Lion, which PyTorch
has not: Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023,
algorithm 2."""
import torch


class Lion(torch.optim.Optimizer):
    """smallest: of an update that is not zero, relative to its two terms, as
    rounding may change the sign of what is near zero."""

    smallest = 1.0

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas,
                                  "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                m = state["m"]
                old, new = beta1 * m, (1 - beta1) * p.grad
                update = old + new
                size = old.abs() + new.abs()
                if (size > 0).any():
                    share = (update.abs() / size)[size > 0].min().item()
                    self.smallest = min(self.smallest, share)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * update.sign())
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


MAKERS = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW,
          "adam": torch.optim.Adam, "adamax": torch.optim.Adamax,
          "lion": Lion, "rmsprop": torch.optim.RMSprop,
          "adagrad": torch.optim.Adagrad, "adadelta": torch.optim.Adadelta}

# SPDX-License-Identifier: Apache-2.0
"""Writes gathers.pt2 and gathers-2.pt2: a module that gathers its parameters
and scatters a sum, exported in a group of one process and in one of two.

Needs torch >= 2.13; rerun only to change the model.
"""
import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
import torch.distributed.fsdp._fully_shard._fsdp_collectives  # noqa: F401
from make_tiny import clean
from torch import nn
from torch.nn import functional as F
from torch.testing._internal.distributed.fake_pg import FakeStore

HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
FSDP, GROUP = torch.ops.fsdp, torch.ops._c10d_functional


class Gathers(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(8.).view(4, 2) / 8)
        self.bias = nn.Parameter(torch.arange(4.) / 4)
        self.last = nn.Parameter(torch.arange(4.).view(2, 2) / 2)

    def forward(self, x):
        n = dist.get_world_size()
        last = collectives.all_gather_tensor(self.last, 0, dist.group.WORLD)
        last = last.mul_(2) if n == 1 else last  # does not modify a parameter
        with torch.no_grad():
            parts = [self.weight.reshape(-1), self.bias.reshape(-1)]
            mine, all_ = FSDP.all_gather_copy_in(
                parts, torch.empty(12 * n), [8, 4], 12, 0)
            all_ = GROUP.all_gather_into_tensor_out(
                mine, n, dist.group.WORLD.group_name, out=torch.empty(12 * n))
            all_ = GROUP.wait_tensor(all_)
            weight, bias = torch.empty(n, 8), torch.empty(n, 4)
            FSDP.split_with_sizes_copy(all_.view(n, -1), [8, 4], 1,
                                       out=[weight, bias])
        y = F.linear(x, weight.view(4 * n, 2), bias.view(-1))
        y = collectives.reduce_scatter_tensor(y, "sum", 1, dist.group.WORLD)
        return F.linear(y[:, :2], last).pow(2).mean() + self.last.sum()


def main():
    for n, name in ((1, "gathers"), (2, "gathers-2")):
        dist.init_process_group("fake", store=FakeStore(), rank=0,
                                world_size=n)
        program = torch.export.export(Gathers(), (torch.ones(3, 2),),
                                      strict=False)
        clean(program.graph_module)
        torch.export.save(program, os.path.join(HERE, name + ".pt2"))
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

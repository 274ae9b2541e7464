# SPDX-License-Identifier: Apache-2.0
"""The dtypes of a program under torch.autocast, without a GPU: it runs node by
node on fake tensors of that device, so PyTorch's own lists decide."""
from unittest import mock

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import (FakeTensor, FakeTensorMode,
                                           in_kernel_invocation_manager)


CONVOLUTION = torch.ops.aten.convolution.default


def convolution(mode, func, *args, **kwargs):
    """Convolution of fake tensors. PyTorch's looks for a backend, which fails
    without CUDA; dtypes do not depend on it."""
    device = args[0].fake_device
    with in_kernel_invocation_manager(mode):
        return FakeTensor(mode, func(*args, **kwargs), device)


class Casting(torch.fx.Interpreter):
    """Runs a program on tensors of a device and keeps their dtypes."""

    def __init__(self, module, device):
        super().__init__(module)
        self.device = device
        self.dtypes = {}

    def call_function(self, target, args, kwargs):
        if target is torch.ops.higher_order.wrap_with_set_grad_enabled:
            return self.region(args[1], args[2:])
        if target is torch.ops.higher_order.wrap_with_autocast:
            # A region that switches autocast off does so on its device.
            assert not args[2], "a region of the file casts"
            torch.set_autocast_enabled(self.device, False)
            out = self.region(args[4], args[5:])
            torch.set_autocast_enabled(self.device, True)
            return out
        if target is torch.ops.aten.to.dtype_layout:
            return args[0].to(kwargs["dtype"])
        if target is torch.ops.aten.to.device:
            return args[0].to(args[2])
        args = tuple(torch.device(self.device)
                     if isinstance(a, torch.device) else a for a in args)
        if "device" in kwargs:
            kwargs = dict(kwargs, device=self.device)
        # It is in no list, and looks for cuDNN.
        if target is torch.ops.aten.batch_norm.default:
            return torch.empty_like(args[0])
        if target is torch.ops.aten._assert_tensor_metadata.default:
            return None
        return super().call_function(target, args, kwargs)

    def region(self, module, args):
        inner = Casting(module, self.device)
        out = inner.run(*args)
        self.dtypes.update(inner.dtypes)
        return out

    def run_node(self, n):
        out = super().run_node(n)
        # Penstock makes several values of a batch norm.
        if isinstance(out, torch.Tensor) and n.op == "call_function" and \
                n.target is not torch.ops.aten.batch_norm.default:
            self.dtypes[n.name] = str(out.dtype).split(".")[-1]
        return out


def dtypes(program, inputs, device="cuda", low=torch.bfloat16):
    """Returns the dtypes of the program's values under
    torch.autocast(device, low), by name."""
    def on_device(t):
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype,
                                   device=device)
    interpreter = Casting(program.graph_module, device)
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, low)
    torch.autocast_increment_nesting()
    impls = fake_impls.op_implementations_dict
    with FakeTensorMode(allow_non_fake_inputs=True), \
            mock.patch.dict(impls, {CONVOLUTION: convolution}):
        args = []
        values = list(inputs)
        for spec in program.graph_signature.input_specs:
            if spec.target is None:
                t = values.pop(0)
            elif spec.target in program.state_dict:
                t = program.state_dict[spec.target]
            else:
                t = program.constants[spec.target]
            args.append(on_device(t))
        interpreter.run(*args)
    torch.autocast_decrement_nesting()
    torch.clear_autocast_cache()
    torch.set_autocast_enabled(device, False)
    return interpreter.dtypes

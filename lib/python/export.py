# SPDX-License-Identifier: Apache-2.0
# --- export -------------------------------------------------------------------

# Parts of PyTorch's messages, and what to change in the module.
_CHANGES = (
    ("data-dependent", "A branch or a size depends on the values of a tensor. "
     "Compute both branches and choose with torch.where, or use torch.cond; "
     "keep sizes constant."),
    (".item()", "A number is taken out of a tensor. Keep it a tensor."),
    ("requires_grad", "Take tensors that need no gradient as inputs, and make "
     "the others parameters."),
    ("unexpected keyword", "Give each argument of forward as an example, in "
     "its order."),
    ("missing", "Give each argument of forward as an example, in its order."))


def _tensors(args):
    import torch
    return [t for t in torch.utils._pytree.tree_leaves(args)
            if isinstance(t, torch.Tensor)]


def export(module, args, path, kwargs=None, **options):
    """Exports a torch.nn.Module with examples of the arguments of forward (a
    tuple), of the size of a microbatch, writes it to path, and opens it as
    `penstock split` does (options: its options). Returns a list of sentences
    that say what to change or to know; it is empty if there is nothing. Raises
    Error if the model cannot be exported (id "export") or run."""
    import torch

    notes = []
    examples = _tensors((args, kwargs or {}))
    if len({id(t) for t in examples}) < len(examples):
        notes.append("Two inputs are one tensor, so torch.export takes uses of "
                     "the second one for uses of the first: give each of them "
                     "a tensor of its own.")
    if not module.training:
        notes.append("The module is in eval mode, so dropout and batch "
                     "normalization do not train: call module.train() before "
                     "the export, unless that is meant.")
    try:
        program = torch.export.export(module, tuple(args), kwargs, strict=False)
    except Exception as e:
        text = str(e).strip().partition("\n")[0]
        change = [what for part, what in _CHANGES if part in str(e).lower()]
        raise Error(-4, "export", f"torch.export refuses the module: {text}",
                    change[0] if change else "PyTorch's message, above, names "
                    "the line of the module to change.") from e
    torch.export.save(program, str(path))
    with Model(path, message=notes.append, **options) as model:
        first = model.outputs[0] if model.outputs else None
        if "loss" not in options and "loss_fn" not in options and (
                first is None or first.shape != () or
                not first.dtype.startswith(("float", "bfloat"))):
            notes.append("The first output is no loss, so the model runs, and "
                         "does not train: let forward return the loss, a "
                         "floating-point scalar, first, or name it with the "
                         "option loss or loss_fn.")
    return notes

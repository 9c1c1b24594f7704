"""One of two processes: takes its half of every step and writes the gradients that it ends with.

Arguments: the encoder's folder, the folder to meet in and to write to, rank.
"""

import sys
from pathlib import Path

import torch
from objective_cases import run_step, setup_of
from process_cases import COMBINATIONS, FIRST
from safetensors.torch import save_file
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from polyrank.data.answers import text_identity
from polyrank.training.gather import gather_rows


def rows_with_gradients(rank, counts):
    """Gathered rows and the gradient of a loss whose shares differ."""
    rows = torch.arange(2.0 * counts[rank]).view(-1, 2) + 100 * rank
    rows.requires_grad_()
    gathered = gather_rows(rows)
    share = (rank + 1) * (gathered * gathered).sum()
    gradient = torch.autograd.grad(share, rows)[0] if gathered.requires_grad else rows.detach()
    return gathered.detach(), gradient


def steps(folder, rank):
    """The loss and the gradients of every combination, by name."""
    for name, (variant, case, cache, settings) in COMBINATIONS.items():
        module, collator, dataset = setup_of(variant, folder, case, cache=cache, **settings)
        places = range(FIRST) if rank == 0 else range(FIRST, len(dataset))
        loss, gradients = run_step(module, collator, dataset, places)
        yield name, {"loss": loss} | gradients


def wrapped(folder, rank):
    """Two steps without zeroing in between, of a module in DistributedDataParallel."""
    from contextlib import nullcontext

    from polyrank.training.step import gradient_step

    module, collator, dataset = setup_of("bi", folder, "softmax")
    places = range(FIRST) if rank == 0 else range(FIRST, len(dataset))
    step = collator([dataset[place] for place in places])
    parallel = DistributedDataParallel(module)
    for _ in range(2):
        gradient_step(parallel, step, autocast=nullcontext)
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def main(folder, meeting, rank):
    distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}/store", rank=rank, world_size=2
    )
    results = {"text": torch.tensor(text_identity(("a turn", "another")))}
    for name, counts in {"uneven": (3, 1), "one-sided": (0, 2), "none": (0, 0)}.items():
        results[f"{name}|rows"], results[f"{name}|gradient"] = rows_with_gradients(rank, counts)
    for name, tensors in steps(folder, rank):
        results |= {f"{name}|{key}": value for key, value in tensors.items()}
    results |= {f"wrapped|{key}": value for key, value in wrapped(folder, rank).items()}
    kept = {name: tensor.detach().clone().contiguous() for name, tensor in results.items()}
    save_file(kept, Path(meeting) / f"{rank}.safetensors")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

"""One fixed matrix times many rows, by the machine's fastest product.

On a CPU, torch multiplies float32 with MKL, which uses only half of the vector width on other
makers' processors. oneDNN, which torch also ships, uses all of it if the fixed matrix is packed
once. Measured in `docs/log.md`. Knows the hardware; knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

Product = Callable[[Tensor], Tensor]


class Packed:
    """A matrix (out, in) in oneDNN's own layout, made for products with about `rows` rows."""

    def __init__(self, weight: Tensor, rows: int) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows)

    def __call__(self, inputs: Tensor, bias: Tensor | None = None) -> Tensor:
        """(…, in) → (…, out)."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs, self.weight, bias, "none", [], ""
        )
        return product


def product(weight: Tensor, rows: int) -> Product:
    """The function (n, in) → (n, out) of a matrix (out, in), in the matrix's dtype."""
    if weight.device.type == "cpu" and can_pack(weight.dtype):
        return Packed(weight, rows)
    transposed = weight.T.contiguous()  # (in, out)
    return lambda inputs: inputs @ transposed


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether this build of torch has the packed product and computes it correctly."""
    if not torch.backends.mkldnn.is_available():
        return False
    generator = torch.Generator().manual_seed(0)  # leaves the global random state alone
    weight = torch.randn(8, 8, generator=generator).to(dtype)
    inputs = torch.randn(4, 8, generator=generator).to(dtype)
    with torch.no_grad():
        try:
            packed = Packed(weight, 4)(inputs)
        except (AttributeError, RuntimeError):
            return False
        expected = functional.linear(inputs, weight)
    return torch.allclose(packed.float(), expected.float(), rtol=1e-2, atol=1e-1)


@cache
def can_multiply_int8() -> bool:
    """Whether this build of torch multiplies 8-bit integers correctly on the CPU."""
    left = torch.arange(-64, 64, dtype=torch.int8).view(8, 16)
    right = torch.arange(127, -1, -1, dtype=torch.int8).view(16, 8)
    try:
        product = torch._int_mm(left, right)
    except (AttributeError, RuntimeError):
        return False
    return torch.equal(product, left.int() @ right.int())

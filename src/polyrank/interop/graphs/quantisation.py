"""Graphs whose encoders multiply in 8 bits. Knows NNCF; knows neither texts nor quality.

Only the linear layers of the encoders are quantised: their weights with one scale per output, their
inputs with one scale, both chosen from the activations of calibration batches. Attention, pooling,
heads and embeddings keep the precision of the runtime, and so do outliers (`interop.outliers`).
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray
from torch import nn

from polyrank.errors import MissingExtraError
from polyrank.models.backbone import Backbone
from polyrank.models.engines.openvino import import_openvino

Feeds = Mapping[str, NDArray[Any]]
"""The inputs of a graph for one batch, by name."""
Signature = tuple[tuple[int, ...], bytes]

SMOOTHING = 0.8
"""How far differences between channels move from the inputs into the weights: SmoothQuant's α."""


def quantised(model: Any, encoders: Sequence[Backbone], batches: Sequence[Feeds]) -> Any:
    """A graph with the linear layers of its encoders in 8 bits.

    Args:
        model: The graph: OpenVINO's model, or ONNX's.
        encoders: The encoders in it, whose weights tell their layers.
        batches: What to calibrate on.

    Returns:
        The quantised graph.

    Raises:
        MissingExtraError: NNCF is not installed.
    """
    nncf = import_nncf()
    products = onnx_products if hasattr(model, "graph") else openvino_products
    own = weights_of(encoders)
    kept = [name for name, weight in products(model) if signature_of(weight) not in own]
    advanced = nncf.AdvancedQuantizationParameters(
        smooth_quant_alphas=nncf.AdvancedSmoothQuantParameters(matmul=SMOOTHING)
    )
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):  # its bars
        warnings.simplefilter("ignore")
        return nncf.quantize(
            model,
            nncf.Dataset(list(batches)),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(batches),
            ignored_scope=nncf.IgnoredScope(names=sorted(kept), validate=False),
            advanced_parameters=advanced,
        )


def import_nncf() -> Any:
    """NNCF, which sends nothing anywhere and shows no bars. Raises MissingExtraError."""
    import_openvino()  # before it, because that keeps both from sending
    try:
        import nncf
    except ImportError:
        raise MissingExtraError("nncf", "openvino", "Quantising") from None
    nncf.set_log_level(logging.ERROR)
    return nncf


def weights_of(encoders: Sequence[Backbone]) -> set[Signature]:
    """What tells the weights of the encoders' linear layers from other constants."""
    return {
        signature(module.weight.detach().numpy())
        for encoder in encoders
        for module in encoder.modules()
        if isinstance(module, nn.Linear)
    }


def signature(weight: NDArray[Any]) -> Signature:
    """The shape of a weight (outputs, inputs), and its first row."""
    return weight.shape, weight[0].tobytes()


def signature_of(weight: NDArray[Any] | None) -> Signature | None:
    """The signature of what may be a weight."""
    return None if weight is None or weight.ndim != 2 else signature(weight)


def openvino_products(model: Any) -> list[tuple[str, NDArray[Any] | None]]:
    """What NNCF could quantise, by name: the weight of a product with a constant, else None."""
    found = []
    for node in model.get_ordered_ops():
        weight = None
        if node.get_type_name() == "MatMul":
            second = node.input_value(1).get_node()
            if second.get_type_name() == "Constant":
                weight = second.data if node.get_attributes()["transpose_b"] else second.data.T
        if node.get_type_name() in ("MatMul", "Gather", "ScaledDotProductAttention"):
            found.append((node.get_friendly_name(), weight))
    return found


def onnx_products(model: Any) -> list[tuple[str, NDArray[Any] | None]]:
    """The same of a graph of ONNX, whose products have weights of the form (inputs, outputs)."""
    from onnx.numpy_helper import to_array

    constants = {each.name: each for each in model.graph.initializer}
    found = []
    for node in model.graph.node:
        second = constants.get(node.input[1]) if node.op_type == "MatMul" else None
        if node.op_type in ("MatMul", "Gather", "Gemm"):
            found.append((node.name, None if second is None else to_array(second).T))
    return found

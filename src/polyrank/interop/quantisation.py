"""OpenVINO graphs whose encoders multiply in 8 bits. Knows NNCF; knows neither texts nor quality.

Only the linear layers of the encoders are quantised: their weights with one scale per output, their
inputs with one scale, both chosen from the activations of calibration batches. Attention, pooling,
heads and embeddings keep the precision of the runtime.

One scale must hold for all of a layer's inputs. Encoders of BERT's kind have a few channels that
are many times larger than all others, and only in the first token: they would leave few of the 256
steps to the rest. So these channels are multiplied apart, as a product of a few columns that stays
in the runtime's precision, and are zero for the quantised product: W x = W x' + W[:, C] x[C].
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from polyrank.errors import MissingExtraError
from polyrank.models.backbone import Backbone
from polyrank.models.engines.openvino import import_openvino

Feeds = Mapping[str, NDArray[Any]]
"""The inputs of a graph for one batch, by name."""

SMOOTHING = 0.8
"""How far differences between channels move from the inputs into the weights: SmoothQuant's α."""
OUTLIER_RATIO = 3.0
"""How many times as large as the common channels an outlier is."""
MOST_OUTLIERS = 16
"""The most channels of a layer that are multiplied apart."""


def quantised(model: Any, encoders: Sequence[Backbone], batches: Sequence[Feeds]) -> Any:
    """A converted graph with the linear layers of its encoders in 8 bits.

    Args:
        model: The graph, as `interop.openvino.converted` gives it. It is changed.
        encoders: The encoders in it, whose weights tell their layers.
        batches: What to calibrate on.

    Returns:
        The quantised graph.

    Raises:
        MissingExtraError: NNCF is not installed.
    """
    nncf = import_nncf()
    layers = linear_layers(model, encoders)
    apart = multiply_apart(layers, channel_maxima(model, layers, batches))
    model.validate_nodes_and_infer_types()
    quantised_names = {layer.get_friendly_name() for layer in layers}
    kept = [
        node.get_friendly_name()
        for node in model.get_ordered_ops()
        if node.get_type_name() in ("MatMul", "Gather", "ScaledDotProductAttention")
        and node.get_friendly_name() not in quantised_names
    ]
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
            ignored_scope=nncf.IgnoredScope(names=sorted({*kept, *apart}), validate=False),
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


def linear_layers(model: Any, encoders: Sequence[Backbone]) -> list[Any]:
    """The products of a graph whose weights are those of linear layers of the encoders."""
    weights = {
        signature(module.weight.detach().numpy())
        for encoder in encoders
        for module in encoder.modules()
        if isinstance(module, nn.Linear)
    }
    return [
        node
        for node in model.get_ordered_ops()
        if node.get_type_name() == "MatMul"
        and is_constant(node.input_value(1))
        and signature(weight_of(node)) in weights
    ]


def is_constant(value: Any) -> bool:
    """Whether a value of a graph is a constant."""
    return bool(value.get_node().get_type_name() == "Constant")


def signature(weight: NDArray[Any]) -> tuple[tuple[int, ...], bytes]:
    """What tells a weight from others: its shape and its first row."""
    return weight.shape, weight[0].tobytes()


def weight_of(layer: Any) -> NDArray[Any]:
    """The weight of a linear layer in a graph: (outputs, inputs)."""
    weight: NDArray[Any] = layer.input_value(1).get_node().data
    return weight if layer.get_attributes()["transpose_b"] else weight.T


def channel_maxima(
    model: Any, layers: Sequence[Any], batches: Sequence[Feeds]
) -> list[NDArray[np.float32]]:
    """The largest absolute value of each input channel of each layer: (inputs,) each."""
    openvino = import_openvino()
    operators = openvino.opset13
    results = []
    for layer in layers:
        value = layer.input_value(0)
        axes = list(range(value.get_partial_shape().rank.get_length() - 1))
        largest = operators.reduce_max(operators.absolute(value), np.array(axes), False)
        results.append(operators.result(largest))
    probe = openvino.Core().compile_model(
        openvino.Model(results, model.get_parameters()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    found = [list(probe(dict(batch)).to_tuple()) for batch in batches]
    return [np.max(np.stack(each), axis=0) for each in zip(*found, strict=True)]


def outliers(maxima: NDArray[np.float32]) -> NDArray[np.int64]:
    """The channels that are far larger than the others, at most `MOST_OUTLIERS`."""
    if len(maxima) <= 2 * MOST_OUTLIERS:
        return np.zeros(0, dtype=np.int64)
    common = np.sort(maxima)[-MOST_OUTLIERS - 1]
    return np.flatnonzero(maxima > OUTLIER_RATIO * common)


def multiply_apart(layers: Sequence[Any], maxima: Sequence[NDArray[np.float32]]) -> list[str]:
    """Split the outlying channels off every layer that narrows, and name the new products.

    These are the second layers of the feed-forward parts. Those that read normalised outputs can be
    smoothed without any cost, because the scales go into the normalisation's weights.
    """
    operators = import_openvino().opset13
    names = []
    for layer, each in zip(layers, maxima, strict=True):
        weight, channels = weight_of(layer), outliers(each)
        if not len(channels) or weight.shape[0] >= weight.shape[1]:
            continue
        consumers = layer.output(0).get_target_inputs()
        value = layer.input_value(0)
        rank = value.get_partial_shape().rank.get_length()
        kept = np.ones((1,) * (rank - 1) + each.shape, dtype=np.float32)
        kept[..., channels] = 0
        layer.input(0).replace_source_output(operators.multiply(value, kept).output(0))
        few = operators.gather(value, channels, np.int64(-1))  # (…, c)
        columns = np.ascontiguousarray(weight[:, channels])  # (outputs, c)
        product = operators.matmul(few, columns, False, True)
        product.set_friendly_name(f"{layer.get_friendly_name()}/outliers")
        total = operators.add(layer.output(0), product.output(0))
        for consumer in consumers:
            consumer.replace_source_output(total.output(0))
        names.append(product.get_friendly_name())
    return names

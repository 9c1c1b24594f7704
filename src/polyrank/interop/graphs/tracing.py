"""The graphs of a model as modules of torch, for a runtime's own exporter to trace.

Each module takes a batch of token ids as tensors and gives finished results, named as an engine
asks for them (`models.engines.record`). Encoders that read both sides are traced once. Knows every
architecture; knows no runtime.

Letters: B texts or pairs, T tokens, m vectors of a context, d dimensions, L classes; C candidates
of one context, U tokens of each, h width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from polyrank.models.backbone import Backbone
from polyrank.models.base import Model
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.engines.record import EncoderShape
from polyrank.models.layers import layers_of
from polyrank.models.once import KeptContexts, lay_out_padded, read_contexts
from polyrank.models.towers import Towers

IDS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"
EXAMPLE_SHAPE = (3, 8)
"""Rows and tokens of the batch that a tracer gets: neither of them 1, which it would take for a
constant."""


@dataclass(frozen=True, kw_only=True)
class GraphFile:
    """One file to write, and the graphs in it."""

    name: str
    """The name of the file, without its ending."""
    module: nn.Module
    """Takes the inputs in their order and gives a tuple of the outputs."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    """The name of each result, which is that of its graph."""
    example: tuple[Tensor, ...]
    """Inputs to trace with."""
    dynamic_axes: tuple[tuple[int, ...], ...]
    """The axes of each input whose sizes may vary."""
    vocab_size: int | None = None
    """How many ids its encoder has embeddings for; None if it takes no ids."""


class TowerGraph(nn.Module):
    """An encoder with all that makes vectors of its outputs."""

    tower: Backbone

    def __init__(self, model: Towers, graphs: tuple[str, ...]) -> None:
        super().__init__()
        self.graphs = graphs
        self.model = model
        self.tower = cast("Backbone", model.get_submodule(model.tower_of(graphs[0])))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        """(B, T), (B, T) → the vectors of each graph."""
        batch = {IDS: input_ids, MASK: attention_mask}
        outputs = self.tower(batch)
        return tuple(self.model.finish_of(graph)(outputs, batch) for graph in self.graphs)


class PairGraph(nn.Module):
    """A cross-encoder: from a pair's tokens to its score or logits."""

    tower: Backbone

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model
        self.tower = model.tower

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor]:
        """(B, T), (B, T), (B, T) → (B,), or (B, L) for classes."""
        batch = {IDS: input_ids, MASK: attention_mask}
        if token_type_ids is not None:
            batch[SEGMENTS] = token_type_ids
        model = self.model
        return (model.read(model.tower, model.candidate_tower, model.head, batch),)


class ContextGraph(nn.Module):
    """What a cross-encoder that reads once keeps of a context."""

    tower: Backbone

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.tower = model.tower

    def forward(self, input_ids: Tensor) -> tuple[Tensor]:
        """(1, T) → (2 · layers + 1, T, h)."""
        tokens = input_ids.shape[1]
        laid = lay_out_padded(tokens, torch.ones_like(input_ids, dtype=torch.bool), continued=False)
        return (read_contexts(self.tower, {"context_ids": input_ids[0]}, laid).packed(),)


class BlockGraph(nn.Module):
    """A cross-encoder that reads once: from a context's states and its candidates to scores."""

    tower: Backbone

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model
        self.tower = model.candidate_tower or model.tower
        self.shape = layers_of(model.tower).shape

    def forward(self, kept: Tensor, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor]:
        """(2 · layers + 1, T, h), (C, U), (C, U) → (C,)."""
        model = self.model
        states = KeptContexts.unpacked(kept, *self.shape)
        continued = not model.reads_texts_apart
        laid = lay_out_padded(kept.shape[1], attention_mask.bool(), continued=continued)
        batch = {"candidate_ids": input_ids.flatten()}
        return model.read_laid(self.tower, None, model.head, batch, laid, states)[:1]


class ClassifierGraph(nn.Module):
    """A bi-encoder's classifier of two vectors."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, u: Tensor, v: Tensor) -> tuple[Tensor]:
        """(B, d), (B, d) → (B, L)."""
        return (self.classifier(u, v),)


def graph_files(model: Model) -> list[GraphFile]:
    """What to write for a model, in evaluation mode and float32 on the CPU.

    A bi- or poly-encoder with one encoder becomes one file, with two encoders two files.
    """
    if isinstance(model, CrossEncoder) and model.reads_once:
        return graphs_read_once(model)
    if isinstance(model, CrossEncoder):
        names = (IDS, MASK, SEGMENTS) if takes_segments(model) else (IDS, MASK)
        return [text_graph("pair", PairGraph(model), names, ("pair",), model)]
    assert isinstance(model, Towers)
    sides = {
        side: tuple(name for name in model.graph_names() if name.startswith(side))
        for side in ("context", "candidate")
    }
    if model.candidate_tower is None:
        sides = {"encoder": sides["context"] + sides["candidate"]}
    files = [
        text_graph(name, TowerGraph(model, graphs), (IDS, MASK), graphs, model)
        for name, graphs in sides.items()
    ]
    classifier: Any = getattr(model, "classifier", None)
    if classifier is not None:
        vectors = torch.randn(2, EXAMPLE_SHAPE[0], model.dimension)
        files.append(
            GraphFile(
                name="classifier",
                module=ClassifierGraph(classifier).eval(),
                inputs=("u", "v"),
                outputs=("classifier",),
                example=tuple(vectors),
                dynamic_axes=((0,), (0,)),
            )
        )
    return files


def graphs_read_once(model: CrossEncoder) -> list[GraphFile]:
    """A context's states, and the scores of padded candidates from them."""
    candidates = example_batch(model, "candidate")
    ids = torch.tensor([model.context_ids(["one text"])[0] * EXAMPLE_SHAPE[1]])[
        :, : EXAMPLE_SHAPE[1]
    ]
    context, block = ContextGraph(model).eval(), BlockGraph(model).eval()
    with torch.no_grad():
        (kept,) = context(ids)
    return [
        GraphFile(
            name="context",
            module=context,
            inputs=(IDS,),
            outputs=("kept",),
            example=(ids,),
            dynamic_axes=((1,),),
            vocab_size=context.tower.vocab_size,
        ),
        GraphFile(
            name="candidates",
            module=block,
            inputs=("kept", IDS, MASK),
            outputs=("block",),
            example=(kept, candidates[IDS], candidates[MASK]),
            dynamic_axes=((1,), (0, 1), (0, 1)),
            vocab_size=block.tower.vocab_size,
        ),
    ]


def takes_segments(model: CrossEncoder) -> bool:
    """Whether the pairs of a cross-encoder are told apart by segments."""
    return model.reads_texts_apart or model.has_segments


def text_graph(
    name: str,
    module: TowerGraph | PairGraph,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    model: Model,
) -> GraphFile:
    """A graph that takes token ids."""
    example = example_batch(model, name)
    return GraphFile(
        name=name,
        module=module.eval(),
        inputs=inputs,
        outputs=outputs,
        example=tuple(example[each] for each in inputs),
        dynamic_axes=((0, 1),) * len(inputs),
        vocab_size=module.tower.vocab_size,
    )


def example_batch(model: Model, name: str) -> Mapping[str, Tensor]:
    """A batch for a graph: texts of which one is padded, and of which each has a second part."""
    rows, tokens = EXAMPLE_SHAPE
    is_candidate = name == "candidate"  # whose encoder may have another vocabulary
    encode = model.candidate_ids if is_candidate else model.context_ids
    ids = encode(["one text", "another text", "text"])
    padding = (model.candidate_tokenizer if is_candidate else model.tokenizer).padding or 0
    padded = [(row * tokens)[:tokens] for row in ids]
    padded[1][tokens - 2 :] = [padding, padding]
    mask = torch.ones(rows, tokens, dtype=torch.int64)
    mask[1, tokens - 2 :] = 0
    segments = torch.zeros(rows, tokens, dtype=torch.int64)
    segments[:, tokens // 2 :] = 1
    return {IDS: torch.tensor(padded), MASK: mask, SEGMENTS: segments * mask}


def encoder_shapes(model: Model) -> dict[str, EncoderShape]:
    """What an exported model keeps of its encoders, by the folder that describes each."""
    return {
        name: EncoderShape(
            width=tower.width,
            max_length=tower.max_length,
            has_segments=tower.has_segments,
            first_place=tower.first_place,
            is_causal=tower.is_causal,
        )
        for name, tower in zip(model.described_encoders(), model.towers, strict=False)
    }

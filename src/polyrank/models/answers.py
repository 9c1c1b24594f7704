"""What every model answers: scores of pairs, a ranking, the classes of pairs.

Knows how texts come in and results go out; knows nothing of how a score is formed.

Letters: B contexts, N candidates, n pairs, L classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from torch import Tensor, nn

from polyrank.config import require_whole
from polyrank.errors import UsageError
from polyrank.models.config import ClassifierConfig
from polyrank.models.inputs import (
    Candidates,
    Contexts,
    Pair,
    Pairs,
    as_candidates,
    as_pairs,
    require_context,
)
from polyrank.records import Context, Hit

if TYPE_CHECKING:
    from typing_extensions import Self

OWN_NAMES = {
    "encode": "encode_contexts for what is asked, encode_candidates for what is ranked",
    "encode_query": "encode_contexts",
    "encode_document": "encode_candidates",
    "similarity": "score",
    "similarity_pairwise": "score_pairs",
    "predict": "score_pairs",
    "get_sentence_embedding_dimension": "dimension",
    "get_embedding_dimension": "dimension",
    "max_seq_length": "load_model(…, max_context_length=…, max_candidate_length=…)",
    "tokenize": "context_ids and candidate_ids",
    "save": "save_pretrained",
    "fit": "polyrank.train(model, examples, output=…)",
}
"""What the calls that people know from sentence-transformers are called here."""


class Answering(nn.Module):
    """Base of the models: the calls that mean the same on all three."""

    def __new__(cls, *arguments: Any, **_: Any) -> Self:
        """Refuse a name alone, which is what other libraries make a model of."""
        if len(arguments) == 1 and isinstance(arguments[0], (str, Path)):
            raise UsageError(
                f"{cls.__name__} is made of an encoder, a tokeniser and settings, got "
                f"{str(arguments[0])!r}.",
                f"Write {cls.__name__}.from_pretrained({str(arguments[0])!r}).",
            )
        return super().__new__(cls)

    def __getattr__(self, name: str) -> Any:
        """A submodule or parameter. Raises AttributeError, naming what a known call is here."""
        try:
            return super().__getattr__(name)
        except AttributeError as error:
            known = self.own_name(name)
            if known is None:
                raise
            raise AttributeError(f"{error}. Use {known}.", name=name, obj=self) from None

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. Raises AttributeError for a known one that has no effect here."""
        if name in OWN_NAMES:
            raise AttributeError(
                f"{type(self).__name__} has no attribute {name!r} to set. Use {OWN_NAMES[name]}."
            )
        super().__setattr__(name, value)

    def own_name(self, name: str) -> str | None:
        """What a call of another library is called here; None for a name that is not known."""
        if name.startswith("encode") and getattr(type(self), "architecture", None) == "cross":
            return "score or rank with the texts, since a cross-encoder has no vectors"
        return OWN_NAMES.get(name)

    @property
    def classifier_config(self) -> ClassifierConfig | None:
        """What is known of the classes; None for a model without a classifier."""
        return None

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the L classes, in the order of the logits; None without a classifier."""
        known = self.classifier_config
        return None if known is None else known.classes

    def score_pairs(
        self, pairs: Pairs, *, batch_size: int | None = None, show_progress_bar: bool = False
    ) -> Tensor:
        """The score of each pair of a context and a candidate.

        Args:
            pairs: One pair (context, candidate), or a list of pairs. A context is a text or a list
                of turns.
            batch_size: Texts, or of a cross-encoder pairs, in one batch. By default, batches are
                cut by `batch_tokens`.
            show_progress_bar: Show progress if it takes more than two seconds.

        Returns:
            float32, (n,), on the CPU; () of one pair.

        Raises:
            UsageError: `pairs` are not pairs of texts, or the model gives classes, not scores.
        """
        listed, is_one = as_pairs(pairs)
        scores = self.scores_of_pairs(
            listed, batch_size=batch_size, show_progress_bar=show_progress_bar
        )
        return scores[0] if is_one else scores

    def rank(
        self, context: Context, candidates: Candidates, *, top_k: int | None = None
    ) -> list[Hit]:
        """The candidates by score, the best first; equal texts are scored once.

        Args:
            context: A text, or the turns of a dialogue, oldest first.
            candidates: The texts to rank.
            top_k: The maximum number of hits, at least 1. By default all.

        Returns:
            Hits; the id of each is its place in `candidates`. Of equal scores, the larger place
            comes first.

        Raises:
            UsageError: There are no candidates, `top_k` is below 1, or the model gives classes.
        """
        require_context("context", context)
        texts, _ = as_candidates(candidates)
        if not texts:
            raise UsageError("There are no candidates to rank.", "Give at least one text.")
        top_k = len(texts) if top_k is None else require_whole("top_k", top_k)
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        scores = self.score([context], list(places))[0].tolist()
        values = [scores[places[text]] for text in texts]
        order = sorted(range(len(texts)), key=lambda i: (values[i], str(i)), reverse=True)
        return [Hit(str(i), values[i], texts[i]) for i in order[:top_k]]

    def class_logits(
        self, pairs: Pairs, *, batch_size: int | None = None, show_progress_bar: bool = False
    ) -> Tensor:
        """The logits of the `classes` of each pair of texts; parameters as of `score_pairs`.

        Returns (n, L), float32, on the CPU; (L,) of one pair. Raises UsageError for a model without
        a classifier.
        """
        self.require_classes()
        listed, is_one = as_pairs(pairs)
        logits = self.logits_of_pairs(
            listed, batch_size=batch_size, show_progress_bar=show_progress_bar
        )
        return logits[0] if is_one else logits

    def class_probabilities(
        self, pairs: Pairs, *, batch_size: int | None = None, show_progress_bar: bool = False
    ) -> Tensor:
        """The probability of each of the `classes`, for each pair: as `class_logits`, summing to 1.

        Raises UsageError for a model without a classifier.
        """
        logits = self.class_logits(
            pairs, batch_size=batch_size, show_progress_bar=show_progress_bar
        )
        return logits.softmax(dim=-1)

    @overload
    def classify(  # type: ignore[overload-overlap]
        self, pairs: Pair, *, batch_size: int | None = ..., show_progress_bar: bool = ...
    ) -> str: ...

    @overload
    def classify(
        self, pairs: Sequence[Pair], *, batch_size: int | None = ..., show_progress_bar: bool = ...
    ) -> list[str]: ...

    def classify(
        self, pairs: Pairs, *, batch_size: int | None = None, show_progress_bar: bool = False
    ) -> str | list[str]:
        """The name of the most probable class of each pair, (n,); of one pair, its name.

        Parameters as of `score_pairs`. Raises UsageError for a model without a classifier.
        """
        logits = self.class_logits(
            pairs, batch_size=batch_size, show_progress_bar=show_progress_bar
        )
        names = self.classes or ()
        places = logits.argmax(dim=-1)
        return [names[place] for place in places.tolist()] if places.ndim else names[int(places)]

    def score(
        self,
        contexts: Contexts,
        candidates: Candidates,
        *,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
    ) -> Tensor:
        """Every context against every candidate: (B, N); (N,) for one context."""
        raise TypeError(f"{type(self).__name__} does not say how texts are scored.")

    def scores_of_pairs(self, pairs: Sequence[Pair], **options: Any) -> Tensor:
        """The score of each pair: (n,). `options` are those of `score_pairs`."""
        raise TypeError(f"{type(self).__name__} does not say how pairs are scored.")

    def logits_of_pairs(self, pairs: Sequence[Pair], **options: Any) -> Tensor:
        """The logits of the classes of each pair: (n, L). `options` are those of `score_pairs`."""
        raise TypeError(f"{type(self).__name__} does not say how pairs are classified.")

    def require_classes(self) -> None:
        """Raise UsageError for a model without a classifier."""
        if self.classes is None:
            raise UsageError(
                "The model has no classifier, so it has no classes.",
                "Train one of the architecture bi or cross on labelled pairs with classes.",
            )


def key_of(context: Context) -> str | tuple[str, ...]:
    """A context that can be the key of a mapping."""
    return context if isinstance(context, str) else tuple(context)

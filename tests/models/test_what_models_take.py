"""One text in gives one result; what cannot be read is refused in two sentences."""

import re

import numpy as np
import pytest
import torch

from polyrank.errors import UsageError
from polyrank.models.answers import OWN_NAMES
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.config import ClassifierConfig
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.poly_encoder import PolyEncoder
from tiny_encoders import TEXTS, VARIANTS, WIDTH, load_variant

CONTEXTS = ["how do i read a file", "", ["hello", "no sound", "old kernel"], "yes"]
PAIRS = list(zip(CONTEXTS, TEXTS, strict=False))


@pytest.fixture(scope="module", params=VARIANTS)
def model(request, bert):
    return load_variant(request.param, bert)


@pytest.fixture(scope="module", params=["bi", "poly-learnt"])
def vector_model(request, bert):
    return load_variant(request.param, bert, temperature=0.5)


def same(one, other):
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_one_text_has_one_vector(vector_model):
    for encode in (vector_model.encode_contexts, vector_model.encode_candidates):
        many = encode(TEXTS)
        same(encode(TEXTS[3]), many[3])
        same(encode(TEXTS[3:4]), many[3:4])
        same(encode(tuple(TEXTS)), many)
        same(encode(np.array(TEXTS)), many)
        same(encode(text for text in TEXTS), many)
    dialogue = next(context for context in CONTEXTS if not isinstance(context, str))
    alone = vector_model.encode_contexts([dialogue])
    same(alone[0], vector_model.encode_contexts(CONTEXTS)[CONTEXTS.index(dialogue)])
    assert len(vector_model.encode_contexts(dialogue)) == len(dialogue)  # texts, not turns


@pytest.mark.parametrize("batch_size", [1, 3, 1000])
def test_the_batch_size_changes_no_vector(vector_model, batch_size, monkeypatch):
    sizes = []
    for encode in (vector_model.encode_contexts, vector_model.encode_candidates):
        expected = encode(TEXTS)
        batched = type(vector_model).batched

        def watched(*arguments, _batched=batched, **options):
            for rows, batch in _batched(*arguments, **options):
                sizes.append(len(rows))
                yield rows, batch

        monkeypatch.setattr(type(vector_model), "batched", watched)
        same(encode(TEXTS, batch_size=batch_size), expected)
        monkeypatch.undo()
    assert max(sizes) == min(batch_size, len(TEXTS))
    assert sum(sizes) == 2 * len(TEXTS)


def test_numpy_and_the_device(vector_model):
    for encode in (vector_model.encode_contexts, vector_model.encode_candidates):
        found = encode(TEXTS, convert_to_numpy=True)
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, encode(TEXTS).numpy())
        assert encode("yes", convert_to_numpy=True).shape == found.shape[1:]
        assert encode(TEXTS, keep_on_device=True).device == vector_model.device
        with pytest.raises(UsageError, match="exclude each other"):
            encode(TEXTS, convert_to_numpy=True, keep_on_device=True)


def test_scores_have_an_axis_for_each_list(model):
    whole = model.score(CONTEXTS, TEXTS)
    assert whole.shape == (len(CONTEXTS), len(TEXTS))
    assert whole.dtype == torch.float32
    text = next(place for place, context in enumerate(CONTEXTS) if isinstance(context, str))
    same(model.score(CONTEXTS[text], TEXTS), whole[text])
    same(model.score(CONTEXTS, TEXTS[2]), whole[:, 2])
    same(model.score(CONTEXTS[text], TEXTS[2]), whole[text, 2])
    same(model.score(CONTEXTS, TEXTS, batch_size=2), whole)
    assert model.score([], TEXTS).shape == (0, len(TEXTS))
    assert model.score(CONTEXTS, []).shape == (len(CONTEXTS), 0)


def test_pairs_score_what_their_texts_score(model):
    whole = model.score([context for context, _ in PAIRS], [text for _, text in PAIRS])
    found = model.score_pairs(PAIRS)
    same(found, whole.diagonal())
    same(model.score_pairs([list(pair) for pair in PAIRS]), found)
    same(model.score_pairs(PAIRS, batch_size=1), found)
    for pair, score in zip(PAIRS, found, strict=True):
        same(model.score_pairs(pair), score)
    assert model.score_pairs([]).shape == (0,)
    ranked = model.rank(CONTEXTS[0], TEXTS)
    best = model.score([CONTEXTS[0]], TEXTS)[0]
    assert [hit.score for hit in ranked] == pytest.approx(
        best.sort(descending=True).values.tolist(), abs=1e-5
    )


def test_vectors_score_as_their_texts_do(vector_model):
    model = vector_model
    whole = model.score(CONTEXTS, TEXTS)
    contexts, candidates = model.encode_contexts(CONTEXTS), model.encode_candidates(TEXTS)
    for left, right in (
        (contexts, candidates),
        (contexts.numpy(), candidates.numpy()),
        (CONTEXTS, candidates),
        (contexts, TEXTS),
        (contexts.double(), candidates),
    ):
        same(model.score(left, right).float(), whole)
    same(model.score(contexts[0], candidates), whole[0])
    same(model.score(contexts, candidates[0]), whole[:, 0])
    same(model.score(contexts[0], candidates[0]), whole[0, 0])
    with pytest.raises(UsageError, match=rf"shape \(N, {WIDTH}\), got Tensor of shape \(2, 3\)"):
        model.score(contexts, torch.zeros(2, 3))
    shape = rf"\(N, {WIDTH}\)" if model.architecture == "bi" else rf"\(N, m, {WIDTH}\)"
    with pytest.raises(UsageError, match=f"contexts must be .* {shape}, got ndarray"):
        model.score(np.zeros((1, 1, 1, WIDTH), np.float32), candidates)


def test_a_cross_encoder_takes_no_vectors(bert):
    with pytest.raises(UsageError, match="scores texts, but the contexts are vectors"):
        load_variant("cross", bert).score(torch.zeros(2, WIDTH), TEXTS)


@pytest.mark.parametrize("variant", ["bi", "cross"])
def test_one_pair_has_one_class(variant, bert):
    names = ("no", "perhaps", "yes")
    settings = {} if variant == "bi" else {"task": "classify", "num_labels": 3}
    model = load_variant(variant, bert, **settings)
    model.take_classifier(ClassifierConfig(classes=names))
    logits = model.class_logits(PAIRS)
    same(model.class_logits(PAIRS[1]), logits[1])
    same(model.class_probabilities(PAIRS[1]), logits[1].softmax(0))
    assert model.classify(PAIRS[1]) == model.classify(PAIRS)[1] == names[logits[1].argmax()]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (None, "got None"),
        (3, "got int 3"),
        (b"text", r"got bytes b'text'. Decode it first: value.decode\(\)."),
        ({"a": "b"}, "got dict"),
        (["a", None], r"\[1\] must be .*, got None"),
        (["a", b"b"], r"\[1\] must be .*, got bytes b'b'. Decode"),
        ([["a", 2]], r"\[0\] must be .*, got list"),
        (torch.tensor(1.0), "got Tensor of shape"),
    ],
)
def test_what_is_not_text_is_refused(model, wrong, named):
    calls = [lambda: model.score(["a"], wrong), lambda: model.rank("a", wrong)]
    if model.architecture != "cross":
        calls += [lambda: model.encode_contexts(wrong), lambda: model.encode_candidates(wrong)]
    for call in calls:
        if isinstance(wrong, torch.Tensor) and call is calls[0]:
            continue  # vectors, which are refused as such
        with pytest.raises(UsageError, match=named) as caught:
            call()
        assert caught.value.problem.endswith(".")
        assert caught.value.remedy.endswith(".")


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("a text", "pairs must be a pair .* got str 'a text'. Write a pair as a tuple"),
        (["a", "b"], r"pairs\[0\] must be a pair \(context, candidate\), got str 'a'"),
        (["ab", "cd"], r"pairs\[0\] must be a pair"),
        ([("a", "b", "c")], r"pairs\[0\] must be a pair"),
        ([("a", 2)], r"The candidate of pairs\[0\] must be a text, got int 2"),
        ([(None, "b")], r"The context of pairs\[0\] must be .* got None"),
        ((3, "b"), "The context of the pair must be .* got int 3"),
        (None, "got None"),
    ],
)
def test_what_is_not_a_pair_is_refused(model, wrong, named):
    with pytest.raises(UsageError, match=named):
        model.score_pairs(wrong)


@pytest.mark.parametrize("batch_size", [0, -1, 1.5, "8", True])
def test_a_batch_size_is_a_whole_number(model, batch_size):
    with pytest.raises(UsageError, match="batch_size must be a whole number of at least 1"):
        model.score(["a"], TEXTS, batch_size=batch_size)


def test_a_call_of_sentence_transformers_says_what_it_is_called_here(model):
    for name, own in OWN_NAMES.items():
        expected = "score or rank" if name[:6] + model.architecture == "encodecross" else own
        words = re.escape(f"has no attribute '{name}'. Use {expected}")
        with pytest.raises(AttributeError, match=words):
            getattr(model, name)
        assert not hasattr(model, name)
        with pytest.raises(AttributeError, match=f"has no attribute '{name}' to set"):
            setattr(model, name, 1)
    with pytest.raises(AttributeError, match=r"has no attribute 'unheard_of'$"):
        getattr(model, "unheard_of")  # noqa: B009


def test_what_is_named_instead_is_there(vector_model):
    for words in OWN_NAMES.values():
        for name in re.findall(r"[a-z_]+", words):
            if "_" in name and name not in ("load_model", "max_context_length"):
                assert hasattr(vector_model, name) or hasattr(vector_model.config, name)


@pytest.mark.parametrize("model_class", [BiEncoder, PolyEncoder, CrossEncoder])
def test_a_model_is_not_made_of_its_name_alone(model_class):
    words = rf"Write {model_class.__name__}\.from_pretrained\('all-MiniLM-L6-v2'\)"
    with pytest.raises(UsageError, match=words):
        model_class("all-MiniLM-L6-v2")


def test_lower_precision_and_shorter_texts(vector_model, bert, tmp_path):
    vector_model.save_pretrained(tmp_path / "saved")
    exact = load_model(tmp_path / "saved", device="cpu", dtype="float32")
    low = load_model(tmp_path / "saved", device="cpu", dtype="bfloat16", max_context_length=8)
    assert (exact.score("yes", TEXTS) - low.score("yes", TEXTS)).abs().max() < 0.05
    assert low.config.max_context_length == 8
    assert max(map(len, low.context_ids([" ".join(TEXTS)]))) == 8
    assert vector_model.to(torch.device("cpu")).device.type == "cpu"
    half = load_model(tmp_path / "saved", device="cpu").to(torch.bfloat16)
    assert half.encode_candidates(TEXTS).dtype == torch.float32

import numpy as np
import pytest
import torch

from polyrank.models.pooling import after_prompt, attend, reduce, select

LENGTHS = [6, 1, 4, 3]


@pytest.fixture
def outputs():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 6, 5, generator=generator).requires_grad_()


@pytest.fixture
def mask():
    return torch.arange(6)[None, :] < torch.tensor(LENGTHS)[:, None]


def reduced_by_hand(tokens, reduction, num_tokens):
    if reduction == "first":
        return tokens[0]
    if reduction == "max":
        return np.array([max(column) for column in tokens.T])
    if reduction == "mean_first":
        tokens = tokens[:num_tokens]
    return sum(tokens) / len(tokens)


@pytest.mark.parametrize("num_tokens", [1, 3, 50])
@pytest.mark.parametrize("reduction", ["first", "mean", "mean_first", "max"])
def test_reductions_go_over_the_real_tokens(outputs, mask, reduction, num_tokens):
    reduced = reduce(outputs, mask, reduction, num_tokens)
    expected = [
        reduced_by_hand(tokens[:length], reduction, num_tokens)
        for tokens, length in zip(outputs.detach().numpy(), LENGTHS, strict=True)
    ]
    np.testing.assert_allclose(reduced.detach().numpy(), np.stack(expected), atol=1e-6)


@pytest.mark.parametrize(
    "reduction", ["first", "mean", "mean_first", "max", "last", "mean_sqrt", "weighted_mean"]
)
def test_padding_reaches_neither_value_nor_gradient(outputs, mask, reduction):
    spoilt = outputs.detach().masked_fill(~mask[:, :, None], 1e6).requires_grad_()
    clean, other = (reduce(given, mask, reduction, 2) for given in (outputs, spoilt))
    torch.testing.assert_close(other, clean)
    (gradient,) = torch.autograd.grad((clean * torch.arange(1, 6)).sum(), outputs)
    assert (gradient[~mask] == 0).all()
    assert (gradient.abs().sum(dim=1) > 0).all()


@pytest.mark.parametrize("prompt_length", [0, 1, 2, 4])
@pytest.mark.parametrize(
    ("reduction", "mode"),
    [
        ("first", "cls"),
        ("mean", "mean"),
        ("max", "max"),
        ("last", "lasttoken"),
        ("mean_sqrt", "mean_sqrt_len_tokens"),
        ("weighted_mean", "weightedmean"),
    ],
)
def test_reductions_are_those_of_the_package(outputs, mask, reduction, mode, prompt_length):
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    features = {"token_embeddings": outputs, "attention_mask": mask.long()}
    if prompt_length:
        features["prompt_length"] = prompt_length
    pooling = modules.Pooling(5, mode, include_prompt=False)
    theirs = pooling(features)["sentence_embedding"]
    ours = reduce(outputs, mask, reduction, prompt_length=prompt_length)
    remains = mask.sum(dim=1) > prompt_length
    if reduction == "max":  # theirs is −∞ where nothing is left
        assert (ours[~remains] == 0).all()
        ours, theirs = ours[remains], theirs[remains]
    torch.testing.assert_close(ours, theirs)
    scale = torch.arange(1, 6)
    gradients = [torch.autograd.grad((made * scale).sum(), outputs)[0] for made in (ours, theirs)]
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 0


@pytest.mark.parametrize("reduction", ["first", "mean", "max", "last", "weighted_mean"])
def test_a_batch_may_have_no_token_after_the_prompt(outputs, mask, reduction):
    assert reduce(outputs, mask, reduction, prompt_length=9).isfinite().all()


def test_codes_and_selections_see_what_follows_the_prompt(outputs, mask):
    seen = after_prompt(mask, 2)
    codes = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    recency = torch.tensor([0.0, 0.5, 1.0])
    cut = torch.tensor([True, False, True, True])  # the second text has one token, which it keeps
    attended = attend(codes, outputs, seen, 0.7, recency, 0.3)
    expected = attend(codes, outputs[:, 2:], mask[:, 2:], 0.7, recency, 0.3)
    torch.testing.assert_close(attended[cut], expected[cut])
    torch.testing.assert_close(attended[1], outputs[1, :1].expand(3, 5))
    for kind in ("first", "last", "last_and_first"):
        chosen = select(outputs, seen, kind, 3)
        torch.testing.assert_close(chosen[cut], select(outputs[:, 2:], mask[:, 2:], kind, 3)[cut])
        assert torch.equal(chosen[1].abs().sum(dim=0) > 0, outputs[1, 0].abs() > 0)


def test_the_maximum_may_be_negative():
    outputs = -torch.ones(1, 3, 2)
    assert (reduce(outputs, torch.tensor([[True, True, False]]), "max") == -1).all()


def selected_by_hand(tokens, kind, num_vectors):
    """The list of vectors that are there."""
    if kind == "first":
        return list(tokens[:num_vectors])
    last = list(tokens[-num_vectors:])
    if kind == "last_and_first" and len(tokens) > num_vectors:
        return [tokens[0], *last]
    return last


@pytest.mark.parametrize("num_vectors", [1, 2, 3, 4, 6, 9])
@pytest.mark.parametrize("kind", ["first", "last", "last_and_first"])
def test_selected_vectors_are_the_tokens_outputs(outputs, mask, kind, num_vectors):
    vectors = select(outputs, mask, kind, num_vectors)
    assert vectors.shape == (4, num_vectors + (kind == "last_and_first"), 5)
    for row, length in enumerate(LENGTHS):
        there = vectors[row][(vectors[row] != 0).any(dim=-1)].detach().numpy()
        expected = selected_by_hand(outputs[row, :length].detach().numpy(), kind, num_vectors)
        np.testing.assert_array_equal(there, np.stack(expected))


@pytest.mark.parametrize("kind", ["first", "last", "last_and_first"])
def test_selection_passes_gradients_to_the_chosen_alone(outputs, mask, kind):
    (gradient,) = torch.autograd.grad(select(outputs, mask, kind, 2).sum(), outputs)
    for row, length in enumerate(LENGTHS):
        places = torch.arange(length)
        chosen = {"first": places[:2], "last": places[-2:]}.get(kind)
        if chosen is None:
            chosen = torch.unique(torch.cat([places[-2:], places[:1]]))
        expected = torch.zeros(6, 5)
        expected[chosen] = 1
        assert torch.equal(gradient[row], expected)


@pytest.mark.parametrize("slopes", [None, [0.0, 0.5, 2.0]])
@pytest.mark.parametrize("scale", [1.0, 0.4])
def test_codes_attend_over_the_real_tokens(outputs, mask, scale, slopes):
    codes = torch.randn(3, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
    recency = None if slopes is None else torch.tensor(slopes)
    vectors = attend(codes, outputs, mask, scale, recency)
    for row, length in enumerate(LENGTHS):
        for number, code in enumerate(codes.detach().numpy()):
            tokens = outputs[row, :length].detach().numpy()
            slope = 0.0 if slopes is None else slopes[number]
            powers = [
                np.exp(scale * float(np.dot(code, token)) - slope * (length - 1 - place))
                for place, token in enumerate(tokens)
            ]
            expected = sum(p * token for p, token in zip(powers, tokens, strict=True)) / sum(powers)
            np.testing.assert_allclose(vectors[row, number].detach().numpy(), expected, atol=1e-5)
    code_gradient, gradient = torch.autograd.grad((vectors**2).sum(), (codes, outputs))
    assert (code_gradient != 0).all()
    assert (gradient[~mask] == 0).all()
    assert (gradient[mask] != 0).all()


def test_a_code_of_zeros_is_the_mean(outputs, mask):
    vectors = attend(torch.zeros(1, 5), outputs, mask, 1.0)
    torch.testing.assert_close(vectors[:, 0], reduce(outputs, mask, "mean"))

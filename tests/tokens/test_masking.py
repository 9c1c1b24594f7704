import pytest
import torch

from polyrank.errors import ModelError, UsageError
from polyrank.tokens.masking import Masking, continuations
from polyrank.tokens.masking_config import MaskingConfig
from tiny_encoders import tokenizer_of


def drawn(ids, seed=0):
    return torch.rand(3, *ids.shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def tokenizer():
    return tokenizer_of("bert")


@pytest.fixture
def ids(tokenizer):
    """Rows of one to 400 tokens between special ones, padded."""
    torch.manual_seed(0)
    rows = torch.full((50, 402), tokenizer.pad_token_id)
    known = torch.tensor(
        [i for i in range(len(tokenizer)) if i not in set(tokenizer.all_special_ids)]
    )
    for row, length in enumerate(torch.randint(1, 400, (50,)).tolist()):
        rows[row, 0] = tokenizer.cls_token_id
        rows[row, 1 : 1 + length] = known[torch.randint(len(known), (length,))]
        rows[row, 1 + length] = tokenizer.sep_token_id
    return rows


def test_shares_are_those_asked_for(tokenizer, ids):
    masking = Masking(tokenizer, MaskingConfig())
    corrupted, chosen = masking(ids, drawn(ids))
    ordinary = ~masking.special[ids]
    expected = (0.15 * ordinary.sum(dim=1)).round().clamp(min=1)
    assert torch.equal(chosen.sum(dim=1), expected.long())
    assert not (chosen & ~ordinary).any()
    assert torch.equal(corrupted[~chosen], ids[~chosen])
    fates = [
        (corrupted == tokenizer.mask_token_id)[chosen].float().mean(),
        (corrupted == ids)[chosen].float().mean(),
    ]
    torch.testing.assert_close(torch.stack(fates), torch.tensor([0.8, 0.1]), atol=0.04, rtol=0)
    assert not masking.special[corrupted[chosen]][corrupted[chosen] != masking.mask_id].any()


def test_it_depends_on_the_seed_alone(tokenizer, ids):
    masking = Masking(tokenizer, MaskingConfig())
    first, again, other = (masking(ids, drawn(ids, seed)) for seed in (1, 1, 2))
    assert torch.equal(first.ids, again.ids)
    assert not torch.equal(first.ids, other.ids)


def test_whole_words_are_chosen_with_all_their_tokens(tokenizer, ids):
    masking = Masking(tokenizer, MaskingConfig(whole_words=True))
    masking.continues = torch.zeros(len(tokenizer), dtype=torch.bool)
    masking.continues[len(tokenizer) // 2 :] = True
    _, chosen = masking(ids, drawn(ids))
    ordinary = ~masking.special[ids]
    goes_on = masking.continues[ids] & ordinary
    goes_on[:, 1:] &= ordinary[:, :-1]
    assert torch.equal(chosen[:, 1:][goes_on[:, 1:]], chosen[:, :-1][goes_on[:, 1:]])
    share = chosen.sum() / ordinary.sum()
    assert 0.15 <= share <= 0.17
    assert chosen.sum(dim=1).min() >= 1
    assert not (chosen & ~ordinary).any()


def test_rows_without_words_are_left_alone(tokenizer):
    ids = torch.tensor([[tokenizer.cls_token_id, tokenizer.sep_token_id]])
    for whole_words in (False, True):
        masking = Masking(tokenizer, MaskingConfig(whole_words=whole_words))
        corrupted, chosen = masking(ids, drawn(ids))
        assert torch.equal(corrupted, ids)
        assert not chosen.any()


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["[CLS]", "play", "##ing", "s"], [False, False, True, False]),
        (["Ġplay", "ing"], [False, True]),
        (["▁play", "ing"], [False, True]),
        (["a", "b"], [False, False]),
    ],
)
def test_what_goes_on_with_a_word(tokens, expected):
    assert continuations(tokens).tolist() == expected


def test_bad_settings_and_tokenisers_are_refused(tokenizer):
    with pytest.raises(UsageError, match="masked_share must be above 0 and below 1, got 1"):
        MaskingConfig(masked_share=1.0)
    with pytest.raises(UsageError, match=r"masked_token \+ masked_random must be at most 1"):
        MaskingConfig(masked_token=0.8, masked_random=0.3)
    tokenizer.mask_token = None
    with pytest.raises(ModelError, match="has no mask token"):
        Masking(tokenizer, MaskingConfig())

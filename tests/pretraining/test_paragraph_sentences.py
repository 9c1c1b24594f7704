from __future__ import annotations

import pytest

from polyrank.pretraining.corpus.sentences import splitter


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["It rose by 3.5 percent.", "Then No. 5 fell.", "Mr. Fox saw it."]),
        ("en", ["He was born ca. 1900 in St. Ives.", '"Why?" he asked.', "U.S. ships left."]),
        ("en", ["Gen. Lee met Sen. Fox.", "The answer is no.", "Reynolds v. Sims (b. 1900)."]),
        ("de", ["Am 3. Oktober kam z. B. Dr. Fuchs.", "Die Nr. 5 blieb bzw. Rang 2. Danach."]),
        ("de", ["Das Haus steht.", "Es ist alt."]),
        ("es", ["El Sr. Pérez vino.", "¿Cuándo?", "El núm. 5 no."]),
        ("ru", ["Он жил в г. Москва.", "Там было хорошо."]),
        ("ko", ["이것은 문장이다.", "저것도 그렇다."]),
        ("ja", ["これは文です。", "それも文です！"]),
        ("zh", ["这是一句话。", "那也是。"]),
        ("und", ["One.", "Two."]),
    ],
)
def test_a_paragraph_is_cut_at_its_sentences(language, sentences):
    joiner = "" if language in ("ja", "zh") else " "
    text = joiner.join(sentences)
    spans = splitter(language)(text)
    assert [text[start:stop] for start, stop in spans] == sentences


def test_nothing_has_no_sentences():
    assert splitter("en")("") == ()
    assert splitter("en")("no end") == ((0, 6),)

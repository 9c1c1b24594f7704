"""The sentences of a paragraph, in the language of its corpus.

The rule is that of `data.sentences`, by punctuation. It adds the full stops that do not end a
sentence in some languages: after ordinal numbers, and after the language's abbreviations.
docs/corpora.md has its agreement with another splitter, and its speed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from polyrank.data.sentences import sentence_spans

Spans = tuple[tuple[int, int], ...]
Splitter = Callable[[str], Spans]

ORDINALS = "bs cs da de dsb et eu fi fo hr hsb hu is lb lv nb nds nn no pl sh sk sl sr tr"
"""Languages that write an ordinal number with a full stop: `am 3. Oktober`."""
ORDINAL = re.compile(r"(?:^|[\s(])\d{1,2}\.\Z")

ABBREVIATIONS = {
    "en": "brig bvt ca cmdr cpl gen illus lit maj op pvt rep sen trans univ v",
    "de": "abb abs anm art bd bde ber bspw bzw ca chr dipl dr ebd ehem eigtl entspr etc evtl geb "
    "gegr gest ggf hl hr hrsg ing inkl jh jhd jhdt jr kap lat min mio mrd nr op orig phil prof "
    "resp s sog st str tel u usw v verh vgl vol wg z zit zt",
    "es": "a aprox art av c cap cía d da dña dr dra ed ej etc fig gral ing lic n núm p pág págs "
    "prof s sr sra srta st sto sta tel ud uds v vol",
    "fr": "al apr art av c cf chap coll dir éd etc fig ibid j jr m mm mme mlle n no p pp prof st "
    "ste t vol",
    "it": "art av c ca cap cfr dott ecc ed es fig ing n nn on p pag pagg prof s sig sigg ss vol",
    "nl": "a art b bijv blz ca d dhr dr drs e enz etc evt ing ir jr m max mevr min mr n nl nr o "
    "prof resp st t v vgl vnl vs z",
    "pt": "a art av c ca cap d dr dra ed etc ex fig gen n no núm p pág prof profa r s sr sra sta "
    "sto tel vol",
    "pl": "al art bł ds dr hab im in inż itd itp jw km l ks m mjr min nr np ok os pl pn płk pol "
    "por prof r rys s św tel tj tzn tzw ul ur w wg właśc woj zm zob",
    "ru": "в вв г гг гл гор греч д др ед им ин кв лат л млн млрд напр нем о обл ок оп р рис с св "
    "см ср ст стр т табл тыс ул франц чел экз",
    "sv": "bl ca dr dvs ev ex f fr jfr kl kr m max min nr o osv p pga prof resp s st t tel",
}
"""What comes before a full stop that does not end a sentence, besides what all languages share."""


BEFORE_NUMBERS = {"en": "no nos b c d fl r"}
"""What does so only where a number follows."""


def splitter(language: str) -> Splitter:
    """The function from a paragraph to its sentences, for a language such as `de`."""
    code = language.partition("-")[0].casefold()
    abbreviation = ending(ABBREVIATIONS.get(code, ""))
    before_number = ending(BEFORE_NUMBERS.get(code, ""))
    has_ordinals = code in ORDINALS.split()

    def goes_on(text: str, start: int, stop: int, following: str) -> bool:
        if text[stop - 1] != ".":
            return False
        begin = max(start, stop - 20)
        if abbreviation is not None and abbreviation.search(text, begin, stop):
            return True
        if before_number is not None and following.isdigit():
            return before_number.search(text, begin, stop) is not None
        return has_ordinals and ORDINAL.search(text, begin, stop) is not None

    def split(text: str) -> Spans:
        spans: list[tuple[int, int]] = []
        for start, stop in sentence_spans(text):
            if spans and goes_on(text, *spans[-1], text[start]):
                spans[-1] = (spans[-1][0], stop)
            else:
                spans.append((start, stop))
        return tuple(spans)

    return split


def ending(words: str) -> re.Pattern[str] | None:
    """What finds one of some words, with its full stop, at the end of what is searched."""
    if not words:
        return None
    listed = "|".join(sorted(map(re.escape, words.split()), key=len, reverse=True))
    return re.compile(rf"(?:^|[\s(\"“„«])(?:{listed})\.\Z", re.IGNORECASE)

"""The wiki that a dump is of: its language, its namespaces, and what a link's target means there.

Knows titles and prefixes; knows nothing of pages.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote


def words(listed: str) -> frozenset[str]:
    """The words of a list."""
    return frozenset(listed.split())


FILE, CATEGORY, MEDIA = 6, 14, -2
HIDDEN = (FILE, CATEGORY, MEDIA)

CANONICAL = {
    "media": -2,
    "special": -1,
    "talk": 1,
    "user": 2,
    "user talk": 3,
    "project": 4,
    "project talk": 5,
    "file": 6,
    "file talk": 7,
    "mediawiki": 8,
    "mediawiki talk": 9,
    "template": 10,
    "template talk": 11,
    "help": 12,
    "help talk": 13,
    "category": 14,
    "category talk": 15,
    "portal": 100,
    "wikipedia": 4,
    "wp": 4,
}
"""English names, which every wiki understands."""

FILE_ALIASES = words(
    "image bild datei fichier imagen archivo immagine imagem ficheiro arquivo bestand afbeelding "
    "plik grafika файл изображение зображення soubor obrázok súbor tiedosto kuva fil billede "
    "fájl kép fișier imagine εικόνα αρχείο dosya resim berkas gambar tập_tin hình 파일 그림 "
    "ファイル 画像 文件 檔案 档案 图像 圖像 ملف صورة קובץ תמונה پرونده "
    "fitxer imatge fitxategi irudi"
)
"""What a file is also called; dumps name only one word a namespace."""

LANGUAGES = words(
    "aa ab ace ady af ak als alt am ami an ang ann anp ar arc ary arz as ast atj av avk awa ay "
    "az azb ba ban bar bat-smg bbc bcl bdr be be-tarask be-x-old bew bg bh bi bjn blk bm bn bo "
    "bpy br bs btm bug bxr ca cbk-zam cdo ce ceb ch cho chr chy ckb co cr crh cs csb cu cv cy "
    "da dag de dga din diq dsb dtp dty dv dz ee el eml en eo es et eu ext fa fat ff fi fiu-vro "
    "fj fo fon fr frp frr fur fy ga gag gan gcr gd gl glk gn gom gor got gpe gsw gu guc gur guw "
    "gv ha hak haw he hi hif ho hr hsb ht hu hy hyw hz ia iba id ie ig igl ii ik ilo inh io is "
    "it iu ja jam jbo jv ka kaa kab kbd kbp kcg kg kge ki kj kk kl km kn knc ko koi kr krc ks "
    "ksh ku kus kv kw ky la lad lb lbe lez lfn lg li lij lld lmo ln lo lrc lt ltg lv lzh mad "
    "mai map-bms mdf mg mh mhr mi min mk ml mn mni mnw mo mos mr mrj ms mt mus mwl my myv mzn "
    "na nah nan nap nds nds-nl ne new ng nia nl nn no nov nqo nr nrm nso nup nv ny oc olo om or "
    "os pa pag pam pap pcd pcm pdc pdt pfl pi pih pl pms pnb pnt ps pt pwn qu rm rmy rn ro "
    "roa-rup roa-tara rsk ru rue rup rw sa sah sat sc scn sco sd se sg sgs sh shi shn shy si "
    "simple sk skr sl sm smn sn so sq sr srn ss st stq su sv sw szl szy ta tay tcy tdd te tet "
    "tg th ti tig tk tl tly tn to tpi tr trv ts tt tum tw ty tyv udm ug uk ur uz ve vec vep vi "
    "vls vo vro wa war wo wuu xal xh xmf yi yo yue za zea zgh zh zh-classical zh-min-nan zh-yue "
    "zu"
)
"""The codes of Wikipedias: such a link is beside the article, not in its text."""

SISTERS = words(
    "b books c commons d doi foundation incubator iarchive m meta mediawikiwiki metawikipedia "
    "mw n news phab q s species toollabs v voy w wikibooks wikidata wikimedia wikinews wikiquote "
    "wikisource wikispecies wikiversity wikivoyage wikt wiktionary wmf"
)
"""Prefixes that lead to another site, with the words in the text."""

SPACE = re.compile(r"[\s_\u200e\u200f]+")
DOTTED_I = ("tr", "az", "crh", "tt")
Meaning = Literal["article", "hidden", "words"]


@dataclass(frozen=True, kw_only=True)
class Site:
    """A wiki. `namespaces` maps names, case-folded, to the numbers that the dump gives them."""

    language: str = "en"
    case: str = "first-letter"
    namespaces: Mapping[str, int] = field(default_factory=dict)

    def namespace(self, prefix: str) -> int | None:
        """The number of a namespace by any of its names, or None."""
        name = " ".join(prefix.replace("_", " ").split()).casefold()
        number = self.namespaces.get(name, CANONICAL.get(name))
        if number is None and name.replace(" ", "_") in FILE_ALIASES:
            return FILE
        return number

    def title(self, text: str) -> str:
        """A title in the form that pages have: spaces, no fragment, the first letter's case."""
        if "&" in text:
            text = html.unescape(text)
        if "%" in text:
            text = unquote(text)
        title = SPACE.sub(" ", text.partition("#")[0]).strip()
        if not title.isascii():
            title = unicodedata.normalize("NFC", title)
        if self.case == "first-letter" and title[:1].islower():
            title = self.capital(title[0]) + title[1:]
        return title

    def capital(self, letter: str) -> str:
        """The capital of a first letter, if it has one that is a single letter."""
        if letter == "i" and self.language in DOTTED_I:
            return "İ"
        upper = letter.upper()
        georgian = "\u10d0" <= letter <= "\u10ff"
        return letter if georgian or len(upper) != 1 else upper

    def meaning(self, target: str) -> tuple[Meaning, str]:
        """What a link to `target` is, and the title it leads to if that is an article.

        `hidden`: a file, a category or the article in another language, whose words are not part
        of the text. `words`: a link to elsewhere, whose words are.
        """
        target = target.strip()
        if ":" not in target:
            title = self.title(target)
            return ("article", title) if title else ("words", "")
        shown = target.startswith(":")
        target = target.removeprefix(":").lstrip()
        prefix, colon, rest = target.partition(":")
        number = self.namespace(prefix) if colon else 0
        if number is not None and number != 0:
            return ("hidden" if number in HIDDEN and not shown else "words"), ""
        code = prefix.strip().casefold()
        if colon and code in LANGUAGES and code != self.language:
            return ("words" if shown else "hidden"), ""
        if colon and code in SISTERS:
            return "words", ""
        if colon and code == self.language:
            target = rest
        title = self.title(target)
        return ("article", title) if title else ("words", "")

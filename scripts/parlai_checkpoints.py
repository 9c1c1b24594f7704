"""Small ParlAI rankers with random weights, what ParlAI itself makes of texts, and the comparison.

ParlAI needs an environment of its own:

    python -m venv parlai-env
    parlai-env/bin/pip install torch numpy requests tqdm iopath pillow pyyaml scikit-learn
    parlai-env/bin/pip install "setuptools<81" subword-nmt tokenizers regex
    parlai-env/bin/pip install --no-deps parlai==1.7.2

There, `make` writes one folder per checkpoint, with the token ids and scores that ParlAI's own
agents give. Where polyrank is installed, `compare` imports checkpoints and prints the differences;
with `--parlai-python` it has them made anew first.

    parlai-env/bin/python scripts/parlai_checkpoints.py make FOLDER [NAME…] [--width 8]
    python scripts/parlai_checkpoints.py compare FOLDER
    python scripts/parlai_checkpoints.py compare --parlai-python parlai-env/bin/python --width 64

`make FOLDER published` writes a checkpoint of the size and options of ParlAI's published
poly-encoder, pretrained_transformers/model_poly.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TURNS = [
    ["Hello there, how are you?", "I'm fine!  Thanks; and YOU?", "Great: let's talk about dogs."],
    ["What is the capital of France?"],
    ["a", "the CAFÉ in Zürich costs 12½ € or 3.5² … naïve", "it's\nvery\tnice", "ok", "so?"],
    ["ΟΔΟΣ ΣΙΣΥΦΟΣ ὈΔΥΣΣΕΎΣ", "İstanbul 東京 \U0001f600\U0001f680 e\u0301tude"],
    ["We went to the zoo and saw lions, tigers, bears; then we went home to sleep. " * 3],
]
CANDIDATES = [
    "Paris is the capital of France.",
    "I love dogs! They're the best, aren't they?",
    "no",
    "The café costs 12½ €; that's 3² times what it cost before, and nobody knows why it does.",
    "multi\nline \x1c  answer\u2003with   odd\u00a0spaces ",
    "__end__x __unk__ @@ __start__ under_score",
    "ΣΑΣ Ǆ ﬁne \u200b zero-width",
]
CORPUS = [
    *(turn for turns in TURNS for turn in turns),
    *CANDIDATES[:4],
    "the dogs and the cats are talking about the best capital of the times",
    "there are other things that nobody knows about France and the zoo",
]

COMMON = {
    "n_layers": 1,
    "n_heads": 2,
    "n_positions": 64,
    "text_truncate": 24,
    "label_truncate": 12,
    "dict_maxtokens": -1,
    "dict_lower": True,
    "learn_positional_embeddings": True,
    "attention_dropout": 0.0,
    "dropout": 0.1,
}
POLY = {**COMMON, "model": "transformer/polyencoder", "poly_n_codes": 4}
BI = {**COMMON, "model": "transformer/biencoder"}
CROSS = {**COMMON, "model": "transformer/crossencoder"}
PUBLISHED = {
    **{"variant": "xlm", "activation": "gelu", "n_segments": 2, "output_scaling": 0.06},
    **{"embeddings_scale": False, "reduction_type": "first", "dict_tokenizer": "bpe"},
    **{"history_size": 20, "fp16": True},
}
"""The options of the published poly-encoder that change a score, beside its sizes."""
CASES: dict[str, dict[str, Any]] = {
    "poly-published": {**POLY, **PUBLISHED},
    "poly-sqrt": {
        **POLY,
        **{"variant": "aiayn", "activation": "relu", "dict_tokenizer": "split"},
        **{"poly_attention_type": "sqrt", "embeddings_scale": True},
        **{"learn_positional_embeddings": False, "n_layers": 3, "n_encoder_layers": 2},
    },
    "poly-codes-sqrt": {
        **POLY,
        **{"variant": "prelayernorm", "activation": "gelu", "dict_tokenizer": "re"},
        **{"codes_attention_type": "sqrt", "reduction_type": "max", "output_scaling": 0.5},
        **{"history_size": 2},
    },
    "poly-both-sqrt": {
        **POLY,
        **{"variant": "xlm", "dict_tokenizer": "bytelevelbpe", "poly_n_codes": 1},
        **{"codes_attention_type": "sqrt", "poly_attention_type": "sqrt", "n_segments": 1},
    },
    "poly-n-first": {
        **POLY,
        **{"variant": "bart", "dict_tokenizer": "re", "polyencoder_type": "n_first"},
        **{"poly_n_codes": 9, "dict_lower": False, "delimiter": " __eou__ "},
    },
    "bi-separate": {
        **BI,
        **{"variant": "xlm", "dict_tokenizer": "gpt2", "share_encoders": False},
        **{"reduction_type": "first", "bpe_add_prefix_space": True, "dict_lower": False},
    },
    "bi-shared": {
        **BI,
        **{"variant": "prelayernorm", "dict_tokenizer": "space", "share_encoders": True},
        **{"reduction_type": "mean", "n_segments": 2},
    },
    "bi-words": {
        **BI,
        **{"variant": "aiayn", "dict_tokenizer": "re", "share_encoders": False},
        **{"share_word_embeddings": False, "reduction_type": "max", "normalize_sent_emb": True},
    },
    "ranker": {
        **BI,
        **{"model": "transformer/ranker", "variant": "bart", "dict_tokenizer": "split"},
        **{"share_encoders": True, "dict_lower": False, "force_fp16_tokens": True},
    },
    "cross-first": {
        **CROSS,
        **{"variant": "xlm", "activation": "gelu", "dict_tokenizer": "bpe", "n_segments": 2},
        **{"reduction_type": "first", "dict_lower": False},
    },
    "cross-mean": {
        **CROSS,
        **{"variant": "prelayernorm", "dict_tokenizer": "slow_bytelevel_bpe"},
        **{"reduction_type": "mean", "dict_lower": False},
    },
    "cross-max": {
        **CROSS,
        **{"variant": "aiayn", "dict_tokenizer": "re", "reduction_type": "max"},
    },
}
LARGE = {
    **{**POLY, **PUBLISHED},
    **{"n_layers": 12, "n_heads": 12, "embedding_size": 768, "ffn_size": 3072},
    **{"n_positions": 1024, "text_truncate": 360, "label_truncate": 72, "poly_n_codes": 64},
}
BYTE_LEVEL = ("gpt2", "bytelevelbpe", "slow_bytelevel_bpe")


def make(folder: Path, names: list[str], width: int) -> None:
    """Write the checkpoints of some cases, or of all."""
    import torch

    torch.set_num_threads(1)
    for number, name in enumerate(names or CASES):
        torch.manual_seed(number)
        place = folder.resolve() / name
        place.mkdir(parents=True)
        if name == "published":
            make_one(place, LARGE, filler=54_900)
        else:
            make_one(place, {**CASES[name], "embedding_size": width, "ffn_size": 2 * width})
        print(f"{place}: {(place / 'model').stat().st_size:,} bytes")


def make_one(place: Path, options: dict[str, Any], filler: int = 0) -> None:
    """One checkpoint with its dictionary, and what ParlAI makes of the texts."""
    import torch
    from parlai.core.agents import create_agent
    from parlai.core.params import ParlaiParser

    file = place / "model"
    kind = options["dict_tokenizer"]
    options = {**options, "dict_file": f"{file}.dict", "datatype": "valid", "no_cuda": True}
    if kind in BYTE_LEVEL:
        options |= byte_level(place, kind)
    opt = ParlaiParser(True, True).parse_kwargs(**options)
    if kind not in BYTE_LEVEL:
        make_dictionary(opt, filler)
    opt = ParlaiParser(True, True).parse_kwargs(**options)
    agent = create_agent(opt)
    agent.model.eval()
    with torch.no_grad():
        for name, parameter in agent.model.named_parameters():
            if "norm" in name or "bias" in name:  # these begin at one and zero
                parameter.add_(torch.randn_like(parameter) * 0.2)
    if kind in BYTE_LEVEL:
        Path(opt["dict_file"]).unlink(missing_ok=True)  # ParlAI writes it with the model
    agent.save(str(file))
    strip_places(file.with_suffix(".opt"), place)
    expected = expected_of(agent, options["model"].endswith("crossencoder"))
    text = json.dumps(expected, ensure_ascii=True)
    (place / "expected.json").write_text(text + "\n", encoding="utf-8")
    for extra in [*place.glob("*.dict.opt"), *place.glob("*.trainstats")]:
        extra.unlink()


def strip_places(file: Path, place: Path) -> None:
    """Take the names of this machine's folders out of the options."""
    options = json.loads(file.read_text(encoding="utf-8"))
    here = (str(place), sys.prefix, str(Path.home()))
    kept = {
        name: value
        for name, value in options.items()
        if name not in ("starttime", "parlai_home") and not any(one in str(value) for one in here)
    }
    file.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def make_dictionary(opt: Any, filler: int) -> None:
    """A dictionary of the corpus; with `filler`, of that many made-up words too."""
    from parlai.core.dict import DictionaryAgent

    kind = opt["dict_tokenizer"]
    dictionary = DictionaryAgent({**opt, "dict_maxtokens": 120 if kind == "bpe" else -1})
    for text in CORPUS:
        dictionary.add_to_dict(dictionary.tokenize(text.replace("\n", " ") if filler else text))
    if kind != "bpe":  # leave some words out, so that they are unknown
        for word in list(dictionary.freq)[::5]:
            if not word.startswith("__"):
                del dictionary.freq[word]
    dictionary.save(opt["dict_file"], sort=True)
    if filler:
        with Path(opt["dict_file"]).open("a", encoding="utf-8") as file:
            file.writelines(f"madeup{number}@@\t1\n" for number in range(filler))


def byte_level(place: Path, kind: str) -> dict[str, Any]:
    """The options of a byte-level tokeniser, which is trained on the corpus."""
    from tokenizers import ByteLevelBPETokenizer

    trained = ByteLevelBPETokenizer(add_prefix_space=True)
    trained.train_from_iterator(CORPUS, vocab_size=300, min_frequency=2, show_progress=False)
    if kind == "gpt2":  # ParlAI downloads these two; they are not among a checkpoint's files
        data = place / "gpt2"
        data.mkdir()
        trained.save_model(str(data))
        (data / "vocab.json").rename(data / "encoder.json")
        (data / "merges.txt").rename(data / "vocab.bpe")
        return {"datapath": str(place)}
    trained.save_model(str(place), "model.dict")
    vocab, merges = place / "model.dict-vocab.json", place / "model.dict-merges.txt"
    Path(place / "model.dict").touch()  # so that ParlAI takes the two from beside it
    return {"bpe_vocab": str(vocab), "bpe_merge": str(merges)}


def expected_of(agent: Any, is_cross: bool) -> dict[str, Any]:
    """What an agent makes of the texts: ids of both sides, and scores without any padding."""
    import torch
    from parlai.core.message import Message
    from parlai.core.torch_agent import Batch
    from parlai.utils.torch import concat_without_padding

    contexts, candidates, pairs, scores = [], [], [], []
    for turns in TURNS:
        agent.history.reset()
        for turn in turns:
            agent.history.update_history({"text": turn})
        observed = Message({"text": turns[-1], "label_candidates": CANDIDATES})
        limits = {"text_truncate": agent.text_truncate, "label_truncate": agent.label_truncate}
        observed = agent.vectorize(observed, agent.history, **limits)
        context = observed["text_vec"]
        vectors = observed["label_candidates_vecs"]
        contexts.append(context.tolist())
        candidates = [one.tolist() for one in vectors]
        batch = Batch(text_vec=context[None])
        with torch.no_grad():
            # given three axes, ParlAI's cosine of a bi-encoder is taken over the wrong one
            alone = [one[None, None] if is_cross else one[None] for one in vectors]
            row = [agent.score_candidates(batch, one).item() for one in alone]
        scores.append(row)
        if is_cross:
            joined = [
                concat_without_padding(context[None], one[None], False, agent.NULL_IDX)
                for one in vectors
            ]
            pairs.append([[ids[0].tolist(), kinds[0].tolist()] for ids, kinds in joined])
    return {
        "turns": TURNS,
        "candidates": CANDIDATES,
        "dictionary_size": len(agent.dict),
        "context_ids": contexts,
        "candidate_ids": candidates,
        "pairs": pairs,
        "scores": scores,
    }


def compare(folder: Path) -> bool:
    """Import every checkpoint below a folder, print the differences, and whether there are none."""
    from polyrank.interop.parlai.importing import import_checkpoint
    from polyrank.models.checkpoint import load_model

    fits = True
    print(f"{'checkpoint':<20}{'ids':>10}{'largest difference':>22}{'seconds':>10}")
    for file in sorted(folder.glob("*/expected.json")):
        expected = json.loads(file.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as temporary:
            start = time.perf_counter()
            import_checkpoint(file.parent, Path(temporary) / "model")
            seconds = time.perf_counter() - start
            model: Any = load_model(Path(temporary) / "model", device="cpu", dtype="float32")
            same = ids_of(model, expected) == ids_expected(expected)
            found = model.score(expected["turns"], expected["candidates"]).tolist()
        worst = max(
            abs(one - other)
            for row, others in zip(found, expected["scores"], strict=True)
            for one, other in zip(row, others, strict=True)
        )
        largest = max(abs(score) for row in expected["scores"] for score in row)
        fits &= same and worst <= 1e-5 * max(largest, 1)
        words = "equal" if same else "differ"
        print(f"{file.parent.name:<20}{words:>10}{worst:>22.2e}{seconds:>10.2f}")
    return fits


def ids_expected(expected: dict[str, Any]) -> list[Any]:
    """The token ids that ParlAI gave."""
    if expected["pairs"]:
        return [pair for row in expected["pairs"] for pair in row]
    return [*expected["context_ids"], *expected["candidate_ids"]]


def ids_of(model: Any, expected: dict[str, Any]) -> list[Any]:
    """The token ids that an imported model gives; what stands for "unknown" is the unknown."""
    size = expected["dictionary_size"]
    backend = model.tokenizer.pretrained.backend_tokenizer
    number = backend.token_to_id(backend.model.unk_token or "")

    def known(ids: list[int]) -> list[int]:
        return [one if one < size else number for one in ids]

    turns, candidates = expected["turns"], expected["candidates"]
    if model.architecture == "cross":
        contexts = [context for context in turns for _ in candidates]
        ids, segments = model.encode_pairs(contexts, candidates * len(turns))
        return [[known(one), kinds] for one, kinds in zip(ids, segments, strict=True)]
    return [known(one) for one in (*model.context_ids(turns), *model.candidate_ids(candidates))]


def main() -> int:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("make", "compare"))
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument(
        "names", nargs="*", help="the checkpoints to make; by default, all small ones"
    )
    parser.add_argument("--width", type=int, default=8, help="the width of the small encoders")
    parser.add_argument("--parlai-python", help="the Python of ParlAI's environment")
    given = parser.parse_args()
    if given.command == "make":
        make(given.folder, given.names, given.width)
        return 0
    if given.parlai_python is None:
        return 0 if compare(given.folder) else 1
    with tempfile.TemporaryDirectory() as temporary:
        command = [given.parlai_python, __file__, "make", temporary, "--width", str(given.width)]
        subprocess.run([*command, *given.names], check=True, stdout=sys.stderr)
        return 0 if compare(Path(temporary)) else 1


if __name__ == "__main__":
    raise SystemExit(main())

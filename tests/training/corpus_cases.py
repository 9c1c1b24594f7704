"""Pairs as a corpus gives them, and a tiny model that is pre-trained on them."""

from polyrank.pretraining.pairs import Pair
from polyrank.tokens.masking_config import MaskingConfig
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.registry import ObjectiveConfig, build
from polyrank.training.pretraining.config import PretrainingConfig
from polyrank.training.pretraining.corpora import CorpusPairs
from tiny_encoders import WORDS, load_variant

TASKS = "ict,bfs,wlp,mlm,next_sentence,next_utterance,cmae"
APART = ("ict", "bfs", "wlp")


def pair_of(number):
    """A pair of one of seven tasks in turn; some of them answer one another."""
    word = WORDS[15 + number % 20]
    task = TASKS.split(",")[number % 7]
    second = f"the {word} and the {WORDS[number % 11]}"
    if task in APART:
        return Pair(
            task,
            f"how do i {word}",
            second,
            second_title=f"about {WORDS[number % 7]}",
            wanted=frozenset({number % 4}),
            answers=frozenset({number % 4, 10 + number % 5}),
            frequency=1.0 + number % 3,
        )
    label = None if task in ("mlm", "cmae") else number % 2
    is_talk = task in ("next_utterance", "cmae")
    first = ("hello", f"no {word} here") if is_talk else f"some words of {word}"
    reading = "decoded" if task == "cmae" else "joined"
    return Pair(task, first, second, label=label, reading=reading)


class Endless:
    """Pairs of some tasks in turn; `one_sided`, six of the in-batch softmax and then none."""

    def __init__(self, tasks, one_sided):
        self.turns = [turn for turn, task in enumerate(TASKS.split(",")) if task in tasks]
        self.one_sided = one_sided

    def __getitem__(self, number):
        if not self.one_sided:
            around, turn = divmod(number, len(self.turns))
            return pair_of(7 * around + self.turns[turn])
        return pair_of(7 * number + number % 3 if number < 6 else 7 * number + 3 + number % 4)


def records_of(count=24, *, held_out=12, tasks=TASKS, logq=True, one_sided=False):
    config = PretrainingConfig(tasks=tasks, logq=logq)
    apart = {name: [] for name in config.weights}
    for number in range(1001, 1001 + 7 * held_out):
        pair = pair_of(number)
        if pair.task in apart:
            apart[pair.task].append(pair)
    return CorpusPairs(
        Endless(config.weights, one_sided),
        count,
        config=config,
        readings={pair_of(n).reading for n in range(7) if pair_of(n).task in config.weights},
        masking=MaskingConfig(),
        fingerprint=f"corpus of {count}",
        held_out=apart,
    )


def pretraining_of(
    folder,
    *,
    cache="never",
    batch_tokens=60,
    double=True,
    shared_towers=True,
    projection=8,
    **settings,
):
    """The module in float64, the collator and the data set; what measures, and what chooses."""
    records = records_of(**settings)
    model = load_variant(
        "bi", folder, shared_towers=shared_towers, projection=projection, max_context_length=20
    )
    objective = ObjectiveConfig(gradient_cache=cache, logq=True)
    config = TrainingConfig(train_batch_tokens=batch_tokens)
    setup = build(model, records, config, objective)
    if double:
        setup.module.double()
    return setup

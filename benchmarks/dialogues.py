"""The dialogue sets that training is measured on: examples to train on, dev examples to rank.

DATA is the folder that holds the sets: ubuntu_irc, sgd, korean_chatbot. The dev examples have 20
candidates of their own. Training replies of ubuntu_irc have at least 3 words. A reply of sgd is a
turn of the system after its last turns, as in the dev examples.
"""

from __future__ import annotations

from pathlib import Path

from polyrank.data.json_files import read_json_lines
from polyrank.data.loading import load_examples
from polyrank.records import Example

SETS = ("ubuntu_irc", "sgd", "korean_chatbot")
FEWEST_WORDS = 3
SGD_TRAINING = Path("sgd", "dialogs.train.jsonl.xz")
SGD_TURNS = 10
SGD_FIRST = 3
"""The first turn of an sgd dialogue that is a reply."""


def training_examples(data: Path, name: str) -> list[Example]:
    """The examples of a set to train on."""
    if name == "sgd":
        return sgd_examples(data / SGD_TRAINING)
    examples = load_examples(data / name / "train.jsonl.xz")
    if name == "ubuntu_irc":
        return [each for each in examples if len(each.response.split()) >= FEWEST_WORDS]
    return examples


def grouped_training_examples(data: Path, name: str) -> list[tuple[str, Example]]:
    """The training examples of ubuntu_irc or sgd, each with the group that it must not leave.

    A group of ubuntu_irc is a day of the channel, one of sgd the first service of the dialogue.
    """
    examples = [(conversation_of(each), each) for each in training_examples(data, name)]
    if name != "sgd":
        return examples
    services = {
        dialogue["id"]: dialogue["services"][0]
        for _, dialogue in read_json_lines(data / SGD_TRAINING)
    }
    return [(services[dialogue], each) for dialogue, each in examples]


def conversation_of(example: Example) -> str:
    """The day or the dialogue that an example is from: its id before the last colon."""
    assert example.id is not None
    return example.id.rpartition(":")[0]


def dev_examples(data: Path, name: str, limit: int | None = None) -> list[Example]:
    """The dev examples of a set, or its first `limit`."""
    return load_examples(data / name / "dev.jsonl.xz", limit=limit)


def sgd_examples(path: Path) -> list[Example]:
    """The system's turns of whole dialogues, each with the turns before it."""
    examples = []
    for _, dialogue in read_json_lines(path):
        turns = [turn["text"] for turn in dialogue["turns"]]
        for place in range(SGD_FIRST, len(turns), 2):
            context = tuple(turns[max(place - SGD_TURNS, 0) : place])
            name = f"{dialogue['id']}:{place}"
            examples.append(Example(id=name, context=context, response=turns[place]))
    return examples

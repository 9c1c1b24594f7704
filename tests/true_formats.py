"""A small file in the true form of each format, and what is in it."""

import json
from dataclasses import dataclass, field

from polyrank.records import Example, LabelledPair

T = "\t"
PERSONA = ("your persona: i like to ski.", "your persona: i have a dog.")


def convai2():
    candidates = ["no , why ?", "i am a nurse .", "great , just skied ."]
    more = ["what a pity .", "he is called rex .", "me too"]
    return "\n".join(
        [
            "1 your persona: i like to ski.",
            "2 your persona: i have a dog.",
            f"3 hi , how are you ?{T}great , just skied .{T}{T}{'|'.join(candidates)}",
            f"4 any pets ?{T}he is called rex .{T}{T}{'|'.join(more)}",
            "1 your persona: i read.",
            f"2 __SILENCE__{T}hello{T}{T}hello|bye",
        ]
    )


CONVAI2_TURNS = (
    ("hi , how are you ?", "great , just skied ."),
    ("any pets ?", "he is called rex ."),
)


def convai2_examples(persona):
    (first, reply), (second, answer) = CONVAI2_TURNS
    start = PERSONA if persona else ()
    return [
        Example(
            context=(*start, first),
            response=reply,
            candidates=("no , why ?", "i am a nurse .", reply),
            gold=2,
        ),
        Example(
            context=(*start, first, reply, second),
            response=answer,
            candidates=("what a pity .", answer, "me too"),
            gold=1,
        ),
        Example(
            context=("your persona: i read.",) if persona else ("__SILENCE__",),
            response="hello",
            candidates=("hello", "bye"),
            gold=0,
        ),
    ]


def parlai():
    return "\n".join(
        [
            rf"text:your persona: I ski.\nHello!{T}labels:Hi|Hey{T}label_candidates:Bye|Hi|Hey|Tea",
            f"text:A__PIPE__B?{T}labels:both{T}episode_done:True",
            f"id:task{T}text:New one{T}labels:yes{T}episode_done:True",
        ]
    )


UBUNTU_TRAIN = """Context,Utterance,Label
"is wine "", good ? __eou__ try it __eou__ __eot__ ok __eou__ __eot__ ",so __eou__ bye __eou__,1.0
"is wine good ? __eou__ __eot__ ",wrong reply __eou__,0
"""
DISTRACTORS = [f"Distractor_{n}" for n in range(9)]
UBUNTU_TEST = f"""Context,Ground Truth Utterance,{",".join(DISTRACTORS)}
"hi __eou__ __eot__ ",hello __eou__,{",".join(f"wrong {n} __eou__" for n in range(9))}
"""


def said(*texts):
    return [{"speaker": f"participant_{1 + n % 2}", "utterance": t} for n, t in enumerate(texts)]


def options(*texts):
    return [{"candidate-id": f"ID{text}", "utterance": text} for text in texts]


def dialogue(identifier, context, answer, candidates):
    return {
        "data-split": "train",
        "example-id": identifier,
        "messages-so-far": said(*context),
        "options-for-correct-answers": options(answer),
        "options-for-next": options(*candidates),
        "scenario": 1,
    }


DIALOGUES = [
    dialogue(17, ("a", "b", "c"), "d", ("x", "d", "y")),
    dialogue(18, ("e",), "f", ("f", "x")),
]
DSTC7_EXAMPLES = [
    Example(id="17", context=("a", "b", "c"), response="d", candidates=("x", "d", "y"), gold=1),
    Example(id="18", context=("e",), response="f", candidates=("f", "x"), gold=0),
]
DSTC7_AUGMENTED = [
    Example(id="17:1", context=("a",), response="b"),
    Example(id="17:2", context=("a", "b"), response="c"),
    *DSTC7_EXAMPLES,
]

SNLI = [
    {"gold_label": "neutral", "sentence1": "A man.", "sentence2": "An old man.", "pairID": "1n"},
    {"gold_label": "-", "sentence1": "A man.", "sentence2": "A cat.", "pairID": "2n"},
    {"gold_label": "entailment", "sentence1": "A man.", "sentence2": "A person.", "pairID": "3e"},
]
SNLI_PAIRS = [
    LabelledPair(first="A man.", second="An old man.", label=2, class_name="neutral"),
    LabelledPair(first="A man.", second="A person.", label=1, class_name="entailment"),
]
KORNLI = f"""sentence1{T}sentence2{T}gold_label
그는 "집에{T}그는 갔다{T}contradiction
여자{T}사람{T}entailment
"""
STSB = f"""main-captions{T}MSRvid{T}2012test{T}0001{T}5.000{T}A plane "is{T}A plane
main-captions{T}MSRvid{T}2012test{T}0004{T}3.80{T}A man{T}A boy{T}source{T}source
"""
STSB_PAIRS = [
    LabelledPair(first='A plane "is', second="A plane", label=1.0),
    LabelledPair(first="A man", second="A boy", label=0.76),
]
KORSTS = f"""genre{T}filename{T}year{T}id{T}score{T}sentence1{T}sentence2
main-captions{T}MSRvid{T}2012test{T}0001{T}2.500{T}비행기{T}비행기가
"""

PARAGRAPH = "Dr. Smith lives in Paris. He was born in 1950. It is known!"
SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "Smith",
            "paragraphs": [
                {
                    "context": PARAGRAPH,
                    "qas": [
                        {
                            "id": "q1",
                            "question": " When was he born?",
                            "answers": [
                                {"text": "1950", "answer_start": PARAGRAPH.index("1950")},
                                {"text": "in 1950", "answer_start": PARAGRAPH.index("in 1950")},
                            ],
                        },
                        {"id": "q2", "question": "Who?", "answers": [], "is_impossible": True},
                    ],
                }
            ],
        }
    ],
}
DOCUMENT = (
    "<H1> Smith </H1> <P> Smith lives in <B> Paris </B> . He was born in 1950 . </P> <P> No . </P>"
)
TOKENS = DOCUMENT.split(" ")
NATURAL_QUESTION = {
    "example_id": 55,
    "question_text": "when was smith born",
    "document_text": DOCUMENT,
    "annotations": [
        {
            "long_answer": {"start_token": 3, "end_token": TOKENS.index("</P>") + 1},
            "short_answers": [
                {"start_token": TOKENS.index("1950"), "end_token": TOKENS.index("1950") + 1}
            ],
            "yes_no_answer": "NONE",
        }
    ],
}
UNANSWERED = {
    **NATURAL_QUESTION,
    "example_id": 56,
    "annotations": [{"long_answer": {"start_token": -1, "end_token": -1}, "short_answers": []}],
}
BEIR = {
    "corpus.jsonl": [
        {"_id": "d1", "title": "Cats", "text": "sleep.", "metadata": {}},
        {"_id": "d2", "title": "", "text": "Dogs bark."},
    ],
    "queries.jsonl": [
        {"_id": "q1", "text": "who sleeps"},
        {"_id": "q2", "text": "who barks"},
        {"_id": "q3", "text": "who"},
    ],
    "qrels/train.tsv": f"query-id{T}corpus-id{T}score\nq1{T}d1{T}1\nq1{T}d2{T}0\n",
    "qrels/test.tsv": f"query-id{T}corpus-id{T}score\nq2{T}d2{T}2\nq1{T}d1{T}1\n",
}


def lines(records):
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


@dataclass(frozen=True)
class Fixture:
    """One file, and the records in it; for a corpus, its parts."""

    format: str
    name: str
    text: str
    records: list = field(default_factory=list)
    training: list | None = None
    passed_over: str | None = None


FIXTURES = [
    Fixture(
        "examples",
        "own.jsonl",
        lines([{"context": ["a", "b"], "response": "c", "negatives": ["d"], "scores": [2, -1.5]}]),
        [Example(context=("a", "b"), response="c", negatives=("d",), scores=(2.0, -1.5))],
    ),
    Fixture("convai2", "train_self_original.txt", convai2(), convai2_examples(True)),
    Fixture("convai2-no-persona", "persona.txt", convai2(), convai2_examples(False)),
    Fixture(
        "parlai",
        "dialogue.txt",
        parlai(),
        [
            Example(
                context=("your persona: I ski.", "Hello!"),
                response="Hi",
                candidates=("Bye", "Hi", "Tea"),
                gold=1,
            ),
            Example(context=("your persona: I ski.", "Hello!", "Hi", "A|B?"), response="both"),
            Example(context=("New one",), response="yes"),
        ],
    ),
    Fixture(
        "ubuntu-v2",
        "train.csv",
        UBUNTU_TRAIN,
        [Example(context=('is wine ", good ? try it', "ok"), response="so bye")],
        passed_over="1 row labelled 0",
    ),
    Fixture(
        "ubuntu-v2",
        "test.csv",
        UBUNTU_TEST,
        [
            Example(
                context=("hi",),
                response="hello",
                candidates=("hello", *(f"wrong {n}" for n in range(9))),
                gold=0,
            )
        ],
    ),
    Fixture("dstc7", "ubuntu_dev_subtask_1.json", json.dumps(DIALOGUES, indent=2), DSTC7_EXAMPLES),
    Fixture(
        "dstc7-augmented",
        "ubuntu_train_subtask_1.json",
        json.dumps(DIALOGUES),
        DSTC7_EXAMPLES,
        training=DSTC7_AUGMENTED,
    ),
    Fixture(
        "tab",
        "valid.txt",
        f"1{T}a{T}b{T}yes\n0{T}a{T}b{T}no\n0{T}a{T}b{T}never\n0{T}c{T}no\n",
        [
            Example(
                context=("a", "b"),
                response="yes",
                candidates=("yes", "no", "never"),
                gold=0,
                negatives=("no", "never"),
            )
        ],
        passed_over="1 context without a response labelled 1",
    ),
    Fixture(
        "wikipedia",
        "wikipedia_test10k.txt",
        f"cats sleep .{T}they purr .\nalone\n",
        [Example(context="cats sleep .", response="they purr .")],
        passed_over="1 article of fewer than 2 sentences",
    ),
    Fixture(
        "wikipedia",
        "wiki.jsonl",
        lines([{"id": "7", "title": "Cat", "text": "Cat\n\nCats sleep. They purr."}]),
        [Example(id="7", context="Cats sleep.", response="Cat They purr.")],
    ),
    Fixture(
        "nli", "snli_dev.jsonl", lines(SNLI), SNLI_PAIRS, passed_over="1 row with the label '-'"
    ),
    Fixture(
        "nli",
        "snli_dev.txt",
        "\n".join(T.join(row) for row in [list(SNLI[0]), *(row.values() for row in SNLI)]),
        SNLI_PAIRS,
        passed_over="1 row with the label '-'",
    ),
    Fixture(
        "nli",
        "multinli.train.ko.tsv",
        KORNLI,
        [
            LabelledPair(
                first='그는 "집에', second="그는 갔다", label=0, class_name="contradiction"
            ),
            LabelledPair(first="여자", second="사람", label=1, class_name="entailment"),
        ],
    ),
    Fixture("sts", "sts-dev.csv", STSB, STSB_PAIRS),
    Fixture(
        "sts",
        "sts-dev.tsv",
        KORSTS,
        [LabelledPair(first="비행기", second="비행기가", label=0.5)],
    ),
    Fixture(
        "sts",
        "sts.jsonl",
        lines([{"sentence1": "a", "sentence2": "b", "score": 4}]),
        [LabelledPair(first="a", second="b", label=0.8)],
    ),
    Fixture(
        "pairs",
        "classes.csv",
        "id,first,second,label\n1,a,b,2\n2,c,d,0\n",
        [
            LabelledPair(id="1", first="a", second="b", label=2),
            LabelledPair(id="2", first="c", second="d", label=0),
        ],
    ),
    Fixture(
        "pairs",
        "scores.jsonl",
        lines(
            [
                {"first": ["a", "b"], "second": "c", "label": 1},
                {"first": "d", "second": "e", "label": 0.25},
            ]
        ),
        [
            LabelledPair(first=("a", "b"), second="c", label=1.0),
            LabelledPair(first="d", second="e", label=0.25),
        ],
    ),
    Fixture(
        "table",
        "faq.csv",
        'question,answer\n"How, then?","So.\nAnd so."\nWhy?,Because.\n',
        [
            Example(context="How, then?", response="So.\nAnd so."),
            Example(context="Why?", response="Because."),
        ],
    ),
    Fixture(
        "table",
        "faq.tsv",
        f'query{T}answer{T}negative\n"How{T}So.{T}No.\n',
        [Example(context='"How', response="So.", negatives=("No.",))],
    ),
    Fixture(
        "table",
        "faq.json",
        json.dumps([{"question": "Q", "answer": "A"}]),
        [Example(context="Q", response="A")],
    ),
    Fixture(
        "squad", "dev-v2.0.json", json.dumps(SQUAD), passed_over="1 question without an answer"
    ),
    Fixture(
        "natural-questions",
        "v1.0-simplified.jsonl",
        lines([NATURAL_QUESTION, UNANSWERED]),
        passed_over="1 question without a short answer in a paragraph",
    ),
]


def write_beir(folder, parts=BEIR):
    for name, part in parts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(part if isinstance(part, str) else lines(part), encoding="utf-8")
    return folder

"""Reddit comment dumps: joined into conversations, cleaned, and read as they lie."""

from __future__ import annotations

import bz2
import json
import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrank.errors import DataError, StorageError, UsageError
from polyrank.pretraining.corpus import reddit_comments as comments
from polyrank.pretraining.corpus import reddit_trees as trees
from polyrank.pretraining.corpus.reddit import number_of_groups, read_dumps
from polyrank.pretraining.corpus.reddit_comments import Comment, Rules, clean, read_item
from polyrank.pretraining.corpus.reddit_trees import Groups
from polyrank.pretraining.corpus.source import Dropped
from polyrank.records import Conversation, Turn


def line(identifier, parent, body="Some words.", *, link="t3_p", author="ann", **others):
    fields = {"id": identifier, "parent_id": parent, "link_id": link, "author": author}
    fields |= {"body": body, "subreddit": "linux", "created_utc": 1561939200, "score": 1}
    return json.dumps(fields | others)


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def parted(*paths, **settings):
    found = list(read_dumps(paths, **settings))
    kept = [item for item in found if isinstance(item, Conversation)]
    return kept, [item for item in found if isinstance(item, Dropped)]


def paths(path, **rules):
    kept, dropped = parted(path, rules=Rules(**rules))
    return [conversation.id.partition("/")[2] for conversation in kept], dropped


THREAD = (
    line("a", "t3_p", "Which shell do you use?"),
    line("b", "t1_a", "I use fish.", author="bob"),
    line("x", "t3_q", "Another thread.", link="t3_q"),
    line("c", "t1_a", "I use zsh.", author="cy"),
    line("d", "t1_b", "Why is that?"),
    line("y", "t1_x", "And its reply.", link="t3_q", author="[deleted]"),
    line("e", "t1_d", "It is friendly.", author="bob"),
)


def test_each_path_from_root_to_leaf_is_a_conversation(tmp_path):
    kept, dropped = parted(write(tmp_path / "RC", *THREAD))
    assert kept == [
        Conversation(
            "t3_p/e",
            (
                Turn("ann", "Which shell do you use?"),
                Turn("bob", "I use fish."),
                Turn("ann", "Why is that?"),
                Turn("bob", "It is friendly."),
            ),
        ),
        Conversation("t3_p/c", (Turn("ann", "Which shell do you use?"), Turn("cy", "I use zsh."))),
        Conversation("t3_q/y", (Turn("ann", "Another thread."), Turn("", "And its reply."))),
    ]
    assert dropped == []


def test_each_comment_with_its_parents_can_be_one(tmp_path):
    path = write(tmp_path / "RC", *THREAD)
    assert paths(path, every_comment=True)[0] == ["b", "d", "e", "c", "y"]
    assert paths(path, every_comment=True, fewest_turns=1)[0] == list("abdecxy")


def test_depth_is_limited_and_what_is_below_is_counted(tmp_path):
    kept, dropped = paths(write(tmp_path / "RC", *THREAD), most_turns=2)
    assert kept == ["b", "c", "y"]
    assert dropped == [Dropped(trees.DEEP, "t3_p/d"), Dropped(trees.DEEP, "t3_p/e")]


def test_a_dropped_comment_takes_what_is_below_it(tmp_path):
    lines = [line("b", "t1_a", "[removed]") if '"b"' in text else text for text in THREAD]
    kept, dropped = paths(write(tmp_path / "RC", *lines))
    assert kept == ["c", "y"]
    assert dropped == [
        Dropped(comments.DELETED, "t3_p/b"),
        Dropped(trees.BELOW, "t3_p/d"),
        Dropped(trees.BELOW, "t3_p/e"),
    ]


def test_a_path_ends_before_replies_that_were_all_dropped(tmp_path):
    lines = [line("e", "t1_d", "[deleted]") if '"e"' in text else text for text in THREAD]
    assert paths(write(tmp_path / "RC", *lines))[0] == ["d", "c", "y"]


def test_a_parent_of_another_month_is_not_needed(tmp_path):
    kept, dropped = paths(write(tmp_path / "RC", *THREAD[1:]))
    assert kept == ["e", "y"]
    assert dropped == [Dropped(trees.ALONE, "t3_p/c")]


def test_comments_that_come_twice_or_answer_themselves_are_dropped(tmp_path):
    loop = [line("m", "t1_n", link="t3_r"), line("n", "t1_m", link="t3_r"), line("o", "t1_o")]
    kept, dropped = paths(write(tmp_path / "RC", *THREAD, THREAD[1], *loop))
    assert kept == ["e", "c", "y"]
    assert Counter(item.reason for item in dropped) == {trees.TWICE: 1, trees.CIRCLE: 3}


def post(identifier, title="Shells, again", selftext="", *, author="op", **others):
    fields = {"id": identifier, "author": author, "title": title, "selftext": selftext}
    return json.dumps(fields | {"subreddit": "linux", "num_comments": 3, "is_self": True} | others)


def dumps(folder, posts, lines=THREAD):
    return write(folder / "RC_2019-06", *lines), write(folder / "RS_2019-06", *posts)


@pytest.mark.parametrize("posts_first", [False, True])
def test_a_post_is_the_first_turn_of_what_answers_it(tmp_path, posts_first):
    given = dumps(tmp_path, [post("p", "Shells &amp; you", "So many!\n\n&gt; quoted")])
    kept, dropped = parted(*(reversed(given) if posts_first else given))
    first = Turn("op", "Shells & you\nSo many!")
    assert [(one.id, one.turns[0]) for one in kept if one.id.startswith("t3_p")] == [
        ("t3_p/e", first),
        ("t3_p/c", first),
    ]
    assert [turn.text for turn in kept[0].turns[1:3]] == ["Which shell do you use?", "I use fish."]
    assert [one.turns[0].text for one in kept if one.id == "t3_q/y"] == ["Another thread."]
    assert dropped == []


def test_a_comment_without_replies_is_a_reply_to_its_post(tmp_path):
    given = dumps(tmp_path, [post("z"), post("w")], [line("a", "t3_z", link="t3_z")])
    kept, dropped = parted(*given)
    assert [[turn.text for turn in one.turns] for one in kept] == [["Shells, again", "Some words."]]
    assert dropped == [Dropped(trees.ALONE, "t3_w")]


def test_the_post_does_not_count_among_the_comments_of_a_path(tmp_path):
    given = dumps(tmp_path, [post("p")])
    kept, dropped = parted(*given, rules=Rules(most_turns=2))
    assert [len(one.turns) for one in kept] == [3, 3, 2]
    assert {item.where for item in dropped} == {"t3_p/d", "t3_p/e"}


@pytest.mark.parametrize(
    ("fields", "text", "reason"),
    [
        ({}, "Shells, again", ""),
        ({"selftext": "[removed]"}, "Shells, again", ""),
        ({"selftext": None}, "Shells, again", ""),
        ({"selftext": "word " * 200}, "Shells, again", ""),
        ({"selftext": "A **bold** one"}, "Shells, again\nA bold one", ""),
        ({"title": "> Shells\u200b  again"}, "> Shells again", ""),
        ({"title": "[deleted by user]"}, None, comments.DELETED),
        ({"title": None}, None, comments.DELETED),
        ({"title": "lol"}, None, comments.SHORT),
        ({"author": "AutoModerator"}, None, comments.BOT),
    ],
)
def test_what_becomes_of_a_post(fields, text, reason):
    record = json.loads(post("p")) | fields
    found, why = read_item(json.dumps(record).encode(), Rules())
    assert (found.link, found.id, found.text, why) == ("t3_p", "t3_p", text, reason)
    assert read_item(json.dumps(record | {"id": 3}).encode(), Rules()) == (None, comments.BROKEN)


def test_a_dropped_post_takes_its_thread_with_it(tmp_path):
    kept, dropped = parted(*dumps(tmp_path, [post("p", author="AutoModerator")]))
    assert [one.id for one in kept] == ["t3_q/y"]
    assert Counter(item.reason for item in dropped) == {comments.BOT: 1, trees.BELOW: 5}


def test_posts_alone_ask_for_their_comments(tmp_path):
    path = write(tmp_path / "RS_2019-06", post("p"))
    with pytest.raises(DataError, match=r"posts but no comments.*RC_") as caught:
        parted(path)
    assert caught.value.path == str(path)


def test_a_very_deep_thread_needs_no_recursion(tmp_path):
    lines = [line("0", "t3_p")] + [line(str(n), f"t1_{n - 1}") for n in range(1, 3000)]
    kept, dropped = parted(write(tmp_path / "RC", *lines), rules=Rules(most_turns=5000))
    assert [len(conversation.turns) for conversation in kept] == [3000]
    assert dropped == []


@settings(max_examples=30, deadline=None)
@given(
    parents=st.lists(st.integers(0, 30), max_size=30),
    order=st.randoms(use_true_random=False),
    number=st.integers(1, 5),
)
def test_every_comment_is_in_a_path_whatever_the_order_and_the_groups(
    tmp_path_factory, parents, order, number
):
    # comment n answers an earlier one, or its post where it would answer itself
    above = {
        f"c{n}": f"c{given}" if given < n else f"t3_{given}" for n, given in enumerate(parents)
    }
    posts = {}
    for name, parent in above.items():
        posts[name] = posts.get(parent, parent)
    found = [
        Comment(posts[name], name, parent if parent[0] == "t" else f"t1_{parent}", "", name)
        for name, parent in above.items()
    ]
    order.shuffle(found)
    groups = Groups(tmp_path_factory.mktemp("groups"), number, buffered=200)
    for comment in found:
        groups.add(comment)
    rules = Rules(fewest_turns=1, most_turns=100)
    made = [item for thread in groups.threads() for item in trees.conversations(thread, rules)]
    chains = [[turn.text for turn in conversation.turns] for conversation in made]
    for chain in chains:
        assert above[chain[0]].startswith("t3_")
        assert all(above[after] == before for before, after in pairwise(chain))
    leaves = set(above) - set(above.values())
    assert sorted(chain[-1] for chain in chains) == sorted(leaves)
    assert {name for chain in chains for name in chain} == set(above)
    assert not any(groups.folder.iterdir())


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("&gt; What he said\n\nI don&#39;t &amp; won&#x27;t.", "I don't & won't."),
        ("&gt;quoted\n&gt; more\n\nYes.\n\n&gt; again\n\nNo.", "Yes.\nNo."),
        (">!a spoiler!< follows", "a spoiler follows"),
        ('See [the manual](https://a.b/c_(d) "title") first.', "See the manual first."),
        ("See [](https://a.b/c).", "See https://a.b/c."),
        ("**Bold** and ~~struck~~ and snake_case_name", "Bold and struck and snake_case_name"),
        ("# Heading\n\n* one\n* two\n\n---\n\nend", "Heading\none\ntwo\nend"),
        ("&#x200B;\n\na&nbsp;&nbsp;b\t c", "a b c"),
        ("1 &amp;lt; 2", "1 &lt; 2"),
        ("half \ud83d", "half \ufffd"),
    ],
)
def test_bodies_are_cleaned(body, text):
    assert clean(body) == text


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"body": "[deleted]"}, comments.DELETED),
        ({"body": " [removed] "}, comments.DELETED),
        ({"body": "[ Removed by Reddit ]"}, comments.DELETED),
        ({"body": None}, comments.DELETED),
        ({"author": "AutoModerator"}, comments.BOT),
        ({"author": "haiku_bot"}, comments.BOT),
        ({"author": "RemindMeBot"}, comments.BOT),
        ({"author": "gifv-bot2"}, comments.BOT),
        ({"author": "bottomless"}, ""),
        ({"author": "abbotsford"}, ""),
        ({"author": "[deleted]"}, ""),
        ({"author": None}, ""),
        ({"body": "https://a.b/c"}, comments.LINKS),
        ({"body": "[](https://a.b) , www.c.d!"}, comments.LINKS),
        ({"body": "See https://a.b/c"}, ""),
        ({"body": "&gt; only theirs"}, comments.QUOTE),
        ({"body": "lol"}, comments.SHORT),
        ({"body": "word " * 129}, comments.LONG),
        ({"body": "word " * 128}, ""),
        ({"body": "x" * 2049}, comments.LONG),
        ({"id": None}, comments.BROKEN),
        ({"link_id": ""}, comments.BROKEN),
        ({"parent_id": 12}, comments.BROKEN),
    ],
)
def test_what_is_dropped_and_why(fields, reason):
    record = json.loads(line("a", "t3_p")) | fields
    comment, found = read_item(json.dumps(record).encode(), Rules())
    assert found == reason
    assert (comment is None) == (reason == comments.BROKEN)
    assert comment is None or (comment.text is None) == bool(reason)


def test_rules_on_links_and_subreddits():
    text = line("a", "t3_p", "See https://a.b/c").encode()
    assert read_item(text, Rules(links=False))[1] == comments.WITH_LINK
    assert read_item(text, Rules(subreddits=frozenset(["linux"])))[1] == ""
    assert read_item(text, Rules(subreddits=frozenset(["gnu"])))[1] == comments.ELSEWHERE


def test_broken_lines_are_dropped_and_counted(tmp_path):
    broken = (
        '{"id": "z", "body": "cut o',
        "\udc80".encode("utf-8", "surrogatepass").decode("latin1"),
    )
    kept, dropped = parted(write(tmp_path / "RC", broken[0], "", *THREAD, broken[1], "[" * 100_000))
    assert len(kept) == 3
    assert [item for item in dropped if item.reason == comments.BROKEN] == [
        Dropped(comments.BROKEN, "RC, line 1"),
        Dropped(comments.BROKEN, "RC, line 10"),
        Dropped(comments.BROKEN, "RC, line 11"),
    ]


def test_a_file_of_another_kind_is_refused_early(tmp_path):
    other = json.dumps({"id": "p", "name": "A page", "text": "Words."})
    path = write(tmp_path / "RC", *[other] * 1000)
    reading = read_dumps([path])
    with pytest.raises(DataError, match="None of the first 100 lines is a comment") as caught:
        list(reading)
    assert caught.value.path == str(path)
    (tmp_path / "empty").touch()
    with pytest.raises(DataError, match="The file is empty"):
        list(read_dumps([tmp_path / "empty"]))
    with pytest.raises(DataError, match="There is no such file"):
        list(read_dumps([tmp_path / "none"]))


def test_lengths_that_no_conversation_has_are_refused(tmp_path):
    with pytest.raises(UsageError, match="fewest_turns is 3, most_turns 2"):
        list(read_dumps([tmp_path / "RC"], rules=Rules(fewest_turns=3, most_turns=2)))


def test_a_scratch_folder_that_is_none_is_named(tmp_path):
    with pytest.raises(StorageError, match="nowhere"):
        list(read_dumps([write(tmp_path / "RC", *THREAD)], scratch=tmp_path / "nowhere"))


def test_scratch_is_empty_afterwards_and_when_reading_stops(tmp_path):
    path = write(tmp_path / "RC", *THREAD)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    list(read_dumps([path], scratch=scratch))
    assert not any(scratch.iterdir())
    reading = read_dumps([path], scratch=scratch)
    next(reading)
    assert any(scratch.iterdir())
    reading.close()
    assert not any(scratch.iterdir())


def test_bz2_dumps_of_older_months(tmp_path):
    path = tmp_path / "RC_2009-01.bz2"
    path.write_bytes(bz2.compress("\n".join(THREAD).encode()))
    assert len(parted(path)[0]) == 3


def test_a_large_dump_is_parted_into_many_groups(tmp_path):
    path = tmp_path / "RC_2019-06.zst"
    with open(path, "wb") as handle:
        handle.truncate(15 * 10**9)
    assert 500 < number_of_groups([path]) < 2000


def compressed(text, *, window=None):
    zstandard = pytest.importorskip("zstandard")
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=window or 20)
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    # Without the size of the content, as a stream is written.
    stream = compressor.compressobj()
    return stream.compress(text.encode()) + stream.flush()


def test_zst_dumps_of_several_frames_and_a_large_window(tmp_path):
    text = "\n".join(THREAD) + "\n"
    path = tmp_path / "RC.zst"
    path.write_bytes(compressed(text[:500]) + compressed(text[500:]))
    assert len(parted(path)[0]) == 3
    zstandard = pytest.importorskip("zstandard")
    path.write_bytes(compressed(text, window=31))
    assert zstandard.get_frame_parameters(path.read_bytes()).window_size == 2**31
    assert len(parted(path)[0]) == 3


def test_a_zst_dump_that_is_cut_off_gives_what_it_holds_and_says_so(tmp_path):
    order = random.Random(3)
    lines = []
    for n in range(4000):
        body = " ".join(str(order.random()) for _ in range(8))
        lines += [line(f"a{n}", f"t3_{n}", body, link=f"t3_{n}")]
        lines += [line(f"b{n}", f"t1_a{n}", "A reply.", link=f"t3_{n}")]
    whole = compressed("\n".join(lines))
    path = tmp_path / "RC.zst"
    for damaged in (whole[: len(whole) * 2 // 3], whole[: len(whole) // 2] + b"\0" * 200_000):
        path.write_bytes(damaged)
        found = []
        with pytest.raises(
            DataError, match=r"line \d+: The compressed data cannot be read"
        ) as caught:
            found.extend(read_dumps([path]))
        kept = [item for item in found if isinstance(item, Conversation)]
        assert 0 < len(kept) < 4000
        assert abs(caught.value.line - 2 * len(kept)) <= 2
        assert all(len(conversation.turns) == 2 for conversation in kept)

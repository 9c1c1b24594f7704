"""kill -9 at random moments of every long command: the same command resumes and ends the same.

POLYRANK_HOSTILE_KILLS is the number of kills of each command; without it, three commands are killed
once. POLYRANK_HOSTILE_SEED draws the moments. What each storage operation of an index leaves
behind is in tests/retrieval/test_crashes.py, and a server that is killed in
tests/serving/test_kills.py.
"""

from long_commands import trial

FEW = ("index add", "corpus", "train")


def test_killed_commands_end_as_if_they_were_not(bert, tmp_path, record_property):
    found = trial("killed_commands.py", tmp_path, bert, FEW)
    record_property("cases", sum(each["killed"] for each in found))
    assert {each["command"]: each["faults"] for each in found if each["faults"]} == {}

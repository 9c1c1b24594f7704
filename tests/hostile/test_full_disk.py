"""A disk that is really full: a small file system in memory, in a mount namespace of its own.

POLYRANK_HOSTILE_KILLS is the number of disks for each command; without it, two commands meet one
each. What is left behind where a disk fills up within a change of an index is in
tests/retrieval/test_crashes.py.
"""

import pytest
from long_commands import trial
from mounting import ALONE, may_mount

FEW = ("index build", "train")


@pytest.mark.skipif(not may_mount(), reason="this machine lets nobody mount")
def test_a_full_disk_is_a_message_and_changes_nothing(bert, tmp_path, record_property):
    found = trial("full_disk.py", tmp_path, bert, FEW, before=ALONE)
    record_property("cases", sum(each["full"] for each in found))
    assert {each["command"]: each["faults"] for each in found if each["faults"]} == {}

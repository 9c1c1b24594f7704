"""Records to the batches of one training step, each text tokenised and encoded once.

Know the models' tokenisers and lengths; know nothing of losses. What is drawn for an example
depends on the seed, the epoch and its place in the training set alone, so that a resumed run, and
several processes instead of one, draw the same.
"""

from polyrank.training.collators.cross import CrossCollator, CrossPairCollator, CrossTeacherCollator
from polyrank.training.collators.numbered import Numbered, NumberedExamples
from polyrank.training.collators.two_tower import (
    OwnCandidatesCollator,
    TwoTowerCollator,
    TwoTowerPairCollator,
)

__all__ = [
    "CrossCollator",
    "CrossPairCollator",
    "CrossTeacherCollator",
    "Numbered",
    "NumberedExamples",
    "OwnCandidatesCollator",
    "TwoTowerCollator",
    "TwoTowerPairCollator",
]

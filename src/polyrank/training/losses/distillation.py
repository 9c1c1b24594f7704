"""Losses that bring a student's scores to a teacher's.

Letters: B contexts, C candidates of each, the response first.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def margin_mse(student: Tensor, teacher: Tensor, present: Tensor) -> Tensor:
    """Squared error of the margins between the response and each other candidate.

    student (B, C), teacher (B, C), present (B, C): which candidates there are. The mean over all
    margins. Teacher and student may score in different ranges, only differences count. Equals
    sentence-transformers' MarginMSELoss; of Hofstätter et al. (2020, Improving efficient neural
    ranking models with cross-architecture knowledge distillation). Needs at least one negative.
    """
    margins = student[:, :1] - student[:, 1:]
    wanted = teacher[:, :1] - teacher[:, 1:]
    there = present[:, 1:]
    return functional.mse_loss(margins[there], wanted[there])


def kl_divergence(
    student: Tensor, teacher: Tensor, present: Tensor, temperature: float = 1.0
) -> Tensor:
    """KL(teacher ‖ student) of the softmax over each context's candidates, the mean over B.

    student (B, C), teacher (B, C), present (B, C): which candidates there are, in any order. Both
    are divided by `temperature`, and the loss is multiplied by its square (Hinton et al., 2015).
    Equals sentence-transformers' DistillKLDivLoss; for rankers: Lin et al. (2020, Distilling dense
    representations for ranking using tightly-coupled teachers). Needs at least two candidates.
    """
    absent = ~present
    wanted = (teacher / temperature).masked_fill(absent, -torch.inf).softmax(dim=1)
    got = (student / temperature).masked_fill(absent, -torch.inf).log_softmax(dim=1)
    # 0 · (log 0 − log 0) is 0 here and not NaN
    terms = torch.special.xlogy(wanted, wanted) - wanted * got.masked_fill(absent, 0.0)
    return terms.sum(dim=1).mean() * temperature**2

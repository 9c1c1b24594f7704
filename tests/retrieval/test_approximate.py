import torch

from polyrank.retrieval.milvus.search import distinct
from polyrank.retrieval.search.approximate import probes_of


def test_probes_are_few_and_far_apart():
    context = torch.cat([torch.zeros(2, 3), torch.eye(3), torch.eye(3)])
    assert distinct(context).shape == (3, 3)
    assert distinct(torch.zeros(4, 3)).shape == (0, 3)
    assert torch.equal(probes_of(context, 6), context[2:])
    line = torch.tensor([[float(i), 1.0] for i in range(11)])
    chosen = sorted(probes_of(line, 3).tolist())
    assert chosen == [[1.0, 1.0], [5.0, 1.0], [9.0, 1.0]]  # centres of 0 to 2, 3 to 7, 8 to 10


def test_a_context_without_vectors_has_one_probe_of_zeros():
    assert torch.equal(probes_of(torch.zeros(4, 3), 2), torch.zeros(1, 3))


def test_equal_vectors_are_one_centre():
    context = torch.ones(5, 3)
    assert torch.equal(probes_of(context, 2), torch.ones(1, 3))

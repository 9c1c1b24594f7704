"""The GPU kernel, run by Triton's interpreter, which needs no GPU but `pip install triton`."""

import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

PROGRAM = """
import torch
from polyrank.scoring import fused
from polyrank.scoring.poly import poly_scores

fused.CANDIDATES_AT_ONCE = 50
draw = torch.Generator().manual_seed(0)
for m, d, n in ((1, 24, 70), (5, 40, 130), (70, 100, 65)):
    for attention in ("basic", "sqrt"):
        for dtype, tolerance in ((torch.float32, 1e-4), (torch.float16, 2e-2)):
            contexts = torch.randn(2, m, d, generator=draw)
            if m > 1:
                contexts[0, m // 2 :] = 0
            candidates = torch.randn(n, d, generator=draw).to(dtype)
            expected = poly_scores(contexts.to(dtype).float(), candidates.float(), attention)
            scores = fused.fused_scores(contexts, candidates, attention)
            torch.testing.assert_close(scores, expected, rtol=0, atol=tolerance)
            values, rows = fused.fused_top_k(contexts, candidates, 7, attention)
            torch.testing.assert_close(values, scores.topk(7).values)
            torch.testing.assert_close(scores.gather(1, rows), values)
print("passed")
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernel runs on the GPU, see below")
def test_the_kernel_is_the_formula_in_the_interpreter():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "passed" in done.stdout


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_is_the_formula_on_a_gpu(dtype):
    from polyrank.scoring.fused import fused_scores
    from polyrank.scoring.poly import poly_scores

    draw = torch.Generator().manual_seed(0)
    contexts = torch.randn(3, 64, 384, generator=draw).cuda()
    candidates = torch.nn.functional.normalize(torch.randn(5000, 384, generator=draw)).cuda()
    expected = poly_scores(contexts.to(dtype).float(), candidates.to(dtype).float())
    scores = fused_scores(contexts, candidates.to(dtype))
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-4)

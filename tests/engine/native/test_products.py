"""Products by AMX's tiles, from oneDNN's own layout."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from engine.native.build import native
from engine.rollout import projection
from engine.rollout.projection import Projection

pytestmark = pytest.mark.skipif(
    not native().has_products, reason=native().reason or "no AMX on this processor"
)


def layers(*widths: int, num_in: int, bias: bool = False) -> list[nn.Linear]:
    torch.manual_seed(0)
    return [nn.Linear(num_in, width, bias=bias, dtype=torch.bfloat16) for width in widths]


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("num_rows", [1, 15, 16, 17, 31, 32, 33, 48, 63, 150, 160])
def test_few_rows_are_multiplied_as_many_are(num_rows: int, has_bias: bool) -> None:
    modules = layers(64, 32, 96, num_in=160, bias=has_bias)
    x = torch.randn(num_rows, 160).bfloat16()
    with torch.inference_mode():
        wanted = torch.cat([m.float()(x.float()) for m in copy.deepcopy(modules)], 1)
        product = Projection(modules)
        assert product._address
        got = product(x)
        more = product(torch.cat([x, x.new_zeros(projection.FEW_ROWS, 160)]))[:num_rows]  # oneDNN
    torch.testing.assert_close(got.float(), wanted, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(got.float(), more.float(), rtol=1e-2, atol=1e-2)
    assert (got.float() - wanted).abs().mean() < 3e-3 * wanted.abs().mean()


def test_what_does_not_lie_as_the_kernel_reads_it_is_left_to_onednn() -> None:
    weight = layers(64, num_in=64)[0].weight.data
    other = torch.ops.mkldnn._reorder_linear_weight(weight.flip(0), None)
    assert projection._known_address(weight, other) == 0
    odd = layers(40, num_in=64)[0].weight.data
    packed = torch.ops.mkldnn._reorder_linear_weight(odd, None)
    assert projection._known_address(odd, packed) == 0

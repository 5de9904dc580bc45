"""Quartiles that can be mapped over seeds."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor

from creditscope.measure.numerics import quartiles_where

pytestmark = pytest.mark.usefixtures("own_stream")


class TestQuartiles:
    def values(self) -> tuple[Tensor, Tensor]:
        values = torch.randn(4, 6, 11, dtype=torch.float64)
        values[1, 2] = math.nan
        values[torch.rand(values.shape) < 0.2] = math.nan
        keep = torch.rand(values.shape) < 0.7
        keep[0, 1] = False
        keep[2, 3] = torch.arange(11) == 5
        values[2, 3, 5] = 1.5
        return values, keep

    def expected(self, values: Tensor, keep: Tensor) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="All-NaN slice")
            return np.nanpercentile(torch.where(keep, values, math.nan).numpy(), [25, 50, 75], axis=-1)

    def test_they_are_numpy_s(self):
        values, keep = self.values()
        found = quartiles_where(values, keep)
        np.testing.assert_allclose(found, self.expected(values, keep), rtol=1e-12)
        assert bool(found[:, 0, 1].isnan().all() and found[:, 1, 2].isnan().all())
        assert found[:, 2, 3].tolist() == [1.5] * 3

    def test_mapped_over_seeds_they_are_the_same(self):
        values, keep = self.values()
        found = torch.vmap(quartiles_where, out_dims=1)(values, keep)
        np.testing.assert_array_equal(found, quartiles_where(values, keep))
        shared = torch.vmap(quartiles_where, in_dims=(0, None), out_dims=1)(values, keep[0])
        np.testing.assert_array_equal(shared, quartiles_where(values, keep[0].expand_as(values)))

    @pytest.mark.parametrize("rows", range(1, 10))
    def test_any_number_of_rows(self, rows):
        values = torch.randn(5, rows)
        everything = torch.ones_like(values, dtype=torch.bool)
        np.testing.assert_allclose(
            quartiles_where(values, everything), np.percentile(values.numpy(), [25, 50, 75], axis=-1), rtol=1e-5
        )

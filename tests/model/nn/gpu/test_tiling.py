"""Tiles occupy a GPU, belong to one projection each, and do not depend on how many rows there are."""

from __future__ import annotations

import pytest

from model.nn.gpu.tiling import Tiling, UnsupportedShape, depth_step, fitting_rows, padded_rank


@pytest.mark.parametrize(
    ("sizes", "depth"),
    [
        ((896, 128, 128), 896),  # Qwen2.5 0.5B
        ((896,), 896),
        ((896,), 4864),
        ((1536, 256, 256), 1536),  # 1.5B
        ((1536,), 1536),
        ((1536,), 8960),
        ((4096, 1024, 1024), 4096),  # 8B
    ],
)
def test_real_models_have_enough_programs(sizes: tuple[int, ...], depth: int) -> None:
    tiling = Tiling.of(sizes, depth)
    tiles = sum(sizes) // tiling.columns
    assert all(size % tiling.columns == 0 for size in sizes)
    assert 50 < tiles * tiling.splits < 300
    assert tiling.splits == 1 or depth // tiling.splits >= 512


def test_a_step_of_many_rows_has_wider_tiles_and_fewer_parts() -> None:
    """Its tiles of rows have programs of their own, and read the weights again, from the GPU's cache."""
    for sizes, depth in (((896, 128, 128), 896), ((896,), 4864), ((1536,), 8960)):
        few, many = (Tiling.of(sizes, depth, row_tiles=count) for count in (1, 5))
        assert many.columns >= few.columns and many.splits <= few.splits
        assert sum(sizes) // many.columns * many.splits * 5 >= 96


def test_a_tile_never_contains_columns_of_two_projections() -> None:
    assert Tiling.of((96, 48, 48), 64).columns == 16
    with pytest.raises(UnsupportedShape, match="have no common tile"):
        Tiling.of((40, 20, 20), 64)


def test_copied_tokens_fill_the_tile_of_a_steps_rows() -> None:
    """With 0 to 8 drafts."""
    copies = [fitting_rows((drafts + 1) ** 2, 8) for drafts in range(9)]
    assert copies == [8, 8, 7, 8, 7, 8, 8, 8, 8]


def test_an_adapters_rank_and_the_depth_of_a_load_are_powers_of_two() -> None:
    assert [padded_rank(rank) for rank in (0, 4, 16, 20, 64)] == [16, 16, 16, 32, 64]
    assert [depth_step(rows, itemsize) for rows, itemsize in ((16, 2), (64, 4), (128, 2))] == [64, 32, 32]

"""Tiles fit into the registers and waste little."""

from hypothesis import given
from hypothesis import strategies as st

from autosplit.lowering.layout.tiles import Registers, padded_channels, padded_width, tile_of

REGISTERS = st.sampled_from([Registers(32, 16), Registers(16, 8), Registers(16, 4)])
SIZES = st.integers(1, 300)


@given(SIZES, SIZES, SIZES, REGISTERS)
def test_a_tile_fits_and_divides_what_it_has_to(height, width, channels, registers):
    padded = padded_channels(channels, registers)
    tile = tile_of(height, width, padded, registers)
    rows = tile.height * tile.width
    assert rows * tile.vectors + tile.vectors + 1 <= registers.count
    assert height % tile.height == 0
    assert padded % tile.channels == 0
    assert 0 <= padded_width(width, tile) - width < tile.width


@given(SIZES, REGISTERS)
def test_few_channels_are_appended(channels, registers):
    padded = padded_channels(channels, registers)
    assert channels <= padded < channels + 2 * registers.lanes
    assert padded % min(padded, registers.lanes) == 0

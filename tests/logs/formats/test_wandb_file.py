"""The record format of `.wandb` files, written here byte by byte, with records of all sizes."""

import pytest

from budgetalloc.errors import InputError
from budgetalloc.logs.chunk import Notes
from budgetalloc.logs.formats.wandb_file import records

BLOCK, HEADER = 32768, 7


def read(path, content):
    path.write_bytes(content)
    notes = Notes()
    return list(records(path, notes)), dict(notes)


def numbered(*sizes):
    return [bytes([at + 1]) * size for at, size in enumerate(sizes)]


@pytest.mark.parametrize(
    "sizes",
    [
        (0, 1, 100),
        (40_000, 5),  # over two blocks
        (100_000, 0, 7),  # over four
        (BLOCK - HEADER - HEADER, 9),  # exactly the first block
        (BLOCK - HEADER - HEADER - 3, 9),  # three bytes are left, too few for a header
        (BLOCK - HEADER - HEADER - HEADER, 9),  # room for a header only: a fragment of nothing
    ],
)
def test_records_of_all_sizes_are_read(tmp_path, framed, sizes):
    every = numbered(*sizes)
    assert read(tmp_path / "f", framed(every)) == (every, {})


def test_every_record_but_those_of_a_damaged_block_is_read(tmp_path, framed):
    every = numbered(10_000, 40_000, 20_000, 30_000, 10)
    whole = bytearray(framed(every))
    assert whole[BLOCK + 6] == 4  # the second block begins with the rest of the second record
    whole[BLOCK + HEADER] ^= 1
    kept, notes = read(tmp_path / "f", whole)
    # The third record begins in the damaged block, and the fourth in the next one.
    assert kept == [every[0], every[3], every[4]]
    assert notes == {"broken block of the .wandb file": 1}


@pytest.mark.parametrize("left", [1, 6, 7, 8, 50, 99])
def test_a_torn_last_record_is_counted_and_the_others_are_read(tmp_path, framed, left):
    every = numbered(50, 100)
    whole = framed(every)
    kept, notes = read(tmp_path / "f", whole[: HEADER + HEADER + 50 + left])
    assert kept == every[:1]
    assert notes == {"torn end of the .wandb file": 1}


def test_a_record_torn_between_two_blocks_is_counted(tmp_path, framed):
    every = numbered(50, 40_000)
    assert read(tmp_path / "f", framed(every)[:BLOCK]) == (every[:1], {"torn end of the .wandb file": 1})


@pytest.mark.parametrize("content", [b"", b"not a log" * 9])
def test_a_file_that_is_not_of_wandb_is_refused(tmp_path, content):
    with pytest.raises(InputError, match="does not begin"):
        read(tmp_path / "f", content)

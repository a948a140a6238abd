"""Files that several tests of readers write."""

import struct
import zlib

import pytest

BLOCK, HEADER = 32768, 7
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def _framed(records):
    """The bytes of a `.wandb` file with these records: LevelDB's log format, as wandb 0.31 writes it."""
    content = bytearray(b":W&B\xe1\xbe\0")
    for data in records:
        begun = False
        while True:
            room = BLOCK - len(content) % BLOCK
            if room < HEADER:
                content += bytes(room)
                room = BLOCK
            part, data = data[: room - HEADER], data[room - HEADER :]
            kind = (LAST if begun else WHOLE) if not data else MIDDLE if begun else FIRST
            content += struct.pack("<IHB", zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part
            begun = True
            if not data:
                break
    return bytes(content)


@pytest.fixture
def framed():
    """`framed(records)`: the bytes of a `.wandb` file."""
    return _framed

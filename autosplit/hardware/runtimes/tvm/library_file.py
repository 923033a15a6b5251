"""Whether the file of a library is whole: the loader maps it, a missing page is a SIGBUS."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from autosplit.errors import ConfigError

# Of ELF for 64 bits, in this machine's byte order; the loader refuses whatever else there is.
_MAGIC = b"\x7fELF\x02"
_HEADER = struct.Struct("=32xQQ6x4H2x")  # where the tables of segments and sections lie
_SEGMENT = struct.Struct("=8xQ16xQ16x")  # offset and size in the file


def require_whole(file: Path) -> None:
    """Raises ConfigError for an ELF file that ends before what its headers name."""
    with file.open("rb") as stream:
        is_whole = _is_whole(stream, file.stat().st_size)
    if not is_whole:
        raise ConfigError(f"'{file.name}' is truncated; export the split again")


def _is_whole(stream: BinaryIO, length: int) -> bool:
    header = stream.read(_HEADER.size)
    if not header.startswith(_MAGIC):
        return True
    if len(header) < _HEADER.size:
        return False
    segments, sections, size, count, section_size, section_count = _HEADER.unpack(header)
    if max(segments + size * count, sections + section_size * section_count) > length:
        return False
    if size != _SEGMENT.size:
        return True
    stream.seek(segments)
    places = _SEGMENT.iter_unpack(stream.read(size * count))
    return all(offset + extent <= length for offset, extent in places)

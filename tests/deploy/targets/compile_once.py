"""The compiler for cmake: what it compiled before, of equal files with equal options, is copied.

The programs of exports have all sources but one in common.

    python compile_once.py FOLDER g++ ... -o OBJECT -c SOURCE
"""

import hashlib
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

NAMES_A_FILE = ("-o", "-c", "-MT", "-MF")


def main(folder, *command):
    words = list(command)
    if "-c" not in words:
        return subprocess.call(words)
    target, source = (Path(words[words.index(option) + 1]) for option in ("-o", "-c"))
    # What is included from elsewhere is the same for all exports.
    files = [source, *sorted(source.parent.glob("*.hpp"))]
    options = [word for before, word in pairwise(words) if before not in NAMES_A_FILE]
    options = [word for word in options if str(source.parent) not in word]
    key = hashlib.sha256(repr((options, [file.read_bytes() for file in files])).encode())
    compiled = Path(folder, f"{key.hexdigest()}.o")
    if not compiled.exists():
        if code := subprocess.call(words):
            return code
        shutil.copy(target, compiled)
        shutil.copy(f"{target}.d", f"{compiled}.d")
    shutil.copy(compiled, target)
    shutil.copy(f"{compiled}.d", f"{target}.d")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

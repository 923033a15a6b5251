"""The compiler for cmake: what it compiled before, of equal code with equal options, is copied.

The programs of exports have all sources but one in common.

    python compile_once.py FOLDER g++ ... -o OBJECT -c SOURCE
"""

import hashlib
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

WITH_A_PLACE = {"-o", "-c", "-MT", "-MF", "-isystem"}
SEEN_IN_THE_CODE = ("-I", "-D")  # once it is preprocessed


def main(folder, *words):
    if "-c" not in words or not Path(words[-1]).with_name("pipeline.hpp").exists():
        return subprocess.call(words)  # links, or is cmake's test of what the compiler prints
    output = words.index("-o")
    preprocess = [*words[:output], *words[output + 2 :], "-E", "-P"]
    preprocess.remove("-c")
    code = subprocess.run(preprocess, stdout=subprocess.PIPE, check=True).stdout
    options = [b for a, b in pairwise(words) if not {a, b} & WITH_A_PLACE]
    options = [option for option in options if not option.startswith(SEEN_IN_THE_CODE)]
    digest = hashlib.sha256(repr(options).encode() + code).hexdigest()
    compiled, target = Path(folder, f"{digest}.o"), words[output + 1]
    if not compiled.exists():
        if error := subprocess.call(words):
            return error
        compiled.parent.mkdir(exist_ok=True)
        whole = compiled.with_suffix(f".{os.getpid()}")
        shutil.copy(target, whole)
        whole.rename(compiled)  # another process may look for it
    shutil.copy(compiled, target)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

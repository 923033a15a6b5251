"""An export on a machine that has only what the documentation installs, and no compiler."""

import importlib.metadata
import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

import autosplit

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "studies" / "examples"
HAS = "import importlib.util as u, sys; print(*(n for n in sys.argv[1:] if u.find_spec(n)))"
LACKS = ("onnx", "onnxruntime", "openvino", "optuna", "networkx", "platformdirs", "torch", "pip")


def commands():
    """The README's installation of what deployment needs, command by command."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = readme.partition("<!-- deploy -->")[2].split("```")[1]
    return [shlex.split(command) for command in block.removeprefix("sh\n").split("&&")]


def named():
    """The distributions that the README names, with what pip installs along."""
    installed = (words[words.index("install") + 1 :] for words in commands() if "install" in words)
    remaining = [word for words in installed for word in words if word[0].isalpha()]
    names = set()
    while remaining:
        name = re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", remaining.pop().lower())[0])
        if name not in names:
            names.add(name)
            needs = importlib.metadata.requires(name) or []
            remaining += [n for n in needs if not re.search("extra|_platform|platform_|python_", n)]
    return names


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A virtual environment of links to what is installed here; nothing is fetched."""
    folder = tmp_path_factory.mktemp("deploy") / "serve"
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for name in named():
        files = importlib.metadata.distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            (packages / top).symlink_to(importlib.metadata.distribution(name).locate_file(top))
    (packages / "autosplit").symlink_to(Path(autosplit.__file__).parent)
    return folder / "bin" / "python"


def alone(python, *arguments):
    """Standard output of a program there, which finds no compiler and no cache."""
    nothing = {"PATH": "/nonexistent", "HOME": "/nonexistent"}
    command = [python, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=nothing, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_environment_lacks_everything_else(python):
    assert alone(python, "-c", HAS, "tvm", "autosplit", *LACKS) == "tvm autosplit\n"


def test_there_the_model_file_may_still_lie_where_it_was_and_results_are_plain_text(python, export):
    assert Path(export.document["model"]["file"]).is_file()
    line = alone(python, "-m", "autosplit", "verify", export.folder)
    assert line.startswith("equal: 8 items")
    assert "recorded in reference.npz" in line
    assert "onnxruntime cannot be imported" in line
    bench = alone(python, "-m", "autosplit", "bench", export.folder, "--seconds", "0.1")
    assert bench.startswith("period ")


def test_the_stages_alone_compute_what_the_pipeline_does(python, export):
    shutil.copy(EXAMPLES / "stages_alone.py", export.folder)
    code = (
        "import sys; sys.modules['autosplit'] = None; import stages_alone; "
        "sys.argv[0] = ''; sys.exit(stages_alone.main())"
    )
    path = "import sys; sys.path.insert(0, sys.argv[1])"
    lines = alone(python, "-c", f"{path}; {code}", export.folder).splitlines()
    with autosplit.load(export.folder) as pipeline:
        item = {p.name: np.ones(p.shape, p.dtype) for p in pipeline.wiring.inputs}
        outputs = pipeline.run([item])[0]
    shown = [f"{name} {array.shape} {array.mean():.6f}" for name, array in outputs.items()]
    assert sorted(lines) == sorted(shown)


@pytest.mark.slow
def test_the_readme_s_commands_install_it(export, tmp_path):
    folder = tmp_path / "serve"
    for command in commands():
        words = [w.replace("serve", str(folder)) for w in command]
        words = [sys.executable if word == "python3" else word for word in words]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=900)
        if "No matching distribution" in done.stderr or "NewConnectionError" in done.stderr:
            pytest.skip("no package index to install from")
        assert done.returncode == 0, done.stderr
    python = folder / "bin" / "python"
    assert alone(python, "-c", HAS, "tvm", "autosplit", *LACKS) == "tvm autosplit pip\n"
    assert "items/s" in alone(python, "-m", "autosplit", "bench", export.folder, "--seconds", "0.1")

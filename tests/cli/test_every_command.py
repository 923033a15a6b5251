"""What every command prints: one JSON document, or what its golden file says."""

import json
import os
import re
from pathlib import Path

import pytest

from autosplit import cli
from autosplit.cli import main
from tests.cli.test_plan import GRAPH

pytestmark = pytest.mark.usefixtures("hardware")
GOLDEN = Path(__file__).with_name("golden")
EXACT = ("plan", "zoo", "inspect", "split", "extract")  # these print no measured number
OF_A_STUDY = "study trials best baselines bound_ms verdict"
COMMANDS = {
    "plan g.json --stages 2": "stages loads period lower_bound optimal seconds",
    "plan g.json --cores 2": "stages replicas threads periods",
    "show net.db": OF_A_STUDY,
    "run net.toml": OF_A_STUDY,
    "report net.db -o page.html": "file",
    "zoo list": "",
    "doctor": "ok checks",
    "inspect MODEL --folded": "model inputs outputs folded ops tensors cuts",
    "split MODEL --after first": "model cuts stages file",
    "extract MODEL --ops first": "model ops file",
    "verify EXPORT": "equal max_abs_error max_rel_error items",
    "bench EXPORT --seconds 0.01": "period_ms latency_ms items warm_up stages",
    "profile MODEL --seconds 0.01": "model device total_ms ops",
}
MACHINE = ("doctor", "profile MODEL --seconds 0.01")  # whose rows depend on it


@pytest.fixture
def run(finished, branches, exported):
    """Run the words of a command in the folder of a finished study."""
    (finished / "g.json").write_text(json.dumps(GRAPH))
    places = {"MODEL": str(branches.path), "EXPORT": str(exported)}
    return lambda command, *more: main([places.get(w, w) for w in (*command.split(), *more)])


@pytest.mark.parametrize("command", COMMANDS)
def test_standard_output_is_one_document(command, run, capfd):
    assert run(command, "-f", "json") == 0
    printed = capfd.readouterr().out
    document = json.loads(printed)
    assert set(COMMANDS[command].split()) <= set(document if COMMANDS[command] else ())
    assert printed.endswith("\n")


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in MACHINE])
def test_a_command_prints_what_its_golden_file_says(command, run, capfd):
    """``GOLDEN=write`` in the environment writes the files. Measured numbers are left out."""
    assert run(command) == 0
    printed = re.sub(r"/\S*/", "", capfd.readouterr().out)
    if command.split()[0] not in EXACT:
        printed = re.sub(r"\d[\d.e-]*", "#", printed)
    printed = re.sub(r"planned in \S+ s", "planned in # s", printed)
    lines = [" ".join(line.split()) for line in printed.splitlines() if line]
    # A busy machine is no fault of the command.
    shown = "".join(f"{line}\n" for line in lines if not line.startswith("not to be trusted"))
    file = GOLDEN / f"{'_'.join(re.findall(r'[a-z]+', command))}.txt"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(shown)
    assert shown == file.read_text()


@pytest.mark.parametrize("command", [c for c in cli.COMMANDS if c not in ("zoo", "doctor")])
def test_a_failure_prints_no_document(command, said):
    more = {
        "split": "--after x", "plan": "--stages 2", "report": "-o p.html", "export": "-o out",
        "tune": "-o tuned", "extract": "--ops x",
    }  # fmt: skip
    code, line = said(command, "nowhere.onnx", *more.get(command, "").split(), "-f", "json")
    assert code in (2, 3)
    assert "nowhere" in line

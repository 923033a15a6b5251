from pathlib import Path
from typing import Any

import pytest

from autosplit.errors import ConfigError
from autosplit.study.config import StudyConfig, load

GOOD = 'zoo = "squeezenet"\nstages = 2\n'


def write(folder: Path, text: str) -> Path:
    file = folder / "mine.toml"
    file.write_text(text)
    return file


def read(folder: Path, text: str, options: dict[str, Any] | None = None) -> StudyConfig:
    return load(write(folder, text), options)


def test_a_short_file_is_enough(tmp_path: Path) -> None:
    config = read(tmp_path, GOOD)
    assert (config.name, config.zoo, config.stages, config.search.sampler) == ("mine", "squeezenet", 2, "planner")


def test_the_model_lies_beside_the_study_file(tmp_path: Path) -> None:
    assert read(tmp_path, 'model = "net.onnx"\nstages = 2').model == str(tmp_path / "net.onnx")


def test_devices_give_the_number_of_stages(tmp_path: Path) -> None:
    assert read(tmp_path, 'zoo = "x"\ndevices = ["cores:0", "cores:1", "cores:2"]').stages == 3


def test_options_lie_over_the_file_and_none_changes_nothing(tmp_path: Path) -> None:
    options = {"stages": 3, "shapes": {"x": [1, 2]}, "search": {"trials": 7, "seed": None}}
    config = read(tmp_path, GOOD + "[search]\nseed = 5\ntrials = 2", options)
    assert (config.stages, config.shapes, config.search.trials, config.search.seed) == (3, {"x": [1, 2]}, 7, 5)


def test_the_quickstart_is_a_study_file() -> None:
    config = load(Path(__file__).parents[2] / "studies" / "quickstart.toml")
    assert (config.zoo, config.stages) == ("squeezenet", 2)
    assert config.export


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GOOD + "trails = 3", "trails is no key; did you mean search.trials?"),
        (GOOD + "[search]\nzebra = 1", "search.zebra is no key; keys are name"),
        (GOOD + "[search]\ntrials = 0", "search.trials is 0: input should be greater than or equal to 1"),
        (GOOD + '[search]\ntrials = "7"', "search.trials is '7': input should be a valid integer"),
        (GOOD + '[search]\nsampler = "annealing"', "search.sampler is 'annealing': input should be 'planner'"),
        (GOOD + "[search]\ntimeout = nan", "search.timeout is nan"),
        (GOOD + "search = 3", "search is 3"),
        (GOOD + 'model = "a.onnx"', "model and zoo are both given; keep one"),
        (GOOD + 'devices = ["cores:0"]', "stages is 2, devices are 1; give one device a stage"),
        (GOOD + "devices = []", "devices is []"),
        (GOOD + "[simulated]\nnoise = 0.1", 'set backend = "simulated"'),
        (GOOD + 'name = "../x"', "name is '../x'"),
        (GOOD + "[shapes]\nx = [1, 0]", "'x' has a dimension below 1"),
        ('backend = "simulated"\nstages = 2\nexport = "out"', "remove export"),
        ("stages = 2", "no model is given"),
        ('zoo = "x"', "stages is missing"),
        ("stages = = 2", "is not TOML"),
        ("stages = " + "[" * 5000, "is not TOML"),
    ],
)
def test_an_error_names_key_value_and_remedy_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert told in str(caught.value)
    assert "mine.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load(tmp_path / "nowhere.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not TOML"):
        load(tmp_path / "b.toml")

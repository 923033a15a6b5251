from pathlib import Path

import pytest

from autosplit.errors import ConfigError
from autosplit.study.config.sections import arrival_times
from autosplit.study.config.study_file import SIZE_LIMIT, load

GOOD = 'zoo = "squeezenet"\nstages = 2\n'
CORES = 'zoo = "x"\ncores = ["0-3"]\n'


def read(folder, text, options=None):
    (file := folder / "mine.toml").write_text(text)
    return load(file, options)


def test_a_short_file_is_enough(tmp_path):
    config = read(tmp_path, GOOD)
    assert (config.name, config.zoo, config.stages) == ("mine", "squeezenet", 2)
    assert config.search.sampler == "planner"
    along = read(tmp_path, 'zoo = "x"\ndevices = ["cores:0", "cores:1", "cores:2"]')
    assert along.stages == 3
    batches = [read(tmp_path, f"{GOOD}batch = {text}").batch for text in ("8", "[4, 1]", '"auto"')]
    assert batches == [[8], [1, 4], "auto"]


@pytest.mark.parametrize(
    ("file", "name"),
    [("my study.toml", "my-study"), ("größe 2.toml", "gr-e-2"), ("模型.toml", "study")],
)
def test_a_file_with_a_name_that_no_study_can_have_gives_one_near_it(tmp_path, file, name):
    (tmp_path / file).write_text(GOOD)
    assert load(tmp_path / file).name == name


def test_options_lie_over_the_file_and_none_changes_nothing(tmp_path):
    options = {"stages": 3, "shapes": {"x": [1, 2]}, "search": {"trials": 7, "seed": None}}
    config = read(tmp_path, GOOD + "[search]\nseed = 5\ntrials = 2", options)
    assert (config.stages, config.shapes) == (3, {"x": [1, 2]})
    assert (config.search.trials, config.search.seed) == (7, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "trails = 3", "unknown key 'trails'; did you mean 'search.trials'?"),
        (GOOD + 'backend = "onnxruntime"', "backend is now called runtime; write runtime ="),
        (GOOD + "[search]\nzebra = 1", "unknown key 'search.zebra'; keys of search are sampler"),
        (GOOD + "[search]\ntrials = 0", "search.trials must be greater than or equal to 1, not 0"),
        (GOOD + '[search]\ntrials = "7"', "search.trials must be a valid integer, not '7'"),
        (GOOD + '[search]\nsampler = "annealing"',
         "search.sampler is 'annealing'; give planner, brute_force, gp, nsga2, random or tpe"),
        (GOOD + "[search]\ntimeout = nan", "search.timeout must be a finite number, not nan"),
        (GOOD + "search = 3", "search must be a table, not 3"),
        (GOOD + 'objective = "speed"', "give throughput, latency, goodput or cores"),
        (GOOD + 'model = "a.onnx"', "model and zoo are both given; keep one"),
        (GOOD + 'devices = ["cores:0"]', "stages is 2 but devices has 1"),
        (GOOD + "devices = []", "devices is []"),
        (GOOD + "[simulated]\nnoise = 0.1", "simulated is gone; python -m studies.simulation"),
        (GOOD + 'runtime = "simulated"', "runtime is 'simulated': give tvm"),
        (GOOD + 'name = "../x"', "name is '../x'"),
        (GOOD + "[shapes]\nx = [1, 0]", "shapes.x.1 must be greater"),
        (GOOD + 'objective = "latency"\nworkload = {rate = 5}',
         "workload is given, but the objective is"),
        (GOOD + 'objective = "goodput"', 'objective is "goodput" without a limit'),
        (GOOD + 'objective = "cores"\nworkload = {p99_ms = 5}', '"cores" without a rate'),
        (GOOD + "workload = {rate = 0}", "workload.rate must be greater than 0, not 0"),
        (GOOD + "workload = {p95_ms = 5, p99_ms = 9}", "workload has limits of p95 and p99"),
        (GOOD + 'workload = {rate = 5, arrivals = "a"}', "workload.rate and workload.arrivals"),
        (GOOD + "realtime = {items_per_second = 5}", "is gone; write workload = { rate = R }"),
        (GOOD + 'precision = "fast"', "precision is gone, and so are the less exact kernels"),
        ("stages = 2", "no model is given"),
        ('zoo = "x"', "stages is missing"),
        (GOOD + 'targets = {"cores:0" = "llvm"}', "unknown device 'cores:0' in targets"),
        (GOOD + 'devices = ["a", "b"]\ntargets = {c = "llvm"}', "unknown device 'c' in targets"),
        (GOOD + 'runtime = "onnxruntime"\ntuning = "tuned"', "remove tuning"),
        (GOOD + 'runtime = "onnxruntime"\n[[regions]]\nbackend = "b"', 'set runtime = "tvm"'),
        (GOOD + 'devices = ["a", "b"]\n[[regions]]\nbackend = "b"\ndevice = "c"',
         "unknown regions.device 'c'"),
        *((GOOD + f"[search]\n{key} = {value}", f"search.{key} must be") for key, value in (
            ("lease", 1), ("lease", 86401), ("stagnation", 0), ("seed", -1), ("timeout", 0.0))),
        *((GOOD + f"[measure]\n{key} = {value}", f"measure.{key} must be")
          for key, value in (("items", 1), ("latency_items", 0))),
        (GOOD + "[measure]\nsecond = 1.0", "did you mean 'measure.seconds'?"),
        (GOOD + 'model = ""', "model is ''"),
        (GOOD + "name = '" + "x" * 101 + "'", "xxx...: string should have at most 100"),
        ('zoo = "x"\nstages = 0', "stages must be greater than or equal to 1 or 'auto', not 0"),
        ('zoo = "x"\nstages = 257', "stages must be less than or equal to 256"),
        ('zoo = "x"\nstages = true', "stages must be a valid integer or 'auto', not True"),
        ('zoo = "x"\nstages = "many"', "stages must be a valid integer or 'auto', not 'many'"),
        *((GOOD + f"batch = {batch}", "batch must be a number from 1 to 4096, ")
          for batch in ("0", "[]", '"all"', "[1.5]", "true", "[5000]")),
        ('zoo = "x"\ncores = 0', "give a number from 1"),
        ('zoo = "x"\ncores = "1-"', "core numbers"),
        ('zoo = "x"\ncores = true', "give a number"),
        ('zoo = "x"\ncores = ["3-1", "4-5"]', "core numbers"),
        ('zoo = "x"\ncores = ["0-49", "50-99"]', "of 2 kinds are too many to plan for; list fewer"),
        (CORES + "streams = 0", "greater than or equal to 1"),
        (CORES + "stages = 2", "cores and stages are both given"),
        (CORES + 'devices = ["cores:0"]', "cores and devices are both given"),
        (CORES + "memory = [1e6, 2e6]", "with cores give one"),
        (GOOD + "memory = [1e6, 1e6, 1e6]", "one for each of the 2 devices"),
        (CORES + 'memory = "3 bytes"', "; give 3e9 or 3 GB"),
        (CORES + "memory = 0", "invalid number of bytes"),
        ("stages = = 2", "is not TOML"),
        (f"trials = {'1' * 5000}", "is not TOML: Exceeds the limit"),
        *(("stages = " + nesting * 10_000, "is not TOML") for nesting in ("[", "{a=", "a.")),
    ],
)  # fmt: skip
def test_an_error_names_key_value_and_remedy_in_one_line(tmp_path, text, message):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)
    assert "mine.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "stages = 1",
        "stages = 256",
        'stages = "auto"',
        'stages = "auto"\ndevices = ["a", "b"]\ntargets = {b = "llvm"}\n'
        'regions = [{backend = "r", device = "b"}]',
        "stages = 2\n[search]\nlease = 2\nstagnation = 1",
        "stages = 2\n[search]\nlease = 86400",
        "stages = 2\n[measure]\nitems = 2\nlatency_items = 1",
        "stages = 2\nregions = [{backend = 'r', device = 'cores:7'}]",
        'devices = ["a", "b"]\nregions = [{backend = "r"}]',
    ],
)
def test_what_lies_just_within_the_limits_is_taken(tmp_path, text):
    read(tmp_path, f'zoo = "x"\n{text}')


def test_files_that_are_read_lie_beside_the_study_file_and_what_is_written_does_not(tmp_path):
    config = read(tmp_path, GOOD + 'tuning = "tuned"\nstorage = "s.db"\nexport = "out"')
    assert config.tuning == str(tmp_path / "tuned")
    assert (config.storage, config.export) == ("s.db", "out")
    for name, model in (("net.onnx", str(tmp_path / "net.onnx")), ("/net.onnx", "/net.onnx")):
        assert read(tmp_path, f'model = "{name}"\nstages = 2').model == model


def test_a_file_larger_than_a_study_file_can_be_is_not_parsed(tmp_path):
    text = GOOD + "#" * (SIZE_LIMIT - len(GOOD))
    assert read(tmp_path, text).stages == 2
    with pytest.raises(ConfigError, match="larger than"):
        read(tmp_path, text + "#")


def test_a_file_that_is_not_there_or_is_no_text(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        load(tmp_path / "nowhere.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8 text; expected TOML"):
        load(tmp_path / "b.toml")


@pytest.mark.parametrize(
    ("limit", "objective"),
    [("p95_ms = 9", "goodput"), ('p50_ms = 9\narrivals = "times.txt"', "cores")],
)
def test_a_limit_of_the_workload_is_what_counts(tmp_path, limit, objective):
    (tmp_path / "times.txt").write_text("10\n10.5\n11\n")
    (tmp_path / "s.toml").write_text(f"{GOOD}[workload]\n{limit}\n")
    config = load(tmp_path / "s.toml")
    assert config.objective == objective
    value = config.workload.value
    assert (value.limit_ms, value.quantile) == (9, limit[:3])
    assert value.rate == (2 if config.workload.arrivals else None)


ENDLESS = ["1\nnan", "1\ninf", "-inf\n1", "-1e308\n1e308"]


@pytest.mark.parametrize("text", ["", "1", "2\n1", "1\n1", "a\nb", *ENDLESS])
def test_a_file_without_arrival_times_is_refused(tmp_path, text):
    (tmp_path / "times.txt").write_text(text)
    with pytest.raises(ConfigError, match=r"times.txt'"):
        arrival_times(tmp_path / "times.txt")


def test_arrival_times_of_a_device_that_never_ends_are_refused():
    with pytest.raises(ConfigError, match=r"'/dev/zero': .*not a regular file"):
        arrival_times(Path("/dev/zero"))

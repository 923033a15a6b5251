"""The public API on real nets: cut by hand, plan, run, compare with onnxruntime."""

import inspect
import shutil
import textwrap
from dataclasses import replace

import pytest

import autosplit
from autosplit import api, planner
from autosplit.errors import AutosplitError, ConfigError, Infeasible
from autosplit.hardware.measurement.results import LinkCost, Profile
from tests.nets import judge


@pytest.mark.parametrize(
    "name", ["branches", pytest.param("transformer", marks=pytest.mark.integration)]
)
def test_the_plans_pipelines_compute_what_onnxruntime_does(zoo_model, name):
    model = zoo_model(name)
    for stages in (2, 4):
        split = autosplit.plan(model, stages=stages)
        assert len(split.stages) == stages
        judge(model, split)


def test_a_deployment_on_cores_runs_and_is_exported(branches, tmp_path):
    cores = len(api.device.available())
    planned = autosplit.plan(branches, cores=cores)
    shapes = zip(planned.deployment.replicas, planned.deployment.threads, strict=True)
    assert sum(replicas * threads for replicas, threads in shapes) <= cores
    used = [name for stage in planned.deployment.stages for name in stage.devices]
    assert len(used) == len(set(used))
    planned.export(tmp_path)
    for pipeline in (planned.pipeline(), autosplit.load(tmp_path)):
        assert pipeline.replicas == planned.deployment.replicas
        judge(branches, pipeline, items=4)


@pytest.mark.integration
def test_devices_that_differ_share_a_stage(branches, monkeypatch):
    # One of the cores is three times as slow.
    real = api.measured_profiles

    def profiles(model, devices, batches):
        times = real(model, devices[:1], batches)
        slow = [replace(p, op_ms=tuple(3 * time for time in p.op_ms)) for p in times]
        return [p for pair in zip(times, slow, strict=True) for p in pair]

    monkeypatch.setattr(api, "measured_profiles", profiles)
    split = autosplit.plan(branches, "auto", ["cores:0", "cores:1"])
    assert split.predicted_ms <= autosplit.plan(branches, 2, ["cores:0", "cores:1"]).predicted_ms
    assert sum(split.replicas) == len(split.devices) == 2
    monkeypatch.undo()
    judge(branches, split)


def test_a_replica_has_its_memory_limit(branches):
    costs = api.costs_along(branches, api.device.along(1)).costs
    ops = tuple(range(len(branches.graph.ops)))
    stage = planner.Stage(ops, (planner.Option(costs.rows[0].row),))
    (whole,) = planner.evaluate(costs, [stage]).memory
    assert len(autosplit.plan(branches, cores=2, memory=whole).deployment.stages) == 1
    assert len(autosplit.plan(branches, cores=2, memory=whole - 1).deployment.stages) == 2
    with pytest.raises(Infeasible):
        autosplit.plan(branches, cores=2, memory=10.0)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"stages": 2, "cores": 2}, "give cores or stages, not both"),
        ({"cores": 1, "devices": ["cores:0"]}, "leave devices and regions out"),
        ({"cores": 4096}, "cores is 4096; this process may use 1 to"),
        ({"stages": 0}, "stages is 0; give a whole number from 1, or 'auto'"),
        ({"stages": "3"}, "stages is '3'; give a whole number"),
        ({"stages": 2.0}, "stages is 2.0; give"),
        ({"stages": True}, "stages is True; give"),
        ({"cores": 0}, "cores is 0; give a whole number from 1"),
        ({"cores": 1, "streams": 0}, "streams is 0; give a whole number from 1"),
        ({"cores": 1, "memory": -1}, "memory is -1; give a number of bytes above 0"),
        ({"cores": 1, "memory": float("nan")}, "memory is nan; give"),
        ({"cores": 1, "memory": "3 GB"}, "memory is '3 GB'; give"),
        ({"stages": 2, "memory": 1e9}, "memory and streams are for cores=N"),
        ({"streams": 2}, "memory and streams are for cores=N"),
        ({"stages": "auto", "devices": "cores:0"}, "devices is 'cores:0'; give a list of"),
        *(({"cores": 1, "batch": batch}, "batch is") for batch in (0, "all", 1.5, [0])),
        ({"stages": 1, "devices": [0]}, "device 0 is not a string"),
    ],
)
def test_arguments_of_plan_that_make_no_sense_are_refused(branches, arguments, line):
    with pytest.raises(AutosplitError) as error:
        autosplit.plan(branches, **arguments)
    assert line in str(error.value)


def test_a_deployment_for_a_runtime_that_is_not_loaded_is_refused(branches):
    runtimes = dict.fromkeys(branches.runtimes, "openvino-bfloat16")
    deployment = branches.split([]).deployment.with_runtimes(runtimes)
    with pytest.raises(ConfigError, match="not loaded for 'openvino-bfloat16'; load it with that"):
        branches.pipeline(deployment)


def test_threads_are_weighed_where_more_of_them_are_faster(branches, monkeypatch):
    op_ms = {1: 8.0, 2: 5.0, 4: 6.0, 8: 1.0}

    def profiles(model, places, batches):
        times = [(op_ms[len(place.numbers)],) * len(model.graph.ops) for place in places]
        return [Profile(str(p), t, t, "tvm") for p, t in zip(places, times, strict=True)]

    monkeypatch.setattr(api.device, "available", lambda: tuple(range(8)))
    monkeypatch.setattr(api, "measured_profiles", profiles)
    monkeypatch.setattr(type(branches), "links", lambda _, places: [LinkCost("")] * len(places))
    for cores, threads in ((8, [1, 2, 8]), (3, [1, 2]), (1, [1])):
        costs = api.costs_by_threads(branches, cores).costs
        assert [row.threads for row in costs.row_index] == threads


def test_a_cut_holds_the_named_nodes_and_all_before_them(branches):
    split = branches.split([["first.leave"], ["left", "hint.conv"]])
    sources = [{s for i in stage for s in branches.graph.ops[i].sources} for stage in split.stages]
    assert sources[0] == {
        "stem", "stem.relu", "first.enter", "first.enter.relu", "first.inner1", "first.inner1.relu",
        "first.inner2", "first.inner.sum", "first.inner", "first.leave", "first.sum", "first",
    }  # fmt: skip
    assert sources[1] == {"halves", "left", "left.relu", "hint.conv"}


def test_a_cut_takes_op_names_and_a_single_text_too(branches):
    op = branches.graph.ops[4]
    expected = branches.split([["first"]]).stages
    assert branches.split([[op.name]]).stages == branches.split(after="first").stages == expected
    assert branches.split([]).stages == (tuple(range(len(branches.graph.ops))),)


def test_every_public_name_is_there_and_listed():
    assert set(autosplit.__all__) <= set(dir(autosplit))
    assert all(getattr(autosplit, name) for name in autosplit.__all__)
    with pytest.raises(AttributeError, match="module 'autosplit' has no attribute 'nope'"):
        autosplit.nope  # noqa: B018
    with pytest.raises(AttributeError, match=r"'ModelDeployment'; use Split\.deployment"):
        autosplit.ModelDeployment  # noqa: B018


DOCUMENTED = (
    autosplit.load_model, autosplit.plan, autosplit.load,
    autosplit.Model.split, autosplit.Model.extract, autosplit.Model.pipeline,
    autosplit.Split.pipeline, autosplit.Split.export,
    autosplit.Part.pipeline, autosplit.Part.export,
    autosplit.Pipeline.run, autosplit.Pipeline.map, autosplit.Pipeline.map_streams,
    autosplit.Pipeline.submit, autosplit.Pipeline.results, autosplit.Pipeline.state,
    autosplit.Pipeline.reset,
)  # fmt: skip


@pytest.mark.parametrize("function", DOCUMENTED, ids=lambda f: f.__qualname__)
def test_help_lists_the_arguments_what_is_returned_and_an_example(function):
    text, signature = inspect.getdoc(function), inspect.signature(function)
    for name in signature.parameters.keys() - {"self", "cls"}:
        assert f"\n    {name}: " in text
    assert ("Returns:" in text) == (signature.return_annotation != "None")
    assert "Example:" in text


@pytest.mark.integration
def test_the_examples_run(branches, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(branches.path, "net.onnx")
    split, part = branches.split([["first"]]), branches.extract(["hinted"])
    split.export("out")
    names = {"autosplit": autosplit, "model": branches, "split": split, "part": part}
    names |= {"items": branches.items(2), **branches.items(1)[0]}
    for function in DOCUMENTED:
        example = inspect.getdoc(function).partition("Example:\n")[2]
        with split.pipeline() as pipeline:
            pipeline.submit(branches.items(1)[0])  # for the reader of results
            exec(textwrap.dedent(example), names | {"pipeline": pipeline})

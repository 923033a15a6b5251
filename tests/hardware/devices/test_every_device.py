"""One suite for every kind of device: cores, a GPU where there is one, TVM's RPC servers.

A new kind adds a case to ``there``.
"""

import math

import pytest

import autosplit
from autosplit.hardware.bench.local import LocalBench
from autosplit.hardware.devices import device as devices
from tests import nets
from tests.benches import BRIEF, deployed
from tests.hardware.servers import servers  # noqa: F401  a fixture

HERE = str(devices.along(1)[0])
KINDS = ["core", "cores", "cuda", pytest.param("server", marks=pytest.mark.integration)]


@pytest.fixture(scope="module")
def server(servers):  # noqa: F811
    if not devices.can_pin():
        pytest.skip("servers are kept on cores, which this system cannot do")
    return servers().device


@pytest.fixture(params=KINDS)
def there(request):
    """The spelling of a device that is there."""
    if request.param == "server":
        return request.getfixturevalue("server")
    if request.param == "cuda":
        import tvm

        if not (tvm.runtime.enabled("cuda") and tvm.cuda(0).exist):
            pytest.skip("no CUDA device that TVM can use is here")
        return "cuda:0"
    return HERE if request.param == "core" else "cores:" + ",".join(map(str, devices.available()))


def test_a_stage_on_it_computes_what_the_whole_does(branches, there):
    for along in {(there, HERE), (HERE, there), (there, there)}:
        nets.judge(branches, branches.split([["first"]]).pipeline(along))


def test_a_single_number_goes_there_and_back(save, there):
    text = "g (float x, float[4] v) => (float y, float[4] z)"
    proto = nets.net(f"{text} {{ y = Exp(x)  s = Softmax(v)  z = Mul(s, y) }}")
    model = autosplit.load_model(save(proto))
    nets.judge(model, model.split([["y"]]).pipeline([there, there]))


def test_its_profile_and_its_link_are_measured(branches, there):
    device = devices.parse(there)
    profile, link = branches.profile(device, 0.2), branches.links([device])[0]
    assert profile.device == link.device == there
    assert len(profile.op_ms) == len(branches.graph.ops)
    assert all(0 <= ms < math.inf for ms in profile.op_ms)
    assert sum(profile.op_ms) > 0
    assert link.bandwidth > 0


def test_an_export_for_it_loads_and_runs(branches, there, tmp_path):
    branches.split([["first"]]).export(tmp_path, [there, HERE])
    nets.judge(branches, autosplit.load(tmp_path))


@pytest.mark.integration
def test_a_study_measures_candidates_on_it_and_the_whole_model_there(branches, there):
    bench = LocalBench(branches, devices.along(2, [there, HERE]), BRIEF)
    candidate = deployed(bench, branches.split([["first"]]).stages)
    assert bench.measure(candidate).max_rel_error < 1e-4
    names = [baseline.name for baseline in bench.baselines()]
    assert there.startswith("cores") or f"tvm, {there}" in names

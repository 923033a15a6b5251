"""Exports by somebody else: refused in one line or run as they are, whatever was edited."""

import contextlib
import json
import os
import random

import pytest

import autosplit
from autosplit.deploy import manifest_file
from autosplit.deploy import verify as verifying
from autosplit.deploy.manifest_wiring import wired
from autosplit.errors import AutosplitError, ConfigError
from tests.deploy.exports import SOUND
from tests.frontend.mutations import damaged, json_changed

EDITS = 3000  # of split.json; docs/explanation/security.md names the number
LOADED_EDITS = 200  # of an export that is then loaded and verified
PATHS = ["n" * 5000, "\ud800", "a\0b", "loop", "loop/split.json", "pipe", "pipe/split.json", "file"]


@pytest.mark.parametrize("path", [*PATHS, ""])
def test_a_path_that_is_no_export_is_refused(tmp_path, path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    for pipe in ("pipe", "piped/split.json"):
        (tmp_path / pipe).parent.mkdir(exist_ok=True)
        os.mkfifo(tmp_path / pipe)
    for name in (path, "piped"):
        for call in (autosplit.load, verifying.verify):
            with pytest.raises(ConfigError, match="has no readable") as error:
                call(tmp_path / name)
            assert "\n" not in str(error.value)


def test_an_original_model_of_a_strange_name_is_not_there(export):
    for name in ("n" * 5000, "a\0b", str(export.folder), "/dev/zero"):
        export.edit(lambda document, name=name: document["model"].update(file=name))
        assert "recorded in" in verifying.verify(export.folder).reference


@pytest.mark.parametrize("edits", [300, pytest.param(EDITS, marks=pytest.mark.integration)])
def test_an_edited_or_damaged_manifest_is_read_or_refused(edits):
    content, outcomes = json.dumps(SOUND).encode(), set()
    for number in range(edits):
        try:
            wired(manifest_file.parse(damaged(".json", content, number), "split.json"))
            outcomes.add("read")
        except ConfigError as error:
            outcomes.add("refused in " + str(len(str(error).splitlines())))
    assert outcomes == {"read", "refused in 1"}


@pytest.mark.integration
def test_an_edited_export_is_verified_or_refused(export):
    content, random_numbers = export.file.read_bytes(), random.Random(1)
    for _ in range(LOADED_EDITS):
        export.file.write_bytes(json_changed(content, random_numbers))
        with contextlib.suppress(AutosplitError):
            verifying.verify(export.folder, items=1)


@pytest.mark.parametrize("digest", [None, "0" * 64])
def test_a_file_of_two_stages_has_to_have_the_digests_of_both(export, digest):
    def share(document):
        file = document["stages"][1]["file"]
        document["stages"][0]["replicas"][0].update(file=file, sha256=digest)

    export.edit(share)
    with pytest.raises(ConfigError, match="recorded is"):
        autosplit.load(export.folder)

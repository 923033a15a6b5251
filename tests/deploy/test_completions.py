"""Completions of token ids by a server, of a decoder that adds up what it sees."""

import json
import socket
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from autosplit.deploy.server.completions import Asked, Decoder, chosen
from autosplit.errors import StageError
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.stage_spec import Port, StageSpec, StageState
from autosplit.hardware.execution.wiring import Connection, Variant, Wiring
from autosplit.hardware.runtimes.interface import Stage
from tests.deploy.test_server import metrics, post, request, served
from tests.hardware.fakes import wait_for

LENGTH, VOCABULARY = 12, 7
CACHE = (LENGTH,)


def inputs(count):
    return (
        Port("input_ids", (1, count), "int64"),
        Port("position_ids", (1, count), "int64"),
        Port("attention_mask", (1, 1, count, LENGTH), "bool"),
    )


def decoder(**others):
    """The wiring of one stage; items have one token or three."""
    scores, state = Port("logits", (1, 1, VOCABULARY), "float32"), Port("in", CACHE, "int64")
    stage = StageSpec.planned((), (*inputs(1), state), (scores, replace(state, name="out")))
    stage = replace(stage, states=(StageState("in", "out", CACHE, "int64"),))
    connections = [Connection(p.name, p.name, (0,), ()) for p in inputs(1)]
    connections.append(Connection("logits", (0, 0), (), ("logits",)))
    wiring = Wiring(inputs(1), (scores,), (stage,), tuple(connections), steps=LENGTH)
    return replace(wiring, variants={"three": Variant(inputs(3), 3)}, **others)


class Adding(Stage):
    """The next token is the sum of those that a token sees, each times its place from 1."""

    def __init__(self, fails_on=None):
        self.counts, self._fails_on = [], fails_on

    def run(self, values):
        ids, places, mask, cache = map(np.array, values)
        if self._fails_on in ids:
            raise RuntimeError("no memory")
        self.counts.append(ids.size)
        cache[places[0]] = ids[0]
        sums = [(cache * (np.arange(LENGTH) + 1))[row].sum() for row in mask[0, 0]]
        scores = np.eye(VOCABULARY, dtype=np.float32)[[s % VOCABULARY for s in sums]]
        return [scores[None], cache]


def expected(prompt, count):
    text = list(prompt)
    for _ in range(count):
        text.append(sum(t * (i + 1) for i, t in enumerate(text)) % VOCABULARY)
    return text[len(prompt) :]


def ask(address, **document):
    """The status and the documents of an answer."""
    status, headers, text = request(address, "POST", "/v1/completions", json.dumps(document))
    if not headers["content-type"].startswith("text/event-stream"):
        return status, [json.loads(text)]
    *events, end = text.strip().split("\n\n")
    assert end == "data: [DONE]"
    return status, [json.loads(event.removeprefix("data: ")) for event in events]


@pytest.fixture(scope="module")
def stage():
    return Adding()


@pytest.fixture(scope="module")
def address(stage):
    with served(lambda: Pipeline(decoder(), [[stage]])) as here:
        yield here


def test_a_prompt_in_chunks_is_completed_and_may_fill_the_cache(address, stage):
    stage.counts.clear()
    status, (answer,) = ask(address, prompt=[3, 1, 2, 6], max_tokens=4, temperature=0)
    assert status == 200
    tokens = expected([3, 1, 2, 6], 4)
    (choice,) = answer["choices"]
    assert (choice["token_ids"], choice["finish_reason"]) == (tokens, "length")
    assert answer["usage"] == {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8}
    assert stage.counts == [3, 1, 1, 1, 1]
    _, (answer,) = ask(address, prompt=[1] * 4, max_tokens=9, temperature=0)
    assert answer["choices"][0]["token_ids"] == expected([1] * 4, 9)


def test_tokens_are_streamed_until_one_that_stops(address):
    tokens = expected([5, 2], 8)
    count = tokens.index(tokens[3]) + 1
    options = {"temperature": 0, "stop_token_ids": [tokens[3]], "max_tokens": 8, "stream": True}
    status, events = ask(address, prompt=[5, 2], **options)
    choices = [event["choices"][0] for event in events]
    assert (status, [c["token_ids"] for c in choices]) == (200, [[t] for t in tokens[:count]])
    assert [c["finish_reason"] for c in choices] == [None] * (count - 1) + ["stop"]


def test_a_seed_repeats_what_is_drawn(address):
    options = {"prompt": [1], "max_tokens": 11, "temperature": 5.0}
    answers = [ask(address, seed=seed, **options)[1][0] for seed in (1, 1, 2, 3)]
    texts = [answer["choices"][0]["token_ids"] for answer in answers]
    assert texts[0] == texts[1]
    assert len({tuple(text) for text in texts}) > 1


def test_scores_are_drawn_as_softmax_says():
    random, scores = np.random.default_rng(0), np.log(np.array([0.7, 0.2, 0.1]))
    counts = np.bincount([chosen(2 * scores, 2.0, random) for _ in range(5000)]) / 5000
    np.testing.assert_allclose(counts, [0.7, 0.2, 0.1], atol=0.03)
    with pytest.raises(StageError, match="not numbers"):
        chosen(np.array([np.nan, 1.0]), 0.0, random)


TOO_LONG = "the prompt has 4 tokens and max_tokens is 10, but the model's cache holds 12"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"prompt": []}, "prompt: List should have at least 1 item"),
        ({"prompt": "text"}, "prompt: Input should be a list of numbers of tokens"),
        ({"prompt": [True]}, "prompt.0: Input should be a valid integer"),
        ({"prompt": [-1]}, "prompt.0: Input should be greater than or equal to 0"),
        ({"prompt": [VOCABULARY]}, "prompt has token 7; the model has 7 tokens"),
        ({"prompt": [1], "max_tokens": 0}, "max_tokens: Input should be greater than 0"),
        ({"prompt": [1], "temperature": -1}, "temperature: Input should be greater than or equal"),
        ({"prompt": [1], "temperature": 1e300}, "temperature: Input should be less than or equal"),
        ({"prompt": [1], "top_p": 0.5}, "top_p: Extra inputs are not permitted"),
        ({"prompt": [1] * 4, "max_tokens": 10}, TOO_LONG),
        ([], "the request: Input should be an object"),
    ],
)
def test_a_bad_request_gets_a_line(address, document, reason):
    status, _, answer = post(address, document, "/v1/completions")
    assert (status, reason in answer["error"], "\n" in answer["error"]) == (400, True, False)


def test_of_a_list_of_wrong_tokens_the_first_alone_is_an_error():
    with pytest.raises(ValidationError) as error:  # each takes more memory than its token
        Asked.model_validate({"prompt": [-1] * 100, "stop_token_ids": ["a"] * 100})
    assert [each["loc"][-1] for each in error.value.errors()] == [0, 0]
    with pytest.raises(ValidationError, match="at most 1000"):  # each token is compared with them
        Asked.model_validate({"prompt": [1], "stop_token_ids": [1] * 1001})


def test_a_stage_that_fails_ends_the_stream_with_a_line():
    with served(lambda: Pipeline(decoder(), [[Adding(fails_on=expected([3, 1], 2)[1])]])) as here:
        _, events = ask(here, prompt=[3, 1], max_tokens=4, temperature=0, stream=True)
        assert "no memory" in events[-1]["error"]
    with served(lambda: Pipeline(decoder(), [[Adding(fails_on=3)]])) as here:
        status, (answer,) = ask(here, prompt=[3, 1], max_tokens=4, stream=True)
        assert (status, "no memory" in answer["error"]) == (500, True)


def test_no_tokens_are_computed_for_a_client_that_is_gone():
    begun, release = threading.Event(), threading.Event()

    class Waiting(Adding):
        def run(self, values):
            begun.set()
            release.wait()
            return super().run(values)

    stage, document = Waiting(), json.dumps({"prompt": [3], "max_tokens": LENGTH}).encode()
    with served(lambda: Pipeline(decoder(), [[stage]])) as here:
        with socket.create_connection(here.split(":")) as connection:
            size = f"content-length: {len(document)}\r\n\r\n".encode()
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n" + size + document)
            begun.wait()
        time.sleep(0.2)  # until the server notices
        release.set()
        wait_for(lambda: '"499"' in metrics(here))
        assert len(stage.counts) < LENGTH
        wait_for(lambda: "autosplit_items_inside 0" in metrics(here))


def test_a_mask_of_floats_is_added_to_scores():
    ports = (*inputs(1)[:2], Port("attention_mask", (1, LENGTH), "float32"))
    item, _ = Decoder.of(replace(decoder(), inputs=ports, variants={})).item([3], 4)
    lowest = np.finfo(np.float32).min
    assert item["attention_mask"].tolist() == [[0] * 5 + [lowest] * (LENGTH - 5)]


MASKS = ["mask.sliding_attention", "mask.chunked_attention", "mask.window", "mask.local_attention"]


@pytest.mark.parametrize(
    "other",
    [
        {"inputs": inputs(3), "variants": {}},
        {"inputs": (*inputs(1), Port("image", (3,), "float32"))},
        {"inputs": inputs(1)[1:]},
        *({"inputs": (*inputs(1)[:2], Port(name, (1, 1, 1, LENGTH), "bool"))} for name in MASKS),
        {"outputs": (Port("logits", (1, 1, 7), "int64"),)},
        {"outputs": ()},
        {"stages": ()},
    ],
)
def test_other_models_offer_no_completions(other):
    assert Decoder.of(decoder()) is not None
    assert Decoder.of(replace(decoder(), **other)) is None

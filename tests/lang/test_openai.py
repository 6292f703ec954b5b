"""sgl.OpenAI: the official client against a server with OpenAI's API."""

import threading
from collections.abc import Iterator

import pytest

import sgjax as sgl
from tests.lang.api_server import ApiServer, serving

pytest.importorskip("openai")


def write(source: object) -> str:
    """Answer a chat with the last message's words reversed, a completion with a fixed text."""
    if isinstance(source, list):
        return " ".join(reversed(str(source[-1]["content"]).split()))
    return " one two\nthree four"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with serving(write) as server:
        yield server


@pytest.fixture
def backend(server: ApiServer) -> Iterator[sgl.OpenAI]:
    backend = sgl.OpenAI("scripted", base_url=server.url, api_key="none")
    yield backend
    backend.close()


def test_programs_without_roles_use_the_completions_api(
    backend: sgl.OpenAI, server: ApiServer
) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "Count:" + sgl.gen("a", stop="\n", max_tokens=10, temperature=0)

    state = program.run(backend=backend, seed=3)
    assert state.text() == "Count: one two"
    body = server.requests[0]
    assert (body["prompt"], body["stop"], body["max_tokens"]) == ("Count:", ["\n"], 10)
    assert state.get_meta_info("a")["finish_reason"]["type"] == "stop"
    usage = backend.token_usage
    assert (usage.requests, usage.prompt_tokens, usage.completion_tokens) == (1, 1, 2)
    usage.reset()
    assert usage.requests == 0


def test_programs_with_roles_use_the_chat_api(backend: sgl.OpenAI, server: ApiServer) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += sgl.system("reverse")
        s += sgl.user("a b c")
        s += sgl.assistant(sgl.gen("r", max_tokens=9))
        s += sgl.user("d e")
        s += sgl.assistant(sgl.gen("q", max_tokens=1))

    state = program.run(backend=backend)
    assert (state["r"], state["q"]) == ("c b a", "e")
    assert state.get_meta_info("q")["finish_reason"] == {"type": "length"}
    assert server.requests[1]["messages"] == [
        {"role": "system", "content": "reverse"},
        {"role": "user", "content": "a b c"},
        {"role": "assistant", "content": "c b a"},
        {"role": "user", "content": "d e"},
    ]


@pytest.mark.parametrize("chat", [True, False])
def test_streams_deliver_pieces_that_add_up(
    backend: sgl.OpenAI, server: ApiServer, chat: bool
) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += (sgl.user("x y z") + sgl.assistant(sgl.gen("a"))) if chat else "Go" + sgl.gen("a")

    state = program.run(backend=backend, stream=True, max_new_tokens=20)
    pieces = list(state.text_iter("a"))
    assert server.requests[0]["stream"]
    assert "".join(pieces) == state["a"] == ("z y x" if chat else " one two\nthree four")


def test_a_batch_runs_its_requests_at_once(backend: sgl.OpenAI, server: ApiServer) -> None:
    @sgl.function
    def program(s, q):  # type: ignore[no-untyped-def]
        s += sgl.user(q)
        s += sgl.assistant(sgl.gen("a"))

    states = program.run_batch([{"q": f"{i} x"} for i in range(20)], backend=backend)
    assert [s["a"] for s in states] == [f"x {i}" for i in range(20)]
    assert backend.token_usage.requests == 20


def test_select_scores_echoed_prompts(backend: sgl.OpenAI) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "Pick a fruit:" + sgl.select("f", [" fg", " banana", " kiwi"])

    state = program.run(backend=backend)
    assert state["f"] == " banana"
    assert state.get_meta_info("f")["scores"] == [-5.0, -2.0, -3.0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("chat", [False, True])
def test_several_samples_and_output_logprobs(backend: sgl.OpenAI, chat: bool, stream: bool) -> None:
    options = {"n": 2, "return_logprob": True, "top_logprobs_num": 2, "max_tokens": 2}

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        if chat:
            s += sgl.user("two one") + sgl.assistant(sgl.gen("a", **options))
        else:
            s += "Go" + sgl.gen("a", **options)

    state = program.run(backend=backend, stream=stream)
    one, two = ("one", " two") if chat else (" one", " two")
    assert state["a"] == [one + two] * 2
    meta = state.get_meta_info("a")
    assert [m["completion_tokens"] for m in meta] == [2, 2]
    assert [m["output_token_logprobs"] for m in meta] == [
        [(-3.0, None, one), (-4.0, None, two)]
    ] * 2
    assert [m["output_top_logprobs"] for m in meta] == [
        [[(-3.0, None, one), (-9.0, None, "other")], [(-4.0, None, two), (-9.0, None, "other")]]
    ] * 2


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (lambda: "x" + sgl.gen("a", top_k=5), "top_k=5: OpenAI's API has no such parameter"),
        (lambda: "x" + sgl.gen("a", regex="a"), "regex='a'"),
        (lambda: sgl.user("x") + sgl.gen("a"), "generates assistant messages only"),
        (
            lambda: sgl.user("x") + sgl.assistant("I think " + sgl.gen("a")),
            "cannot continue the message 'I think '",
        ),
        (lambda: sgl.user("x") + sgl.assistant(sgl.select("a", ["y"])), "gives no log-prob"),
        (
            lambda: "x" + sgl.select("a", ["y"], choices_method=sgl.sequence_likelihood),
            "token_length_normalized and greedy",
        ),
    ],
)
def test_what_the_api_cannot_do_is_refused_to_the_reader(
    backend: sgl.OpenAI, expr: object, message: str
) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += expr()  # type: ignore[operator]

    with pytest.raises(sgl.ProgramError, match=message):
        program.run(backend=backend)


def test_images_travel_as_data_urls_where_they_stand(
    backend: sgl.OpenAI, server: ApiServer
) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += sgl.system("Look.")
        s += sgl.user(sgl.image(b"\x89PNG1") + "This or " + sgl.image(b"GIF8") + "that?")
        s += sgl.assistant(sgl.gen("a"))

    program.run(backend=backend)
    system, user = server.requests[0]["messages"]
    assert system["content"] == "Look."
    first, this, second, that = user["content"]
    assert first["image_url"]["url"].startswith("data:image/png;base64,")
    assert second["image_url"]["url"].startswith("data:image/gif;base64,")
    assert this == {"type": "text", "text": "This or "}
    assert that == {"type": "text", "text": "that?"}


def test_errors_of_the_endpoint_reach_the_reader(server: ApiServer) -> None:
    import openai

    backend = sgl.OpenAI("missing", base_url=server.url, api_key="none")

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a")

    with pytest.raises(sgl.ProgramError, match="no model missing") as caught:
        program.run(backend=backend)
    assert isinstance(caught.value.__cause__, openai.NotFoundError)
    backend.close()


@pytest.mark.timeout(30)
def test_who_waits_when_the_backend_is_closed_is_told_and_who_comes_later(
    backend: sgl.OpenAI, server: ApiServer
) -> None:
    asked, leave = threading.Event(), threading.Event()

    def never(source: object) -> str:
        asked.set()
        leave.wait(20)
        return "too late"

    server.write = never

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a")

    state = program.run(backend=backend, stream=True)
    assert asked.wait(20)
    backend.close()
    leave.set()
    with pytest.raises(sgl.ProgramError, match="closed while the request ran"):
        state.text()
    with pytest.raises(sgl.ProgramError, match="was closed; make a new one"):
        program.run(backend=backend)
    backend.close()

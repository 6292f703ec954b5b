"""What masks cost the host in simulation: by how much of the vocabulary they allow."""

import pytest

import sgjax as sgl

A10G = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b"}


def fill_in(mask_s: float, regex: str, jump: str) -> tuple[str, float]:
    """Return a constrained text, and the virtual seconds that it took."""
    executor = {**A10G, "mask_s": mask_s}
    with sgl.Engine(executor=executor, grammar={"jump": {"type": jump}}) as engine:
        params = {"temperature": 0, "max_new_tokens": 60, "regex": regex}
        text = engine.generate("A form: ", params)["text"]
        return text, engine.now()


@pytest.mark.parametrize("jump", ["none", "retokenize"])
def test_each_constrained_token_pays_for_its_share_of_the_vocabulary(jump: str) -> None:
    text, free_s = fill_in(0.0, "[a-p]{5}", jump)
    same_text, paid_s = fill_in(1.0, "[a-p]{5}", jump)
    assert same_text == text
    bytes_and_end = 257
    assert paid_s - free_s == pytest.approx(5 * 16 / bytes_and_end)


def test_a_jump_saves_passes_and_their_few_allowed_tokens() -> None:
    regex = "[a-p]{2} forced words [a-p]{2}"
    paid = {}
    for jump in ("none", "retokenize"):
        (text, free_s), (same_text, paid_s) = (fill_in(m, regex, jump) for m in (0.0, 1.0))
        assert same_text == text
        paid[jump] = paid_s - free_s
    assert paid["none"] == pytest.approx((4 * 16 + len(" forced words ")) / 257)
    assert 4 * 16 / 257 <= paid["retokenize"] < paid["none"]

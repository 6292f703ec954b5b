"""The nine steps of the paper's Figure 3, on the tree that the engine uses. Imports cache.

Keys are characters instead of tokens, so that edges can be read, and what the figure abbreviates is
written out.
"""

import numpy as np

from sgjax.cache import InsertReason, Keys, LeastRecentlyUsed, PagePool, RadixTree
from sgjax.lab.views.recorder import Recorder, Recording

SYSTEM = "You are a helpful assistant. "
HELLO, SOLVE, POEM = "Hello! → Hi! ", "Solve this. → Sure. ", "Write a poem. → Roses. "
STORY, MORE = "Tell a story. → Once. ", "Go on. → Upon a time. "
SHOTS = "1 + 1 = 2; 2 + 3 = 5; "
QUESTION, OTHERS = "what is 4 + 5? ", ("how much is 6 + 1? ", "and 2 + 2? ", "but 3 + 0? ")
ANSWERS = ("Nine.", "It is 9.", "4 + 5 = 9.")


def as_text(key: Keys) -> str:
    """Return a key of characters as text."""
    return "".join(map(chr, key.tolist()))


class _Server:
    """Serve texts one after another: match, pin, make room, compute the rest, insert, unpin."""

    def __init__(self, recorder: Recorder) -> None:
        self._pool = PagePool(num_pages=1001, page_size=1)
        self._tree = RadixTree(self._pool, LeastRecentlyUsed())
        self._tree.listen(recorder.changed)
        self._recorder = recorder
        self._step = 1
        recorder.look("step 1", "The tree is empty.", 1, {})

    def serve(self, note: str, *texts: str, evict: int = 0) -> None:
        """Serve the requests of one step of the figure, which lack room for so many tokens."""
        self._step += 1
        pins, cached = {}, 0
        for at, text in enumerate(texts):
            key = np.array([ord(c) for c in text], np.int64)
            match = self._tree.match(key[:-1])  # one token is always computed
            self._tree.pin(match.node)
            missing = len(key) - match.num_tokens
            self._tree.evict(evict if at == 0 else 0)
            pages = np.concatenate([match.pages, self._pool.alloc(missing)])
            kept = self._tree.insert(key, pages, match.num_tokens, InsertReason.FINISHED)
            self._tree.unpin(match.node)
            pins[str(at + 1)] = kept.node.id
            cached += match.num_tokens
        total = sum(map(len, texts))
        title = f"step {self._step}"
        self._recorder.look(title, f"{note} {cached} of {total} tokens cached.", self._step, pins)


def figure3() -> Recording:
    """Return the figure's nine steps as a recording."""
    recorder = Recorder("Figure 3: RadixAttention in nine steps", as_text)
    server = _Server(recorder)
    chat, second = SYSTEM + HELLO, SYSTEM + STORY
    server.serve("A chat begins.", chat)
    server.serve("Its second turn hangs below the first.", chat + SOLVE)
    server.serve("Another chat shares the system prompt: the first node is split.", second)
    server.serve(
        "The second chat goes on; for room, the leaf goes that was not used for longest.",
        second + MORE,
        evict=len(SOLVE),
    )
    server.serve("A question with examples shares nothing with the chats.", SHOTS + QUESTION)
    server.serve("More questions share the examples.", *(SHOTS + q for q in OTHERS))
    server.serve(
        "The first chat returns; all of the second goes, children before parents.",
        chat + POEM,
        evict=len(STORY + MORE),
    )
    server.serve(
        "More answers to one question are sampled and share it; the other questions go.",
        *(SHOTS + QUESTION + answer for answer in ANSWERS),
        evict=sum(map(len, OTHERS)),
    )
    return recorder.recording()

"""The nine steps of the paper's Figure 3: two chats, few-shot questions, self-consistency."""

import numpy as np

from sgjax.cache import InsertReason, Keys, LeastRecentlyUsed, Owner, PagePool, RadixNode, RadixTree

# What diverges here differs in its first character, so that nodes end where the figure's do.
SYSTEM = "You are a helpful assistant.\n"
HELLO = "Hello! -> Hi!\n"
SOLVE = "Solve this problem. -> Sure.\n"
STORY = "Tell a story. -> Once upon a time.\n"
MORE = "Go on. -> They lived.\n"
WRITE = "Write a poem. -> Roses.\n"
SHOTS = "1 + 1 = 2; 2 + 3 = 5; "
WHAT, HOW, WHEN, WHO = "what is 4 + 5", "how much is 6 + 1", "and 2 + 2", "but 3 + 0"
Edges = dict[str, "Edges"]


class Server:
    """Serve one request at a time; a node is shown as the text of its edge."""

    def __init__(self) -> None:
        self.pool = PagePool(1000, page_size=1)
        self.tree = RadixTree(self.pool, LeastRecentlyUsed())

    def serve(self, text: str, evicting: str = "") -> str:
        """Answer a request whose room costs the cache `evicting`; return what was cached."""
        key = encode(text)
        match = self.tree.match(key[:-1])
        self.tree.pin(match.node)
        room = self.pool.num_free + len(evicting)
        self.tree.evict(room - self.pool.num_free)
        own = self.pool.alloc(room)
        pages = np.concatenate([match.pages, own])
        end = self.tree.insert(key, pages, match.num_tokens, InsertReason.FINISHED)
        self.pool.free(pages[end.num_tokens :], Owner.SEQUENCE)
        self.tree.unpin(match.node)
        self.tree.check()
        self.pool.check()
        return text[: match.num_tokens]

    @property
    def edges(self) -> Edges:
        """Return the tree as nested dictionaries."""
        return show(self.tree.root)


def encode(text: str) -> Keys:
    return np.array([ord(c) for c in text], np.int64)


def show(node: RadixNode) -> Edges:
    return {"".join(map(chr, child.key)): show(child) for child in node.children.values()}


def test_figure_3_step_by_step():
    server = Server()
    assert server.edges == {}  # (1)

    assert server.serve(SYSTEM + HELLO) == ""  # (2)
    assert server.edges == {SYSTEM + HELLO: {}}

    assert server.serve(SYSTEM + HELLO + SOLVE) == SYSTEM + HELLO  # (3)
    assert server.edges == {SYSTEM + HELLO: {SOLVE: {}}}

    # (4) A second chat: the first node is split, so that both share the system prompt.
    assert server.serve(SYSTEM + STORY) == SYSTEM
    assert server.edges == {SYSTEM: {HELLO: {SOLVE: {}}, STORY: {}}}

    # (5) The second chat goes on; the first chat's last turn is the least recently used leaf.
    assert server.serve(SYSTEM + STORY + MORE, evicting=SOLVE) == SYSTEM + STORY
    assert server.edges == {SYSTEM: {HELLO: {}, STORY: {MORE: {}}}}

    # (6) A few-shot question shares nothing with the chats.
    assert server.serve(SHOTS + WHAT) == ""
    chats: Edges = {HELLO: {}, STORY: {MORE: {}}}
    assert server.edges == {SYSTEM: chats, SHOTS + WHAT: {}}

    # (7) More questions of the same kind split it after the examples.
    for question in (HOW, WHEN, WHO):
        assert server.serve(SHOTS + question) == SHOTS
    questions: Edges = {WHAT: {}, HOW: {}, WHEN: {}, WHO: {}}
    assert {e: sorted(c) for e, c in server.edges.items()} == {
        SYSTEM: sorted(chats),
        SHOTS: sorted(questions),
    }

    # (8) The first chat is back; all of the second goes, children before parents.
    assert server.serve(SYSTEM + HELLO + WRITE, evicting=STORY + MORE) == SYSTEM + HELLO
    assert server.edges == {SYSTEM: {HELLO: {WRITE: {}}}, SHOTS: questions}

    # (9) More answers to the second question are sampled; the other questions go.
    asked = SHOTS + HOW
    for i, answer in enumerate(("A.", "B.", "C.")):
        evicting = "" if i else WHAT + WHEN + WHO
        assert server.serve(asked + answer, evicting) == asked
    assert server.edges == {
        SYSTEM: {HELLO: {WRITE: {}}},
        SHOTS: {HOW: {"A.": {}, "B.": {}, "C.": {}}},
    }

"""Prompts that are shared by those that ask the very same at the same time."""

from naive_cache import keys

from sgjax.cache import InsertReason, Match, Owner, PagePool, SamplesCache

PROMPT = keys(*range(10))


def run(pool: PagePool, cache: SamplesCache, prompt=PROMPT) -> tuple[Match, int]:
    """Admit a prompt and compute it; return what it then shares, and how much it was given."""
    found = cache.match(prompt[:-1])
    cache.pin(found.node)
    own = pool.alloc(-(-len(prompt) // 4) - len(found.pages))
    pages = [*found.pages, *own]
    match = cache.insert(
        prompt,
        own if not found.num_tokens else keys(*pages),
        found.num_tokens,
        InsertReason.CHUNK,
        found.node,
    )
    cache.pin(match.node)
    cache.unpin(found.node)
    return match, found.num_tokens


def test_the_second_sample_reads_the_whole_pages_of_the_first() -> None:
    pool = PagePool(20, 4)
    cache = SamplesCache(pool)
    first, nothing = run(pool, cache)
    second, given = run(pool, cache)
    assert (nothing, given) == (0, 8)
    assert first.node is second.node
    assert pool.counts()["tree"] == 2


def test_another_prompt_shares_nothing_however_much_is_the_same() -> None:
    pool = PagePool(20, 4)
    cache = SamplesCache(pool)
    run(pool, cache)
    for other in (keys(*range(8), 99, 9), keys(*range(14)), keys(*range(9))):
        assert cache.peek(other[:-1]) == 0


def test_a_prompt_goes_with_its_last_user() -> None:
    pool = PagePool(20, 4)
    cache = SamplesCache(pool)
    (first, _), (second, _) = run(pool, cache), run(pool, cache)
    cache.unpin(first.node)
    assert cache.peek(PROMPT[:-1]) == 8
    cache.unpin(second.node)
    assert cache.peek(PROMPT[:-1]) == cache.num_pages == 0
    assert len(pool.owned_by(Owner.TREE)) == 0

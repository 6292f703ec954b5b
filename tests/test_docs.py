"""Every link of the documentation leads to what it says: a file, a heading, a name in the code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("docs/*.md"), ROOT / "CONTRIBUTING.md", ROOT / "README.md"]
LINK = re.compile(r"\[([^\]]*)\]\(([^)#]*)#?([^)]*)\)")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def local_links(page: Path) -> list[tuple[str, Path, str]]:
    """Return the links to files of the project: text, file and heading."""
    found = LINK.findall(page.read_text(encoding="utf-8"))
    return [
        (text, (page.parent / path) if path else page, heading)
        for text, path, heading in found
        if "://" not in path
    ]


def headings(page: Path) -> set[str]:
    """Return a page's headings as GitHub writes them behind a '#'."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@each_page
def test_links_lead_to_files(page: Path) -> None:
    assert [path for _, path, _ in local_links(page) if not path.exists()] == []


@each_page
def test_links_lead_to_headings(page: Path) -> None:
    wrong = [(p, at) for _, p, at in local_links(page) if at and at not in headings(p)]
    assert wrong == []


@each_page
def test_a_name_that_is_a_link_stands_in_the_file_behind_it(page: Path) -> None:
    wrong = []
    for text, path, _ in local_links(page):
        names = re.findall(r"`([A-Za-z_./]+)`", text) if path.suffix == ".py" else []
        for name in names:
            last = name.removesuffix(".py").split(".")[-1].split("/")[-1]
            defined = rf"^\s*(async def|def|class) {last}\b|^\s*{last}\b.*[=:]"
            code = path.read_text(encoding="utf-8")
            if last not in path.with_suffix("").parts and not re.search(defined, code, re.M):
                wrong.append(f"{name} in {path.name}")
    assert wrong == []

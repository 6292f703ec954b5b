"""Recordings as pages: each one file that needs nothing else. Imports the lab's pages."""

from markupsafe import Markup

from sgjax.lab.report import template
from sgjax.lab.views.recorder import Recording


def tree_page(recording: Recording) -> str:
    """Return a page that replays the prefix tree, frame by frame."""
    return _page("tree.html.jinja", recording)


def schedule_page(recording: Recording) -> str:
    """Return a page with the schedule as a Gantt chart, a row a request."""
    return _page("schedule.html.jinja", recording)


def _page(name: str, recording: Recording) -> str:
    # Inside <script>, nothing is an entity and only "</" could end it: no "<" is left.
    data = recording.to_json().replace("<", "\\u003c")
    return template(name).render(title=recording.title, data=Markup(data))

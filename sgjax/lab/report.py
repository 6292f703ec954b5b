"""The report: one HTML file that needs nothing else. Imports jinja2 and the lab."""

import dataclasses
from collections.abc import Sequence

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from sgjax.lab.made import FULL, made
from sgjax.lab.metrics import METRICS
from sgjax.lab.summary import Summary
from sgjax.lab.table import show_stat


def render_report(arms: Sequence[Summary], svg: str) -> str:
    """Return the report of an experiment's run as HTML.

    Args:
        arms: what is reported.
        svg: the figure, set into the page as it is.
    """
    return template("report.html.jinja").render(
        name=arms[0].experiment.name,
        claim=arms[0].experiment.claim,
        arms=arms,
        made=made([record for arm in arms for record in arm.records]),
        full=FULL,
        metrics=METRICS,
        show_stat=show_stat,
        figure=inline_svg(svg),
        provenance={arm.arm: _provenance(arm) for arm in arms},
        experiment_yaml={arm.arm: _yaml(dataclasses.asdict(arm.experiment)) for arm in arms},
        engine_yaml={
            f"{record.variant}, {arm.arm}": _yaml(record.config["engine"])
            for arm in arms
            for record in {r.variant: r for r in arm.records}.values()
        },
    )


def template(name: str) -> Template:
    """Return one of the page templates that ship with the lab."""
    environment = Environment(
        loader=PackageLoader("sgjax.lab", "data"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def inline_svg(svg: str) -> Markup:
    """Return an SVG file as a part of a page."""
    return Markup(svg[svg.index("<svg") :])


def _provenance(summary: Summary) -> dict[str, str]:
    first, last = summary.records[0], summary.records[-1]
    return {
        "model": f"{first.model}, {first.dtype}",
        "device": f"{first.device} ({first.executor})",
        "commit": first.git_sha or "not run from a checkout",
        "versions": ", ".join(f"{name} {version}" for name, version in first.versions.items()),
        "timed runs": f"{len(summary.records)}, from {first.started} to {last.started}",
        "hash of what decides results": first.run_hash,
        "config hashes": ", ".join(dict.fromkeys(r.config_hash for r in summary.records)),
    }


def _yaml(data: object) -> str:
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=90))

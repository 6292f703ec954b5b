"""The report: one HTML file that needs nothing else. Imports jinja2 and the lab."""

import dataclasses

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sgjax.lab.metrics import METRICS
from sgjax.lab.summary import Summary
from sgjax.lab.table import show_stat


def render_report(summary: Summary, svg: str) -> str:
    """Return the report as HTML.

    Args:
        summary: what is reported.
        svg: the figure, set into the page as it is.
    """
    environment = Environment(
        loader=PackageLoader("sgjax.lab", "data"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.jinja").render(
        summary=summary,
        experiment=summary.experiment,
        metrics=METRICS,
        show_stat=show_stat,
        figure=Markup(svg[svg.index("<svg") :]),
        provenance=_provenance(summary),
        experiment_yaml=_yaml(dataclasses.asdict(summary.experiment)),
        engine_yaml={
            variant: _yaml(record.config["engine"])
            for variant, record in {r.variant: r for r in summary.records}.items()
        },
    )


def _provenance(summary: Summary) -> dict[str, str]:
    first, last = summary.records[0], summary.records[-1]
    return {
        "model": f"{first.model}, {first.dtype}",
        "device": f"{first.device} ({first.executor})",
        "commit": first.git_sha or "not run from a checkout",
        "versions": ", ".join(f"{name} {version}" for name, version in first.versions.items()),
        "timed runs": f"{len(summary.records)}, from {first.started} to {last.started}",
        "config hashes": ", ".join(dict.fromkeys(r.config_hash for r in summary.records)),
    }


def _yaml(data: object) -> str:
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=90))

"""Draw an experiment's figure as its file asks for it. Imports matplotlib and the lab."""

from collections.abc import Sequence

import matplotlib

from sgjax.lab.figures.bars import draw_bars
from sgjax.lab.figures.compare import draw_compare
from sgjax.lab.figures.lines import draw_lines
from sgjax.lab.figures.scatter import draw_scatter
from sgjax.lab.figures.spec import BarsFigure, CompareFigure, LinesFigure, ScatterFigure
from sgjax.lab.figures.style import STYLE, render
from sgjax.lab.summary import Summary


def draw(arms: Sequence[Summary]) -> dict[str, bytes]:
    """Draw an experiment's figure.

    Args:
        arms: the summaries of its arms.

    Returns:
        The files' contents by suffix, `png` and `svg`; the same summaries give the same bytes.
    """
    with matplotlib.rc_context(STYLE):
        match arms[0].experiment.figure:
            case BarsFigure() as spec:
                figure = draw_bars(spec, arms)
            case CompareFigure() as spec:
                figure = draw_compare(spec, arms)
            case ScatterFigure() as spec:
                figure = draw_scatter(spec, arms)
            case LinesFigure() as spec:
                figure = draw_lines(spec, arms)
        return render(figure)

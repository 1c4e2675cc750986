"""explain: what a conversion does to each gate, as text."""

from __future__ import annotations

from rnnlayout import _native
from rnnlayout._model.layout import Layout, as_layout
from rnnlayout._model.picture.picture import WIDTH, Picture
from rnnlayout._model.spec import Spec
from rnnlayout._native import LossyError

from .conversion_in_words import conversion_in_words
from .picture import picture


class Explanation(str):
    """The result of explain(): a text, which a notebook shows as a picture of the moves.

    spec, layout, to: the arguments of explain().
    """

    spec: Spec
    layout: Layout
    to: Layout

    def __repr__(self) -> str:  # a prompt shows the text
        return str(self)

    def picture(self, *, width: float = WIDTH) -> Picture:
        """Draw the conversion: see picture()."""
        return picture(self.spec, self.layout, self.to, width=width)

    def _repr_svg_(self) -> str | None:
        try:
            return self.picture().svg
        except LossyError:  # the text has the reason
            return None


def explain(spec: Spec, layout: str | Layout, to: str | Layout) -> Explanation:
    """Return what the conversion from `layout` to another does, as text, with its grade.

    For each gate: the tensors that it comes from and goes to; whether it is transposed, negated,
    summed, filled with zeros, or required to be zero. For a conversion that is not possible the
    text has the reason; nothing is raised. A notebook shows it as a picture.

        >>> print(explain(Spec("rnn_tanh", 2, 3), "keras", "torch"))
        keras -> torch: rnn_tanh, input_size 2, hidden_size 3
        grade: exact
        gates in memory: h -> h
        layer 0
          W  h  kernel -> weight_ih_l0, transposed
          R  h  recurrent_kernel -> weight_hh_l0, transposed
          bW h  bias -> bias_ih_l0
          bR h  0 -> bias_hh_l0
    """
    _native.check(spec)
    source, target = as_layout(layout), as_layout(to)
    explanation = Explanation(conversion_in_words(spec, source, target))
    explanation.spec, explanation.layout, explanation.to = spec, source, target
    return explanation

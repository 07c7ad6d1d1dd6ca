"""A right implementation that holds everything between its steps in the declared type, as eager code in that type does.
By its rounding it is judged what a fault may hide behind; and it is a control."""
from .attention import Attention
from .registry import Planted
from .rounding import rounded


class InType(Planted, Attention):
    """Rotated queries and keys, scores and weights are of the declared type."""
    want = {}

    def held_in_type(self, x):
        return rounded(x, self.m.type).astype(self.real)

    def rotate(self, x, pos, call, inverse=False):
        return self.held_in_type(super().rotate(x, pos, call, inverse))

    def scores(self, q, k):
        return self.held_in_type(super().scores(q, k))

    def softmax(self, call, s):
        p, lse = super().softmax(call, s)
        return self.held_in_type(p), lse

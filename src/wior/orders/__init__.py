"""Orders: which example comes next.

Start with `RandomReshuffling`. `BY_NAME` has the orders that can be given by their names.
"""

from typing import Any

from wior.orders.flip_flop import FlipFlop
from wior.orders.herding import Herding
from wior.orders.incremental import Incremental
from wior.orders.independent import Independent
from wior.orders.order import AdaptiveOrder, Order, PermutationOrder, next_line
from wior.orders.random_reshuffling import RandomReshuffling
from wior.orders.shuffle_once import ShuffleOnce

BY_NAME: dict[str, Order] = {
    "independent": Independent(),
    "incremental": Incremental(),
    "shuffle-once": ShuffleOnce(),
    "random-reshuffling": RandomReshuffling(),
    "flip-flop": FlipFlop(),
    "herding": Herding(),
    "herding-mean": Herding(balance="mean"),
}


def named(argument: str, value: Any) -> Order:
    """The order that a name or an order stands for.

    Parameters
    ----------
    argument : str
        What errors call the value, for example "order".
    value : Order or str
        An order, which is returned as it is, or a name of `BY_NAME`, with hyphens or underscores.

    Returns
    -------
    Order

    Examples
    --------
    >>> import wior
    >>> wior.orders.named("order", "random_reshuffling")
    RandomReshuffling()
    """
    if isinstance(value, Order):
        return value
    if isinstance(value, str):
        name = value.lower().replace("_", "-")
        if name not in BY_NAME:
            raise ValueError(
                f"{argument} must be one of {', '.join(map(repr, BY_NAME))}, or one of wior.orders; got {value!r}"
            )
        return BY_NAME[name]
    hint = f"; did you mean {value.__name__}()?" if isinstance(value, type) and issubclass(value, Order) else ""
    raise TypeError(
        f"{argument} must be one of wior.orders, for example RandomReshuffling(), or the name of one, "
        f"for example 'random-reshuffling'; got {value!r} of type {type(value).__name__}{hint}"
    )


__all__ = [
    "BY_NAME",
    "AdaptiveOrder",
    "FlipFlop",
    "Herding",
    "Incremental",
    "Independent",
    "Order",
    "PermutationOrder",
    "RandomReshuffling",
    "ShuffleOnce",
    "named",
    "next_line",
]

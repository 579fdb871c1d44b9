"""Orders: which example comes next."""

from wior.orders.flip_flop import FlipFlop
from wior.orders.herding import Herding
from wior.orders.incremental import Incremental
from wior.orders.independent import Independent
from wior.orders.order import Order
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

__all__ = ["BY_NAME", "FlipFlop", "Herding", "Incremental", "Independent", "Order", "RandomReshuffling", "ShuffleOnce"]

"""The orders that stand in for the one given where that one has nothing to learn from, or nothing to order."""

from wior.orders.incremental import Incremental
from wior.orders.order import Order
from wior.orders.random_reshuffling import RandomReshuffling
from wior.orders.shuffle_once import ShuffleOnce

SHORT_PASSES: Order = ShuffleOnce()  # for a stream of which a single step takes more examples than there are
FIRST_OF_INNER_SETS: Order = ShuffleOnce()  # for the first visit to each inner set
LARGE_BATCHES: Order = RandomReshuffling()  # for large batches, which take nothing out of the order that is learned
ONE_EXAMPLE: Order = Incremental()  # for a level of a single example

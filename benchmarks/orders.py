"""Milliseconds for a million examples on the host, by order and number of examples: the best of five, compilation
apart.
"""

import time

import jax

from wior.orders import FlipFlop, Independent, RandomReshuffling, ShuffleOnce

ORDERS = (Independent(), ShuffleOnce(), RandomReshuffling(), FlipFlop())
COUNT, LENGTHS = 10**6, (10**6, 10**9, 10**12, 10**15)


def milliseconds(order, n: int) -> float:
    key = jax.random.key(0, impl="threefry2x32")
    times = []
    for number in range(6):
        begun = time.perf_counter()
        order.examples(key, n - COUNT // 2 + number, COUNT, n)  # across the end of a pass
        times.append(time.perf_counter() - begun)
    return 1000 * min(times[1:])


def main() -> None:
    print("| order | " + " | ".join(f"n = {n:.0e}" for n in LENGTHS) + " |\n" + "| --- " * (1 + len(LENGTHS)) + "|")
    for order in ORDERS:
        print(f"| {type(order).__name__} | " + " | ".join(f"{milliseconds(order, n):.1f}" for n in LENGTHS) + " |")


if __name__ == "__main__":
    main()

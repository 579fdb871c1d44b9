"""Tasks of the paper, and others, as problems that `solve` takes: one module each.

What tasks share: networks, and `task`, which says what a task is.
"""

from wior.tasks.networks import mlp, mlp_init

__all__ = ["mlp", "mlp_init"]

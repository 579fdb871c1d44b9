"""The paper's algorithms, one file each."""

from wior.algorithms.algorithm import Algorithm
from wior.algorithms.wior_bo import WiORBO
from wior.algorithms.wior_cbo import WiORCBO
from wior.algorithms.wior_ccomp import WiORCComp
from wior.algorithms.wior_comp import WiORComp
from wior.algorithms.wior_minimax import WiORMinimax

__all__ = ["Algorithm", "WiORBO", "WiORCBO", "WiORCComp", "WiORComp", "WiORMinimax"]

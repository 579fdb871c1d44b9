"""The methods that the paper compares with, and later ones, one file each."""

from wior.baselines.agda import AGDA
from wior.baselines.aid_cg import AIDCG
from wior.baselines.amigo import AmIGO
from wior.baselines.bome import BOME
from wior.baselines.bsa import BSA
from wior.baselines.bsgd import BSGD
from wior.baselines.dl_sgd import DLSGD
from wior.baselines.f2sa import F2SA
from wior.baselines.fsla import FSLA
from wior.baselines.ma_soba import MASOBA
from wior.baselines.meha import MEHA
from wior.baselines.mrbo import MRBO
from wior.baselines.nasa import NASA
from wior.baselines.reverse import Reverse
from wior.baselines.rt_mlmc import RTMLMC
from wior.baselines.saba import SABA
from wior.baselines.scgd import SCGD
from wior.baselines.sgda import SGDA
from wior.baselines.soba import SOBA
from wior.baselines.spaba import SPABA
from wior.baselines.srba import SRBA
from wior.baselines.stoc_bio import StocBiO
from wior.baselines.sustain import SUSTAIN
from wior.baselines.ttsa import TTSA
from wior.baselines.vrbo import VRBO
from wior.baselines.wir_bo import WiRBO

__all__ = [
    "AGDA",
    "AIDCG",
    "BOME",
    "BSA",
    "BSGD",
    "DLSGD",
    "F2SA",
    "FSLA",
    "MASOBA",
    "MEHA",
    "MRBO",
    "NASA",
    "RTMLMC",
    "SABA",
    "SCGD",
    "SGDA",
    "SOBA",
    "SPABA",
    "SRBA",
    "SUSTAIN",
    "TTSA",
    "VRBO",
    "AmIGO",
    "Reverse",
    "StocBiO",
    "WiRBO",
]

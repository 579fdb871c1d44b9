"""Finding wrong labels: the estimator, and the command `wior clean`."""

from wior.cleaning.label_cleaner import LabelCleaner
from wior.cleaning.models import Custom

__all__ = ["Custom", "LabelCleaner"]

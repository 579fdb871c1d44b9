"""Data sets: rows of features and labels, and images in classes for few-shot learning."""

from wior.data.digits_images import digits
from wior.data.few_shot import FewShotParts, ImageClasses, with_rotations
from wior.data.mini_imagenet_images import mini_imagenet
from wior.data.mnist_images import mnist
from wior.data.omniglot_images import omniglot
from wior.data.rows import Parts, Rows, Split, TrainTest, split
from wior.data.synthetic import blobs, glyphs
from wior.data.tabular import covtype, ijcnn1, standardize
from wior.data.tiny_imagenet_images import tiny_imagenet_fs

__all__ = [
    "FewShotParts",
    "ImageClasses",
    "Parts",
    "Rows",
    "Split",
    "TrainTest",
    "blobs",
    "covtype",
    "digits",
    "glyphs",
    "ijcnn1",
    "mini_imagenet",
    "mnist",
    "omniglot",
    "split",
    "standardize",
    "tiny_imagenet_fs",
    "with_rotations",
]

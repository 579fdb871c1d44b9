"""Pictures in arrays: features by a backbone, where they are in color or large, or where one is asked for."""

from __future__ import annotations

import dataclasses

import numpy as np

from wior.cleaning.features.backbones import PIXELS, BackboneError
from wior.cleaning.features.pictures import ArrayPictures, kept_as_pixels, picture_features
from wior.cleaning.tables.asked import Asked
from wior.cleaning.tables.errors import InputError
from wior.cleaning.tables.job import Job, VerifiedRows
from wior.cleaning.tables.row_file import RowFile


def with_picture_features(job: Job, asked: Asked) -> Job:
    """The job with features of its pictures in place of their pixels; a job without pictures as it is."""
    shape = job.picture_shape
    if job.kind == "images":
        return job
    if shape is None:
        if asked.backbone is not None:
            raise InputError(f"{job.path}: --backbone is for pictures, and its rows are none")
        return job
    as_they_are = asked.backbone == PIXELS or (asked.backbone is None and kept_as_pixels(shape))
    if as_they_are or asked.embeddings is not None:
        return job

    def pictures(pixels: np.ndarray) -> ArrayPictures:
        return ArrayPictures(pixels.reshape(len(pixels), *shape))

    try:
        made = picture_features(pictures(job.features), asked.backbone, asked.progress)
    except BackboneError as error:
        raise InputError(str(error)) from error

    def like(file: RowFile) -> VerifiedRows:
        rows = job.like(file)
        if rows.features is None:
            return rows
        return rows._replace(features=made.like(pictures(rows.features)))

    by = {"backbone": made.backbone, "features": made.values.shape[1]}
    return dataclasses.replace(
        job,
        features=made.values,
        picture_shape=None,
        pictures=job.images,
        like=like,
        fates={name: {**fate, **by} if fate["kind"] == "pictures" else fate for name, fate in job.fates.items()},
        notes=[*job.notes, *made.notes],
    )

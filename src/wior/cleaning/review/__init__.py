"""The review page, on which a person decides about the labels that are probably wrong."""

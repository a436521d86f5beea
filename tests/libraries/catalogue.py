"""All models, by library and name; and those that are refused."""

from tests.libraries import diffusion, graphs, images, models

LIBRARIES = {"transformers": models.MODELS, **images.MODELS, "diffusers": diffusion.MODELS,
             "torch_geometric": graphs.MODELS}
MODELS = {name: model for library in LIBRARIES.values() for name, model in library.items()}
REFUSED = models.REFUSED

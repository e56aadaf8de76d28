"""The worker extension of engines whose ranks treat weights as on a GPU.

vLLM starts ranks as new processes, and imports this in each before it makes the model.
"""

from rlfleet_engine.worker import ReloadExtension
from zoo import like_gpu

like_gpu.use()


class Extension(ReloadExtension):
    """rlfleet's own."""

"""What a deletion takes along."""

import obstore

from rlfleet_sidecar.stores import removal
from rlfleet_sidecar.stores.client import Opened
from rlfleet_sidecar.stores.url import StoreUrl
from tests.fakes.google_bucket import serving


def test_the_object_that_a_console_makes_of_a_folder_is_no_obstacle() -> None:
    """obstore cuts its last slash, so its name is that of another object, or of none."""
    place = StoreUrl.of("gs://weights/run/step-1")
    folders, others = {"run/step-1/", "run/step-1/deeper/"}, {"run/step-1", "run/step-10/a"}
    with serving() as google:
        for key in (*folders, *others, "run/step-1/config.json", "run/step-1/deeper/file"):
            google.put(key, b"x")
        opened = Opened(obstore, obstore.store.from_url("gs://weights", **google.options))
        removal.remove(opened, place, ())

        assert google.objects.keys() == folders | others

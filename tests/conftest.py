"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# A machine that stands still for a moment is no finding about an example.
settings.register_profile("rlfleet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rlfleet")

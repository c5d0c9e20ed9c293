"""The measured speed of the connection to the hub."""

from __future__ import annotations

from computepool.agent.network.speed import DOWN, SAMPLE_BYTES_MIN, UP, SpeedMeter

MB = 1_000_000


class Meter:
    def __init__(self) -> None:
        self.now = 1_000.0
        self.speed = SpeedMeter(lambda: self.now)

    def transfer(self, way: str, size: int, took_s: float) -> None:
        since = self.now
        self.now += took_s
        self.speed.observe(way, size, since=since)


def test_the_speed_is_unknown_until_a_transfer_was_long_enough() -> None:
    meter = Meter()
    assert meter.speed.advertise() == (0, 0)
    meter.transfer(DOWN, SAMPLE_BYTES_MIN - 1, 0.1)
    meter.transfer(UP, MB, 0)
    assert meter.speed.advertise() == (0, 0)
    meter.transfer(DOWN, 10 * MB, 1.0)
    assert meter.speed.advertise() == (80, 0)


def test_it_is_advertised_again_only_after_a_while_and_a_large_change() -> None:
    meter = Meter()
    meter.transfer(DOWN, 10 * MB, 1.0)
    meter.transfer(UP, MB, 1.0)
    assert meter.speed.advertise() == (80, 8)
    meter.now += 1_000
    for _ in range(20):
        meter.transfer(DOWN, 11 * MB, 1.0)
    assert meter.speed.advertise() == (80, 8)
    for _ in range(20):
        meter.transfer(DOWN, 100 * MB, 0.1)
    assert meter.speed.advertise() == (7900, 8)
    meter.transfer(UP, 100 * MB, 1.0)
    assert meter.speed.advertise() == (7900, 8), "so soon after the last change"
    meter.now += 1_000
    assert meter.speed.advertise() == (7900, 240)


def test_the_slowest_connection_is_known_too() -> None:
    meter = Meter()
    meter.transfer(UP, SAMPLE_BYTES_MIN, 60.0)
    assert meter.speed.advertise() == (0, 1)

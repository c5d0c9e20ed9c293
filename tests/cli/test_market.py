"""`pool market`, `pool node earnings`, `pool mesh` and `pool.market` with a real hub and a real node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from computepool.cli.account import market as market_commands
from computepool.cli.job import mesh
from computepool.core.money.money import CREDIT
from computepool.protocol.nodes.mesh import AttemptUsage
from computepool.sdk import BadRequest, NotFound, Pool, connect
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until
from tests.cli.conftest import Ran, Run, reply, sign_in

pytestmark = pytest.mark.process
SOON_S = 60.0


@pytest.fixture(scope="module")
def real() -> Iterator[RealPool]:
    with RealPool(tick_s=0.1) as pool:
        pool.start_hub()
        pool.start_agent(name="studio-3", region="in", trusted=("*",))
        client = pool.client()
        wait_until(lambda: any(zone.capacity for zone in client.market().zones), SOON_S, "the node offers capacity")
        wait_until(lambda: client.market().zones[0].spot < 5_600_000, SOON_S, "the first tick")
        yield pool
        assert pool.broken_rules() == []


@pytest.fixture
def pool(real: RealPool) -> Iterator[Pool]:
    sign_in(real)
    with connect() as pool:
        yield pool
        pool.market.set_default_floor(None)
        pool.market.set_floor(pool.nodes.find("studio-3").id, None)


def cells(ran: Ran) -> list[list[str]]:
    assert ran.code == 0, ran.err
    return [line.split("\t") for line in ran.out.splitlines()]


@pytest.mark.soak
def test_the_market_is_a_table_of_zones(pool: Pool, run: Run) -> None:
    [row] = cells(run("market"))
    zone, spot, change, bounds, used, units, nodes, floors, ceilings, trend = row
    assert (zone, bounds, used, units, nodes) == ("cpu/in", "1.40 - 22.40", "0 %", "2", "1")
    assert (floors, ceilings, len(trend)) == ("0.00", "", 24)
    assert 1.4 <= float(spot) < 5.6
    assert change.startswith("-")
    found = reply(run("market", "--json"))
    assert found["economy"] == "market"
    assert found["zones"][0]["reference"] == 5_600_000


def test_floors_are_set_shown_and_cleared(pool: Pool, run: Run) -> None:
    done = run("market", "floor", "studio-3", "6.50")
    assert "asks for 6.50 a unit-hour" in done.out
    assert "waits for a higher price" in done.out
    [row] = [row for row in cells(run("market", "--depth")) if row[1] == "offered"]
    assert row[2:] == ["8.13", "2", "6.50 after the fee, waiting for a higher price"]
    [zone] = reply(run("market", "--json"))["zones"]
    assert (zone["capacity"], zone["floors"][0]["floor"]) == (0, 6_500_000)
    assert run("market", "floor", "studio-3").out == "studio-3: 6.50\n"
    assert reply(run("market", "floor", "studio-3", "--json"))["floor"] == 6_500_000
    assert "No minimum price set" in run("market", "floor", "studio-3", "--clear").out
    assert run("market", "floor", "studio-3").out == "studio-3: No minimum price set\n"
    assert "The default floor is 5.00" in run("market", "floor", "--default", "5").out
    assert reply(run("market", "floor", "--json"))["floor"] == 5 * CREDIT
    assert "No default minimum price set" in run("market", "floor", "--clear").out
    assert "No default minimum price set" in run("market", "floor").out


@pytest.mark.soak
@pytest.mark.parametrize(
    "price", ["-5", "-0.1", "NaN", "inf", "1e9999", "1e3", "", " ", "5,5", "abc", "1.1234567", "9" * 40]
)
@pytest.mark.parametrize("place", [("studio-3",), ("--default",)])
def test_an_invalid_price_is_refused(pool: Pool, run: Run, price: str, place: tuple[str, ...]) -> None:
    done = run("market", "floor", *place, price)
    assert (done.code, done.out) == (2, "")
    [line] = done.err.strip().splitlines()
    assert "is not an amount of credits" in line or "is more than one transfer may move" in line
    assert pool.market.default_floor().floor is None


@pytest.mark.soak
def test_invalid_arguments_of_floor_are_refused(pool: Pool, run: Run) -> None:
    for arguments in (
        ("studio-3", "5", "--clear"),
        ("studio-3", "5", "--default", "5"),
        ("--default", "5", "--clear"),
        ("studio-3", "--default", "5"),
    ):
        done = run("market", "floor", *arguments)
        assert done.code == 2
        assert "Use one of" in done.err
    done = run("market", "floor", "nobody", "5")
    assert (done.code, "no node 'nobody'" in done.err) == (2, True)


def test_the_price_history_has_steps(pool: Pool, run: Run) -> None:
    wait_until(lambda: len(pool.market.history("cpu", "in").points) > 0, SOON_S)
    # The latest tick may still include the floor of an earlier test.
    rows: list[list[str]] = []

    def both_cores_are_for_sale() -> bool:
        rows[:] = cells(run("market", "history", "--region", "in", "--since", "1h"))
        return rows[-1][4] == "2"

    wait_until(both_cores_are_for_sale, SOON_S, "a tick with both cores for sale")
    assert 1 <= len(rows) <= 24
    found = reply(run("market", "history", "--region", "in", "--since", "1m", "--step", "5s", "--json"))
    assert (found["tier"], found["region"], found["step_ms"]) == ("cpu", "in", 5_000)
    assert all(point["low"] <= point["price"] <= point["high"] for point in found["points"])
    for arguments, message in (
        (("--tier", "rtx-4090"), "No price has been recorded for rtx-4090 (no region)"),
        (("--region", "in", "--since", "soon"), "since"),
        (("--region", "in", "--step", "-1h"), "step"),
        (("--region", "in", "--since", "1e9999h"), "since"),
    ):
        done = run("market", "history", *arguments)
        assert (done.code, message in done.err) == (2, True), done.err
        assert len(done.err.strip().splitlines()) == 1


def test_earnings_are_shown_for_all_nodes_and_for_one(pool: Pool, run: Run) -> None:
    pool.market.set_default_floor("1")
    table = run("node", "earnings")
    [row] = cells(table)
    name, hour, use, day, floor, *paid, status = row
    assert (name, use, day, floor, paid) == ("studio-3", "0 %", "0.00", "1.00", ["0.00", "0.00", "0.00"])
    assert "FULL HOUR: with all its cores or GPUs in use. PER DAY: at the current use of its zone." in table.err
    assert float(hour) > 0
    assert status.endswith("it takes jobs.")
    done = run("node", "earnings", "studio-3")
    fields = dict(line.split("\t") for line in done.out.splitlines())
    assert fields["floor"] == "1.00 (your default)"
    assert "floor\t1.00 (your default)" in run("node", "show", "studio-3").out
    assert fields["paid in 30 days"] == "0.00 for 0 jobs"
    assert "when fully used" in fields["2 × cpu/in, per hour"]
    found = reply(run("node", "earnings", "studio-3", "--json"))
    assert (found["in_money"], found["floor_is_default"]) == (True, True)
    assert isinstance(reply(run("node", "earnings", "--json")), list)
    pool.market.set_default_floor(None)
    for command in ("earnings", "show"):
        assert "floor\tNo minimum price set" in run("node", command, "studio-3").out


@pytest.mark.soak
def test_the_sdk_refuses_float_prices(pool: Pool) -> None:
    node_id = pool.nodes.find("studio-3").id
    assert pool.market.set_floor(node_id, "2.5").floor == 2_500_000
    assert pool.market.set_floor(node_id, 2).floor == 2 * CREDIT
    with pytest.raises(BadRequest, match="float"):
        pool.market.set_floor(node_id, 2.5)  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        pool.market.set_floor("node_nobody", "1")
    assert pool.market.earnings(node_id).floor == 2 * CREDIT


@pytest.mark.soak
@pytest.mark.parametrize(
    ("amount", "income", "price"),
    [(0, "0.00", "0.00"), (3_701, "0.0037", "0.0038"), (1, "0.000001", "0.000001"), (5_609_999, "5.60", "5.61")],
)
def test_small_amounts_are_not_rounded_to_zero(amount: int, income: str, price: str) -> None:
    assert (market_commands._income(amount), market_commands._price(amount)) == (income, price)


@pytest.mark.soak
def test_prices_are_drawn_and_summarised() -> None:
    spark = market_commands.sparkline
    assert spark([]) == ""
    assert spark([5, 5, 5]) == "▁▁▁"
    assert spark([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert market_commands._change(0, 5) == ""
    assert [market_commands._change(1_000, after) for after in (1_000, 1_050, 950)] == ["+0.0 %", "+5.0 %", "-5.0 %"]
    assert market_commands._range([None, 3 * CREDIT, CREDIT]) == "1.00 - 3.00"
    assert (market_commands._range([None]), market_commands._range([])) == ("any", "")


@pytest.mark.soak
def test_the_mesh_is_shown_in_figures_and_by_node(pool: Pool, run: Run) -> None:
    fields = dict(row for row in cells(run("mesh")))
    assert (fields["nodes online"], fields["cores busy"]) == ("1 of 1", "0 of 2")
    assert reply(run("mesh", "--json"))["nodes_online"] == 1
    [line] = cells(run("mesh", "--nodes"))
    assert line[:5] == ["studio-3", "admin", "cpu", "India", "ready"]
    [node] = reply(run("mesh", "--nodes", "--json"))["nodes"]
    assert node["mine"]
    assert "A node came online: cpu, India" in [item.sentence for item in pool.mesh.activity()]
    assert [(zone.tier, zone.region) for zone in pool.market.chart("1h").zones] == [("cpu", "in")]


@pytest.mark.soak
def test_a_short_job_has_no_usage(pool: Pool, run: Run) -> None:
    job_id = pool.submit(abs, -3).job_id
    pool.jobs.result(job_id)
    assert "two seconds" in run("jobs", "usage", job_id).err
    assert reply(run("jobs", "usage", job_id, "--json"))["attempts"][0]["at_ms"] == []


@pytest.mark.soak
def test_a_long_usage_curve_is_condensed(capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"cpu_percent": [*range(200)], "rss_mb": [5] * 200, "processes": [1] * 200}
    times = [1_000 * number for number in range(200)]
    mesh._print_attempt(
        AttemptUsage(
            attempt_id="job_1-1", number=1, node_id="n", state="running", live=True, step_ms=0, at_ms=times, **columns
        )
    )
    header, cpu, *_ = capsys.readouterr().out.splitlines()
    assert header == "attempt 1 on n, running, 3.3 min"
    name, curve, last, most = cpu.split("\t")
    assert (name, last, most) == ("CPU", "199 %", "199 %")
    assert len(curve) <= 60
    assert (curve[0], curve[-1]) == ("▁", "█")

"""Load samples of an attempt's processes: few are sent, each once, and no peak is lost."""

from __future__ import annotations

from hypothesis import given, strategies as st

from computepool.agent.execution.load import FIRST_COMPARABLE, Load, UnsentLoads
from computepool.protocol.nodes.nodes import LOADS_MAX, LoadModel

#: CPU, memory, and the card's load, if it reports one.
SAMPLES = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 9_999), st.none() | st.integers(0, 100)), min_size=1, max_size=80
)


@given(SAMPLES, st.booleans())
def test_few_samples_are_sent_once_with_every_peak(values: list[tuple[int, int, int | None]], young: bool) -> None:
    unsent = UnsentLoads()
    comparable = []
    for number, (cpu, rss, gpu) in enumerate(values):
        model = LoadModel(cpu_percent=cpu, rss_mb=rss, processes=1, gpu_percent=gpu)
        unsent.add(Load(at=float(number), cpu_ms=0, model=model, count=number + 1))
        if number + 1 >= FIRST_COMPARABLE:  # the first one has nothing to compare with
            comparable.append(model)
    sent = unsent.take(float(len(values)), young=young)
    assert len(sent) <= min(LOADS_MAX, 8 if young else 1)
    assert bool(sent) == bool(comparable)
    for name in ("cpu_percent", "rss_mb", "gpu_percent"):
        peaks = [
            max((value for one in models if (value := getattr(one, name)) is not None), default=None)
            for models in (sent, comparable)
        ]
        assert peaks[0] == peaks[1]
    assert [load.ago_ms for load in sent] == sorted((load.ago_ms for load in sent), reverse=True)
    assert [load.ago_ms for load in sent[-1:]] == [1000] * bool(sent)
    assert unsent.take(0.0, young=young) == []

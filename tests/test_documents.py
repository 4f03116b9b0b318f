"""JSON of an engine as Prometheus text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tailscope.catalogue.engines import engines
from tailscope.catalogue.upstream import Document, Field, Reduce
from tailscope.exporter.documents import DocumentReader, find, rows

SLOTS = Document(
    "/slots",
    marks=("id",),
    fields=(
        Field("last", ("n",)),
        Field("sum", ("n",), reduce=Reduce.SUM),
        Field("count", ("n",), reduce=Reduce.COUNT),
        Field("taken", ("to",), minus=("from",), reduce=Reduce.BUCKETS, bounds=(1.0, 10.0)),
    ),
)
DRAINED = Document("/events", SLOTS.marks, SLOTS.fields, drained=True)


def read(reader: DocumentReader, document: Document, *found: object) -> dict[str, float]:
    parsed = rows(document, json.dumps(found).encode())
    assert parsed is not None
    return {
        sample.name + (f"/{sample.labels['le']}" if "le" in sample.labels else ""): sample.value
        for family in text_string_to_metric_families(reader.text(parsed))
        for sample in family.samples
    }


def test_a_state_is_that_of_the_moment() -> None:
    reader = DocumentReader(SLOTS, "x_")
    for _ in range(2):
        found = read(reader, SLOTS, {"id": 1, "n": 3}, {"id": 2, "n": 4})
        assert (found["x_last"], found["x_sum"], found["x_count"]) == (4, 7, 2)
    assert "x_sum" not in read(reader, SLOTS, {"id": 1})


def test_events_are_added_up_over_all_reads() -> None:
    reader = DocumentReader(DRAINED, "x_")
    read(reader, DRAINED, {"id": 1, "n": 3, "from": 1, "to": 1.5}, {"id": 2, "n": 4})
    read(reader, DRAINED)
    found = read(
        reader, DRAINED, {"id": 3, "n": 5, "from": 2, "to": 12}, {"id": 4, "from": 9, "to": 1}
    )
    assert (found["x_last"], found["x_sum"], found["x_count"]) == (5, 12, 3)
    buckets = [found[f"x_taken_bucket/{bound}"] for bound in ("1.0", "10.0", "+Inf")]
    assert (buckets, found["x_taken_sum"], found["x_taken_count"]) == ([1, 2, 2], 10.5, 2)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b'{"id": 1}', b"[1]", b'[{"id": 1}, 2]', b'[{"no": 1}]', b"[" * 100_000, b"\xff"],
)
def test_what_is_no_such_list(content: bytes) -> None:
    assert rows(SLOTS, content) is None


@pytest.mark.parametrize("value", ["7", True, None, [], {}, 10**400])
def test_what_is_no_number_is_absent(value: object) -> None:
    assert "x_last" not in read(DocumentReader(SLOTS, "x_"), SLOTS, {"id": 1, "n": value})


def test_pointers_lead_through_lists_and_nowhere_else() -> None:
    data = {"a": [{"b": 5}]}
    assert find(data, ("a", 0, "b")) == 5
    for pointer in (("a", 1, "b"), ("a", "0"), ("b",), (0,), ("a", 0, "b", "c")):
        assert find(data, pointer) is None


DOCUMENTS = [
    (engine.prefixes[0], document) for engine in engines().values() for document in engine.documents
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.sampled_from(["n", "kvCacheStats", "usedNumBlocks"]), children)
    ),
    max_leaves=6,
)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_json_gives_text_that_can_be_read(data: st.DataObject) -> None:
    prefix, document = data.draw(st.sampled_from(DOCUMENTS))
    keys = [*document.marks, *(str(field.pointer[0]) for field in document.fields)]
    row = st.fixed_dictionaries(dict.fromkeys(keys, JSON))
    found = rows(document, json.dumps(data.draw(st.lists(row, max_size=3))).encode())
    assert found is not None
    list(text_string_to_metric_families(DocumentReader(document, prefix).text(found)))

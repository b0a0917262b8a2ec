"""Several replicas as one, for the operator."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from server.access.admission import Admission
from server.app import build_app
from server.context import ServerContext
from server.observability.peers import ReplicaReport
from server.observability.turn_log import TurnRecord
from server.operator_routes import report_of
from tests.fakes import FakeLanguageModel, fake_speech_models


class Fleet:
    """Two replicas with two slots each, in this process."""

    def __init__(self) -> None:
        self.contexts = [ServerContext(FakeLanguageModel, fake_speech_models(), "tiny", Admission(2)) for _ in range(2)]
        self.apps = [build_app(context) for context in self.contexts]
        for context in self.contexts:
            context.peers = self

    async def reports(self, *, details: bool) -> list[ReplicaReport]:
        return [report_of(context, f"r{n}", details=details) for n, context in enumerate(self.contexts)]

    async def drain(self, draining: bool) -> None:
        for context in self.contexts:
            context.admission.draining = draining

    def client(self, replica: int) -> TestClient:
        return TestClient(self.apps[replica], base_url="http://localhost", client=("127.0.0.1", 50_000))


def test_every_replica_answers_for_all_of_them() -> None:
    fleet = Fleet()
    first, second = (context.admission for context in fleet.contexts)
    slots = [first.reserve("realtime"), first.reserve("phone")]
    fleet.contexts[1].observers.record_turn(TurnRecord("turn_2", 2.0, 700.0, {}))
    fleet.contexts[0].observers.record_turn(TurnRecord("turn_1", 1.0, 500.0, {}))
    for replica in (0, 1):
        client = fleet.client(replica)
        ready = client.get("/readyz")
        assert ready.status_code == 200
        assert ready.json() == {"status": "ready", "conversations": 2, "capacity": 4}
        assert client.get("/healthz").json()["conversations"] == 2
        shown = client.get("/dashboard/data").json()
        assert shown["server"]["replicas"] == 2 and shown["server"]["capacity"] == 4
        assert [one["replica"] for one in shown["conversations"]] == ["r0", "r0"]
        assert [turn["turn_id"] for turn in shown["turns"]] == ["turn_2", "turn_1"]
        assert sorted(shown["latencies_ms"]) == [500.0, 700.0]
    second.reserve("realtime"), second.reserve("realtime")
    full = fleet.client(0).get("/readyz")
    assert (full.status_code, full.json()["status"]) == (503, "full")
    slots[0].release()
    assert fleet.client(1).get("/readyz").status_code == 200
    assert fleet.client(0).post("/drain").json()["draining"]
    assert second.draining
    assert fleet.client(1).get("/readyz").json()["status"] == "draining"
    assert not fleet.client(1).delete("/drain").json()["draining"] and not first.draining


def test_metrics_keep_the_names_of_the_replicas_and_stay_valid() -> None:
    fleet = Fleet()
    fleet.contexts[1].admission.reserve("realtime")
    fleet.contexts[1].observers.record_turn(TurnRecord("turn_1", 1.0, 500.0, {"detection": 20.0}))
    text = fleet.client(0).get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    open_now = {
        (sample.labels["replica"], sample.labels["kind"]): sample.value
        for sample in families["rejoinder_conversations"].samples
    }
    assert open_now == {("r0", "realtime"): 0, ("r0", "phone"): 0, ("r1", "realtime"): 1, ("r1", "phone"): 0}
    assert [sample.value for sample in families["rejoinder_capacity"].samples] == [2, 2]
    counts = [s for s in families["rejoinder_turn_latency_seconds"].samples if s.name.endswith("_count")]
    assert [(sample.labels["replica"], sample.value) for sample in counts] == [("r0", 0), ("r1", 1)]
    assert text.count("# TYPE rejoinder_stage_seconds histogram") == 1

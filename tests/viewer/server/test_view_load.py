"""Many clients at once, and requests nobody would write by hand: the server stays polite, quick and of one size."""

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from view_server import ended, listening

CLIENTS = 50
BUSY = 429


def megabytes(process):
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def visitor(url, end, number):
    """Clicks until the end. Each answer's status, and how long an accepted click took, with its place."""
    rng, statuses, clicks = random.Random(number), [], []
    with httpx.Client(base_url=url, timeout=120) as client:

        def ask(method, path, **options):
            answer = client.request(method, path, **options)
            statuses.append(answer.status_code)
            return answer

        client.headers["X-Berdiff-Token"] = ask("GET", "/api/state").json()["token"]
        while time.monotonic() < end:
            began = time.monotonic()
            body = {"item": "s0", "center": [40, 40], "samples": 4, "seed": rng.randrange(1000)}
            answer = ask("POST", "/api/jobs", json=body)
            if answer.status_code == BUSY:
                time.sleep(rng.uniform(0.3, 1.0))
                continue
            id, place = answer.json()["id"], answer.json()["place"]
            while (job := ask("GET", f"/api/jobs/{id}").json())["state"] in ("queued", "running"):
                time.sleep(0.1)
            assert job["state"] == "done", job
            clicks.append((time.monotonic() - began, place))
            ask("GET", f"/api/jobs/{id}/files?kind=json")
    return statuses, clicks


def visit(url, clients, seconds):
    """All statuses and clicks."""
    end = time.monotonic() + seconds
    with ThreadPoolExecutor(clients) as pool:
        each = list(pool.map(lambda number: visitor(url, end, number), range(clients)))
    return [status for statuses, _ in each for status in statuses], [click for _, clicks in each for click in clicks]


@pytest.mark.slow
def test_fifty_clients_for_two_minutes(started, tmp_path):
    """95 % of the accepted clicks take at most three times as long as one alone, per place in the queue."""
    process, lines = started()
    url = lines[0].removeprefix("viewer: ")
    _, alone = visit(url, 1, 3)
    single = float(np.median([took for took, _ in alone]))
    visit(url, CLIENTS, 20)  # sessions, caches and the allocator are as large as they get
    before = megabytes(process)
    statuses, clicks = visit(url, CLIENTS, 120)
    after = megabytes(process)
    # those before it, and the running one
    per_place = np.quantile([took / (single * (place + 2)) for took, place in clicks], 0.95)
    print(f"{len(clicks)} clicks of {len(statuses)} requests, single {single:.2f} s, p95 per place {per_place:.2f}, ")
    print(f"{before:.0f} -> {after:.0f} MB, refused {statuses.count(BUSY)}")
    assert {status for status in statuses if status >= 400} <= {BUSY}
    assert len(clicks) > 1
    assert per_place <= 3
    assert after <= 1.1 * before
    ended(process, tmp_path)


@pytest.mark.slow
def test_no_request_of_the_openapi_document_makes_it_fail(client):
    """Requests of every operation of the document, right and wrong ones."""
    import schemathesis  # takes seconds to import

    seen, headers = {}, {"X-Berdiff-Token": client.headers["X-Berdiff-Token"]}
    with listening(client.app) as url:

        def try_out(operation):
            statuses = seen.setdefault(operation.label, set())

            @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
            @given(case=operation.as_strategy())
            def run(case):
                answer = case.call(base_url=url, headers=headers)
                statuses.add(answer.status_code)
                assert answer.status_code < 500, (case.as_curl_command(), answer.text)

            run()

        for found in schemathesis.openapi.from_url(f"{url}/openapi.json").get_all_operations():
            try_out(found.ok())
    assert len(seen) >= 15
    assert 200 in seen["GET /api/state"]
    assert seen["POST /api/jobs"] & {202, 404, 422}


def test_the_openapi_document_has_bounds(client):
    document = client.get("/openapi.json").json()
    job = document["components"]["schemas"]["JobRequest"]["properties"]
    assert job["samples"] == {"type": "integer", "maximum": 64, "minimum": 1, "title": "Samples", "default": 16}
    assert document["components"]["schemas"]["JobRequest"]["additionalProperties"] is False
    assert {"/api/state", "/api/items", "/api/jobs/{id}/files", "/info", "/infer/{model}"} < document["paths"].keys()

"""The example of the tutorial, with a real server."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path

import httpx
import pytest
from conftest import Real

EXAMPLE = Path(__file__).parent.parent / "examples/fastapi_jobs"


async def test_fastapi_jobs(
    real: Real, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queue, stream = real.create("queues"), real.create("streams")
    monkeypatch.setenv("TIDEWIRE_URL", real.url)
    monkeypatch.setenv("REPORTS_QUEUE", queue)
    monkeypatch.setenv("REPORTS_STREAM", stream)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    for name in ("app", "worker", "reports"):
        sys.modules.pop(name, None)
    app = importlib.import_module("app").app
    worker = importlib.import_module("worker")
    working = asyncio.ensure_future(worker.main())
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as browser,
    ):
        answer = await browser.post("/reports", json={"customer": "ann", "year": 2026})
        assert answer.status_code == 202
        number = answer.json()["report"]
        while True:
            state = (await browser.get(f"/reports/{number}")).json()
            if state["state"] == "done":
                break
            await asyncio.sleep(0.01)
        again = await browser.post("/reports", json={"customer": "ann", "year": 2026})
        assert again.json()["report"] == number
        assert (await browser.get("/reports/unknown")).status_code == 404
    working.cancel()
    await asyncio.wait([working])

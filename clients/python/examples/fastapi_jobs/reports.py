"""What the web application and the worker share."""

import os
from dataclasses import dataclass

URL = os.environ.get("TIDEWIRE_URL", "ws://localhost:8080/ws")
QUEUE = os.environ.get("REPORTS_QUEUE", "reports")
STREAM = os.environ.get("REPORTS_STREAM", "reports-done")


@dataclass
class Report:
    """A job: make this report."""

    id: str
    customer: str
    year: int


@dataclass
class Done:
    """A report is ready."""

    id: str
    pages: int

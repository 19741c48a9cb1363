"""Tidewire: streams, queues, rooms and events on PostgreSQL, over one WebSocket.

`connect` makes a client; `connect_sync` one for programs without asyncio.
"""

from .client import Client, connect
from .codec import Codec, binary, text
from .consumer import Consumer
from .decision import Decision
from .errors import (
    Closed,
    Conflict,
    Error,
    Fenced,
    Forbidden,
    HistoryLost,
    InvalidMessage,
    LeaseLost,
    MessageTooLarge,
    NotFound,
    OutcomeUnknown,
    SignedOut,
    Timeout,
    TooBig,
    TooOld,
)
from .events import Appended, Condition, Event, Events, EventSubscription, Projection
from .job import Dead, Job, Retry
from .message import Ack, Message, Page, Skipped
from .query import Query, everything, tagged, types
from .queue import Queue
from .room import Chat, Gap, Membership, Presence, Room, RoomEvent
from .state import State
from .stream import Stream
from .subscription import Subscription
from .sync import connect_sync
from .worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Ack",
    "Appended",
    "Chat",
    "Client",
    "Closed",
    "Codec",
    "Condition",
    "Conflict",
    "Consumer",
    "Dead",
    "Decision",
    "Error",
    "Event",
    "EventSubscription",
    "Events",
    "Fenced",
    "Forbidden",
    "Gap",
    "HistoryLost",
    "InvalidMessage",
    "Job",
    "LeaseLost",
    "Membership",
    "Message",
    "MessageTooLarge",
    "NotFound",
    "OutcomeUnknown",
    "Page",
    "Presence",
    "Projection",
    "Query",
    "Queue",
    "Retry",
    "Room",
    "RoomEvent",
    "SignedOut",
    "Skipped",
    "State",
    "Stream",
    "Subscription",
    "Timeout",
    "TooBig",
    "TooOld",
    "Worker",
    "binary",
    "connect",
    "connect_sync",
    "everything",
    "tagged",
    "text",
    "types",
]

"""Cuts what a server sends into frames. Most are whole texts, which need no more than that."""

from __future__ import annotations

from collections.abc import Iterator

_TEXT = 0x81  # a whole message, and a text
_HEAD_END = b"\r\n\r\n"


class Cutter:
    """Takes bytes as they come, and gives frames."""

    __slots__ = ("_buffer", "_most", "_wanted")

    def __init__(self, most: int) -> None:
        self._buffer = bytearray()
        self._most = most
        #: so many bytes have to be there before it is worth to look again
        self._wanted = 2

    def head(self, data: bytes) -> bytes | None:
        """The answer to the handshake, as soon as it is whole. What comes after it stays here."""
        buffer = self._buffer
        buffer += data
        end = buffer.find(_HEAD_END)
        if end < 0 and len(buffer) <= self._most:
            return None
        end = len(buffer) if end < 0 else end + len(_HEAD_END)
        head = bytes(buffer[:end])
        del buffer[:end]
        return head

    def rest(self) -> bytes:
        """All that has come, and is no frame."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def cut(self, data: bytes) -> Iterator[tuple[bytearray, int]]:
        """Each frame, and where its text begins, if it is a whole text; else 0."""
        buffer = self._buffer
        buffer += data
        at, end = 0, len(buffer)
        while end - at >= self._wanted:
            first, size, begin = buffer[at], buffer[at + 1], at + 2
            masked = size & 0x80  # of a server: the protocol refuses it
            size &= 0x7F
            if size >= 126:
                begin += 2 if size == 126 else 8
                if end < begin:
                    self._wanted = begin - at
                    break
                size = int.from_bytes(buffer[at + 2 : begin], "big")
                if size > self._most:
                    raise ValueError(f"a frame of {size} bytes")
            if masked:
                begin += 4
            following = begin + size
            if end < following:
                self._wanted = following - at
                break
            self._wanted = 2
            yield buffer[at:following], begin - at if first == _TEXT and not masked else 0
            at = following
        del buffer[:at]

"""OTLP over HTTP: ``POST /v1/traces``.

Apart from the metrics page, so that an exporter that takes no spans does without protobuf's 4 MiB.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from google.protobuf.json_format import MessageToJson
from google.rpc.status_pb2 import Status
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tailscope.exporter.otlp import MAX_MESSAGE, BadMessage, TooLarge
from tailscope.exporter.receiver import Budget, Busy, Receiver
from tailscope.records.errors import StoreError

_PROTOBUF = "application/x-protobuf"
_JSON = "application/json"
_THREADS = 8
_BODY_SECONDS = 10.0
# google.rpc.Code
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _UNAVAILABLE = 3, 8, 14


class TracesEndpoint:
    """``POST /v1/traces``.

    Args:
        receiver: Takes the messages.
        body_seconds: Time that a sender has for a message.
    """

    def __init__(self, receiver: Receiver, body_seconds: float) -> None:
        self._receiver = receiver
        self._body_seconds = body_seconds
        self._budget = Budget()
        # Of its own, so that the metrics page has threads while these wait for the disk.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="otlp-http")

    async def post(self, request: Request) -> Response:
        """Take one message; answers as the protocol says."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (_PROTOBUF, _JSON):
            return _answer(_PROTOBUF, 415, f"content type must be {_PROTOBUF} or {_JSON}")
        encoding = request.headers.get("content-encoding", "").strip().lower()
        chunks: list[bytes] = []
        taken = 0
        try:
            async with asyncio.timeout(self._body_seconds):
                async for chunk in request.stream():
                    if taken + len(chunk) > MAX_MESSAGE:
                        return _answer(kind, 413, f"more than {MAX_MESSAGE} bytes")
                    self._budget.take(len(chunk))
                    taken += len(chunk)
                    chunks.append(chunk)
            body = b"".join(chunks)
            chunks.clear()
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._accept, body, kind, encoding
            )
        except Busy as error:
            return _answer(kind, 503, str(error))
        except TimeoutError:
            return _answer(kind, 408, f"the body took longer than {self._body_seconds:g} s")
        except ClientDisconnect:
            return Response(status_code=400)
        finally:
            self._budget.give(taken)

    def _accept(self, body: bytes, kind: str, encoding: str) -> Response:
        try:
            response = self._receiver.accept(body, encoding=encoding, json=kind == _JSON)
        except BadMessage as error:
            return _answer(kind, 400, str(error))
        except TooLarge as error:
            return _answer(kind, 413, str(error))
        except StoreError as error:
            return _answer(kind, 503, str(error))
        if kind == _JSON:
            return Response(MessageToJson(response), media_type=_JSON)
        return Response(response.SerializeToString(), media_type=_PROTOBUF)


def _answer(kind: str, status: int, text: str) -> Response:
    """An error as OTLP wants it: a google.rpc.Status in the encoding of the request."""
    code = {503: _UNAVAILABLE, 413: _RESOURCE_EXHAUSTED}.get(status, _INVALID_ARGUMENT)
    message = Status(code=code, message=text)
    # Who is too slow is not waited for any longer.
    headers = {503: {"Retry-After": "1"}, 408: {"Connection": "close"}}.get(status)
    if kind == _JSON:
        return Response(MessageToJson(message), status, headers, _JSON)
    return Response(message.SerializeToString(), status, headers, _PROTOBUF)


def otlp_app(receiver: Receiver, body_seconds: float = _BODY_SECONDS) -> Starlette:
    """The application of the OTLP listener."""
    traces = TracesEndpoint(receiver, body_seconds)
    return Starlette(routes=[Route("/v1/traces", traces.post, methods=["POST"])])

"""OTLP over gRPC."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from tailscope.errors import UsageError
from tailscope.exporter.otlp import MAX_MESSAGE, BadMessage, TooLarge
from tailscope.exporter.receiver import Budget, Busy, Receiver
from tailscope.records.errors import StoreError, StoreFull

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"
_RETRY_SECONDS = 1
_THREADS = 4
_MAX_CALLS = 32

# No message in protobuf begins like this: field 3 with a wire type that does not exist, and a
# field 15, which the message does not have.
_GZIP, _ZLIB = b"\x1f\x8b", b"\x78"


class GrpcListener:
    """The gRPC server.

    Args:
        receiver: Takes the messages.
        address: ``host:port`` to listen on; port 0 takes a free one.

    Raises:
        UsageError: If the address cannot be had.
    """

    def __init__(self, receiver: Receiver, address: str) -> None:
        self._receiver = receiver
        self._budget = Budget()
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="otlp-grpc"),
            options=[
                ("grpc.max_receive_message_length", MAX_MESSAGE),
                # Messages come as they were sent: unpacked here, within the limit, by one hand.
                # Older gRPC unpacks without any.
                ("grpc.per_message_decompression", 0),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=_MAX_CALLS,
        )
        # The bytes are decoded here, so that garbage is the sender's error and not ours.
        handler = grpc.unary_unary_rpc_method_handler(self._export)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Export": handler}),)
        )
        try:
            self.port = self._server.add_insecure_port(address)
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise UsageError(
                f"--otlp-grpc {address}: the address cannot be listened on; is another collector "
                "there? Choose another one, or `off`"
            )

    def start(self) -> None:
        """Begin to listen."""
        self._server.start()

    def stop(self, grace_seconds: float) -> None:
        """Take no new calls and wait for those that run."""
        self._server.stop(grace_seconds).wait(grace_seconds)

    def _export(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            with self._budget.lend(len(body)):
                response = self._receiver.accept(body, encoding=_encoding(body))
        except BadMessage as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except TooLarge as error:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except (Busy, StoreFull) as error:
            _refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except StoreError as error:
            _refuse(context, grpc.StatusCode.UNAVAILABLE, str(error))
        return bytes(response.SerializeToString())


def _encoding(body: bytes) -> str:
    if body.startswith(_GZIP):
        return "gzip"
    return "deflate" if body.startswith(_ZLIB) else ""


def _refuse(context: grpc.ServicerContext, code: grpc.StatusCode, text: str) -> None:
    """End the call so that the sender tries again: OTLP wants a RetryInfo for that."""
    details = AnyMessage()
    details.Pack(RetryInfo(retry_delay=Duration(seconds=_RETRY_SECONDS)))
    status = Status(code=code.value[0], message=text, details=[details])
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, text)

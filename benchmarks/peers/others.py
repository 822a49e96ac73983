"""Plain TCP, pynng, MQTT, and Exon without the sockets of A3M."""

from __future__ import annotations

import importlib
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Semaphore
from time import sleep
from typing import Any

from benchmarks.peers.base import Peer, Receiver, Sender, Talker, free_port
from exon import Endpoint, Options

_LENGTH = struct.Struct("!I")


class Tcp(Peer):
    """One connection; a message is its length in four bytes, then itself. The variant is the congestion control."""

    def _set_up(self, connection: socket.socket, prompt: bool) -> None:
        if self.variants:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self.variants[0].encode())
        # A stream of messages may wait for each other to fill packets; requests must not.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, prompt)

    def _listen(self, prompt: bool) -> tuple[socket.socket, Any]:
        server = socket.create_server((self.address, 0))
        self._set_up(server, prompt)
        return server, server.getsockname()

    def _connect(self, address: Any, prompt: bool) -> socket.socket:
        connection = socket.socket()
        self._set_up(connection, prompt)
        connection.bind((self.address, 0))
        connection.connect(tuple(address))
        return connection

    def pull(self) -> Receiver:
        server, address = self._listen(prompt=False)
        reader: list[Callable[[], bytes]] = []

        def recv() -> bytes:
            if not reader:
                reader.append(_reader(server.accept()[0]))
            return reader[0]()

        return Receiver(address, recv)

    def push(self, address: Any) -> Sender:
        return Sender(_writer(self._connect(address, prompt=False)))

    def route(self) -> tuple[Any, Callable[[], None]]:
        server, address = self._listen(prompt=True)

        def serve() -> None:
            connection = server.accept()[0]
            recv, send = _reader(connection), _writer(connection)
            while True:
                send(recv())

        return address, serve

    def deal(self, address: Any, outstanding: int) -> Talker:  # noqa: ARG002
        connection = self._connect(address, prompt=True)
        return Talker(_writer(connection), _reader(connection))


def _writer(connection: socket.socket) -> Callable[[bytes], None]:
    def send(message: bytes) -> None:
        connection.sendall(_LENGTH.pack(len(message)) + message)

    return send


def _reader(connection: socket.socket) -> Callable[[], bytes]:
    stream = connection.makefile("rb", buffering=1 << 18)

    def recv() -> bytes:
        message: bytes = stream.read(_LENGTH.unpack(stream.read(4))[0])
        return message

    return recv


class Nng(Peer):
    """pynng over TCP with its default options."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._nng: Any = importlib.import_module("pynng")

    def pull(self) -> Receiver:
        address = f"tcp://{self.address}:{free_port(self.address)}"
        # What nng takes is limited to 1 MiB unless told.
        return Receiver(address, self._nng.Pull0(listen=address, recv_max_size=0).recv)

    def push(self, address: Any) -> Sender:
        return Sender(self._nng.Push0(dial=address, block_on_dial=True).send)


class Mqtt(Peer):
    """paho-mqtt with QoS 2 (exactly once) through a mosquitto on the receiver's host.

    The variant is how many messages may be under way at the same time, between client and broker and back; without,
    both have their default of 20.
    """

    _TOPIC = "stream"
    _AHEAD = 1000  # messages that publish() may have waiting in memory; it has no limit of its own

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._mqtt: Any = importlib.import_module("paho.mqtt.client")

    def _client(self) -> Any:
        client = self._mqtt.Client(self._mqtt.CallbackAPIVersion.VERSION2)
        if self.variants:
            client.max_inflight_messages_set(int(self.variants[0]))
        return client

    def _start_broker(self, port: int) -> None:
        inflight = f"max_inflight_messages {self.variants[0]}\n" if self.variants else ""
        with tempfile.NamedTemporaryFile("w", suffix=".conf", delete=False) as file:
            # A change of user would undo setpriv.
            file.write(f"listener {port} {self.address}\nallow_anonymous true\nuser root\nmax_queued_messages 0\n")
            file.write(inflight)
        subprocess.Popen(
            # It ends with us, however we end.
            ["setpriv", "--pdeathsig", "KILL", "mosquitto", "-c", file.name],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(100):
            try:
                socket.create_connection((self.address, port)).close()
            except ConnectionRefusedError:
                sleep(0.05)
            else:
                break
        else:
            raise TimeoutError("mosquitto does not answer; try: mosquitto -v")
        Path(file.name).unlink()

    def pull(self) -> Receiver:
        port = free_port(self.address)
        self._start_broker(port)
        queue: SimpleQueue[Any] = SimpleQueue()
        subscribed = Event()
        client = self._client()
        client.on_message = lambda *arguments: queue.put(arguments[2])
        client.on_subscribe = lambda *_: subscribed.set()
        client.connect(self.address, port)
        client.subscribe(self._TOPIC, qos=2)
        client.loop_start()
        if not subscribed.wait(20):
            raise TimeoutError("mosquitto does not confirm a subscription")
        return Receiver((self.address, port), queue.get)

    def push(self, address: Any) -> Sender:
        ahead = Semaphore(self._AHEAD)
        client = self._client()
        client.on_publish = lambda *_: ahead.release()
        client.connect(*address)
        client.loop_start()

        def send(message: bytes) -> None:
            ahead.acquire()
            client.publish(self._TOPIC, message, qos=2)

        return Sender(send)


class Exon(Peer):
    """The transport alone. The variant is the largest datagram."""

    def _endpoint(self, name: str) -> Endpoint:
        options = Options(max_datagram=int(self.variants[0])) if self.variants else None
        return Endpoint(name, bind=f"{self.address}:0", options=options)

    def pull(self) -> Receiver:
        endpoint = self._endpoint("server")
        return Receiver((self.address, endpoint.address[1]), endpoint.recv)

    def push(self, address: Any) -> Sender:
        endpoint = self._endpoint("client")
        endpoint.register("server", f"{address[0]}:{address[1]}")
        return Sender(partial(endpoint.send, "server"))

"""A service with trio: tasks instead of threads, the same names, and cancelling loses nothing.

python examples/trio_service.py
"""

from __future__ import annotations

from typing import Any

import trio

import a3m.trio


async def serve(rep: Any) -> None:
    async for question in rep:
        await rep.send(b"%d" % int(question) ** 2)


async def ask(node: Any, name: str, first: int) -> None:
    async with node.req(name) as req:
        req.link("service/square")
        for number in range(first, first + 3):
            with trio.fail_after(5):
                await req.send(b"%d" % number)
                answer = await req.recv()
            print(f"{name}: {number} squared is {int(answer)}")


async def main() -> None:
    async with (
        a3m.trio.open_node("service", bind="127.0.0.1:0") as service,
        a3m.trio.open_node("client", bind="127.0.0.1:0") as client,
    ):
        client.register("service", f"127.0.0.1:{service.address[1]}")
        async with trio.open_nursery() as server:
            server.start_soon(serve, service.rep("square"))
            async with trio.open_nursery() as askers:
                for number in range(3):
                    askers.start_soon(ask, client, f"asker-{number}", number * 10)
            server.cancel_scope.cancel()
        print("done")


if __name__ == "__main__":
    trio.run(main)

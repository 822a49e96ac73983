"""Request and reply: a client asks, a server answers, and neither knows more of the other than its name.

python examples/request_reply.py
"""

from __future__ import annotations

from threading import Thread

import a3m


def serve(rep: a3m.RepSocket) -> None:
    for question in rep:  # ends when the last client has gone
        print(f"server: asked {question!r}")
        rep.send(question.upper())
    print("server: everybody has gone")


def main() -> None:
    with a3m.Node("server", bind="127.0.0.1:0") as server, a3m.Node("client", bind="127.0.0.1:0") as client:
        client.register("server", f"127.0.0.1:{server.address[1]}")  # the server learns where the client is by itself
        thread = Thread(target=serve, args=(server.rep("shout"),))
        thread.start()
        with client.req("asker") as req:
            req.link("server/shout")  # returns at once; send() waits for the link
            for word in (b"hello", b"is it you", b"good bye"):
                req.send(word, timeout=5)
                print(f"client: {word!r} was answered with {req.recv(timeout=5)!r}")
        thread.join()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""slow_link.py - a TCP relay with a delay, a rate and connections that break

usage: slow_link.py PORT DELAY_MS [BYTES_A_SECOND [BREAK_ONE_IN]]

Listens on a port of 127.0.0.1, which it prints, and passes what comes on to
PORT. Of each BREAK_ONE_IN connections one breaks after some kilobytes.
"""
import asyncio
import sys

port = int(sys.argv[1])
delay = int(sys.argv[2]) / 1000
rate = int(sys.argv[3]) if len(sys.argv) > 3 else 0
one_in = int(sys.argv[4]) if len(sys.argv) > 4 else 0
n = 0


async def take(reader, queue):
    clock = asyncio.get_running_loop().time
    try:
        while data := await reader.read(65536):
            await queue.put((clock() + delay, data))
    except ConnectionError:
        pass
    await queue.put((clock() + delay, b""))


async def give(queue, writer, left):
    clock = asyncio.get_running_loop().time
    while True:
        due, data = await queue.get()
        await asyncio.sleep(max(0, due - clock()))
        if not data:
            writer.write_eof()
            return
        if left is not None and len(data) > left:
            raise ConnectionResetError
        if left is not None:
            left -= len(data)
        writer.write(data)
        await writer.drain()
        if rate:
            await asyncio.sleep(len(data) / rate)


async def serve(reader, writer):
    global n
    n += 1
    left = 3000 * n if one_in and n % one_in == 0 else None
    there, to = await asyncio.open_connection("127.0.0.1", port)
    there_and_back = asyncio.Queue(64), asyncio.Queue(64)
    tasks = [
        asyncio.ensure_future(t)
        for t in (
            take(reader, there_and_back[0]),
            give(there_and_back[0], to, None),
            take(there, there_and_back[1]),
            give(there_and_back[1], writer, left),
        )
    ]
    try:
        await asyncio.gather(*tasks)
    except (ConnectionError, OSError):
        pass
    for t in tasks:
        t.cancel()
    for w in (writer, to):
        w.transport.abort()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())

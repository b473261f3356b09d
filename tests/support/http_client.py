# http_client.py - a client of optimfs serve
# SPDX-License-Identifier: Apache-2.0
#
#   http_client.py URL copy DIR           copy all files below URL by its listings
#   http_client.py URL get [NAME:VALUE]...  status and headers, a blank line, and the body
#   http_client.py URL raw BYTES          send these bytes and print what comes
import http.client, json, os, socket, sys, urllib.parse

url = urllib.parse.urlsplit(sys.argv[1])
what, rest = sys.argv[2], sys.argv[3:]
conn = http.client.HTTPConnection(url.hostname, url.port, timeout=60)


def get(path, **headers):
    conn.request(headers.pop("method", "GET"), path, headers.pop("body", None), headers)
    answer = conn.getresponse()
    return answer, answer.read()


def copy(path, to):
    os.mkdir(to)
    answer, body = get(path, Accept="application/json")
    assert answer.status == 200, answer.status
    for entry in json.loads(body):
        name = entry["name"]
        below, out = path + urllib.parse.quote(name), os.path.join(to, name)
        if entry["type"] == "directory":
            copy(below + "/", out)
            continue
        answer, body = get(below)
        assert answer.status == 200, (below, answer.status, body)
        assert entry.get("size", len(body)) == len(body), below
        with open(out, "wb") as f:
            f.write(body)


if what == "copy":
    copy(url.path, rest[0])
elif what == "get":
    answer, body = get(url.path + ("?" + url.query if url.query else ""),
                       **dict(h.split(":", 1) for h in rest))
    print(answer.status)
    for name, value in answer.getheaders():
        if name != "Date":
            print(f"{name}: {value}")
    print()
    sys.stdout.flush()
    sys.stdout.buffer.write(body)
else:
    with socket.create_connection((url.hostname, url.port), 60) as s:
        data = rest[0].encode().decode("unicode_escape").encode("latin1")
        s.sendall(data)
        # the rest of what is no request would be waited for: a minute
        if not (data.startswith(b"GET /") and data.endswith(b"\r\n\r\n")):
            sys.exit()
        while data := s.recv(65536):
            sys.stdout.buffer.write(data)

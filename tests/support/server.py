#!/usr/bin/env python3
"""A web server with ranges, listings and faults, for tests.

usage: server.py DIRECTORY PORTFILE LOG

Serves the files of DIRECTORY on a port of the loopback, which it writes to
PORTFILE, and appends a line to LOG for each request: method, path, range.

The first component of a path says how:

    /html/...      listings as HTML, with sizes that nobody can read
    /json/...      listings as nginx writes them, without names that begin with a dot
    /bare/...      no listings
    /FAULT/html/...    the same with a fault, see FAULTS
"""
import email.utils
import html
import http.server
import json
import os
import pathlib
import re
import socket
import sys
import threading
import urllib.parse


def cut(handler, body):
    """The connection ends in the middle of the body, the first two times."""
    if handler.count('cut' + handler.path) <= 2 and len(body) > 1:
        handler.wfile.write(body[:len(body) // 2])
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True
        return
    handler.wfile.write(body)


def endless(handler, _):
    try:
        while True:
            handler.wfile.write(b'x' * 65536)
    except OSError:
        handler.close_connection = True


# What is wrong with the answers to requests for a range of a file, if it is not
# the one byte that asks for the size.
FAULTS = {
    'busy': {'status': 503},       # the first two times
    'down': {'status': 503},       # always
    'later': {'status': 429},      # with Retry-After, once
    'closed': {'status': 403},
    'lost': {'status': 404},
    'norange': {'status': 200},    # the whole file instead of a range
    'wrong': {'shift': 1},         # another range
    'cut': {'send': cut},
    'short': {'send': lambda h, body: h.wfile.write(body[:-1]) and None},
    'endless': {'send': endless},
    'changed': {'etag': '"other"'},
    'file': {'location': 'file:///etc/passwd'},
    'loop': {'location': ''},      # the same address
    'silent': {'silent': True},
}
TIMES = {'busy': 2, 'later': 1, 'short': 2}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    root = log = None
    counts = {}
    lock = threading.Lock()

    def log_message(self, *_):
        pass

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1
            return self.counts[what]

    def answer(self, status, headers=(), body=b'', send=None):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(n == 'Content-Length' for n, _ in headers):
            self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        if send is not None:
            send(self, body)
        else:
            self.wfile.write(body)

    def listing(self, how, path):
        entries = sorted(os.scandir(path), key=lambda e: e.name)
        if how == 'json':
            out = [{'name': e.name, 'type': 'directory' if e.is_dir() else 'file',
                    'mtime': email.utils.formatdate(int(e.stat().st_mtime), usegmt=True),
                    **({} if e.is_dir() else {'size': e.stat().st_size})}
                   for e in entries if not e.name.startswith('.')]
            return 'application/json', json.dumps(out)
        names = [e.name + '/' * e.is_dir() for e in entries]
        extra = ''
        if (path / '.hostile').exists():
            names.remove('.hostile')
            extra = (path / '.hostile').read_text()
        return 'text/html; charset=utf-8', (
            '<html><head><title>Index of /</title></head><body>'
            '<a href="?C=N;O=D">Name</a><a href="../">Parent</a>' + extra +
            ''.join('<A class=x href="%s">%s</a>  1.2K\n' %
                    (html.escape(urllib.parse.quote(n)), html.escape(n))
                    for n in names))

    def do_GET(self):
        path = urllib.parse.unquote(self.path.split('?')[0])
        wanted = self.headers.get('Range')
        with self.lock:
            with open(self.log, 'a', encoding='utf-8') as f:
                f.write('GET %s %s\n' % (path, wanted or '-'))
        parts = path.strip('/').split('/')
        fault = parts.pop(0) if parts[0] in FAULTS else None
        how = parts.pop(0)
        file = self.root.joinpath(*parts)
        if file.is_dir():
            if not path.endswith('/'):
                return self.answer(301, [('Location', self.path + '/')])
            if how == 'bare':
                return self.answer(403)
            kind, text = self.listing(how, file)
            return self.answer(200, [('Content-Type', kind)], text.encode())
        if not file.is_file() or path.endswith('/'):
            return self.answer(404)
        return self.send_file(file, wanted, fault)

    def send_file(self, file, wanted, fault):
        data = file.read_bytes()
        st = file.stat()
        wrong = FAULTS[fault] if fault and wanted != 'bytes=0-0' else {}
        if fault in TIMES and wrong and self.count(self.path + (wanted or '')) > TIMES[fault]:
            wrong = {}
        etag = wrong.get('etag', '"%x-%x"' % (st.st_mtime_ns, st.st_size))
        match = self.headers.get('If-Match')
        headers = [('ETag', etag), ('Accept-Ranges', 'bytes'), ('Last-Modified',
                   email.utils.formatdate(int(st.st_mtime), usegmt=True))]
        if wrong.get('silent'):
            threading.Event().wait(60)
        if 'location' in wrong:
            return self.answer(302, [('Location', wrong['location'] or self.path)])
        if wrong.get('status', 200) != 200:
            return self.answer(wrong['status'],
                               [('Retry-After', '1')] if fault == 'later' else [])
        if match is not None and match != etag and fault != 'changed':
            return self.answer(412)
        m = re.fullmatch(r'bytes=(\d+)-(\d+)', wanted or '')
        if m is None or wrong.get('status') == 200:
            return self.answer(200, headers, data)
        first, last = int(m[1]), min(int(m[2]), len(data) - 1)
        if first > last:
            return self.answer(416, [('Content-Range', 'bytes */%d' % len(data))])
        body = data[first:last + 1]
        first += wrong.get('shift', 0)
        last += wrong.get('shift', 0)
        headers += [('Content-Range', 'bytes %d-%d/%d' % (first, last, len(data))),
                    ('Content-Length', str(len(body)))]
        if fault == 'endless' and wrong:
            headers.pop()
            headers.append(('Content-Length', str(1 << 40)))
        self.answer(206, headers, body, wrong.get('send'))
        if fault == 'short' and wrong:
            self.close_connection = True
        return None


def main():
    Handler.root = pathlib.Path(sys.argv[1])
    Handler.log = sys.argv[3]
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    server.daemon_threads = True
    pathlib.Path(sys.argv[2] + '.new').write_text(str(server.server_address[1]))
    os.rename(sys.argv[2] + '.new', sys.argv[2])
    server.serve_forever()


if __name__ == '__main__':
    main()

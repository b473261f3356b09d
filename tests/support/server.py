#!/usr/bin/env python3
"""A web server with ranges, listings and faults, for tests.

usage: server.py DIRECTORY PORTFILE LOG

Serves the files of DIRECTORY on a port of the loopback, which it writes to
PORTFILE, and appends a line to LOG for each request: method, path, range.

The first component of a path says how:

    /tags/...      listings as optimfs serve writes them: as /json/, with tags
    /lists/...     the same, and lists of segments; only these have faults
    /html/...      listings as HTML, with sizes that nobody can read
    /json/...      listings as nginx writes them, without names that begin with a dot
    /bare/...      no listings
    /s3/BUCKET/... S3, for who signs with KEY and SECRET: a bucket is a directory
                   of DIRECTORY; a page of a listing has PAGE keys
    /hub/...       the Hub of Hugging Face, for who has TOKEN: ORG/MODEL is a
                   directory of DIRECTORY, and files are on another server
    /aws/PLACE/...   keys for S3 as AWS gives them, PLACE+"0" first, which has expired:
                   instance (metadata, version 2), container, sts (web identity),
                   later (the same; S3 says to ask again in a minute)
    /FAULT/html/...    the same with a fault, see FAULTS
"""
import email.utils
import hashlib
import hmac
import html
import http.server
import json
import os
import pathlib
import re
import socket
import sys
import threading
import time
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


def trickle(handler, body):
    """A few bytes a second, without an end that anybody would wait for."""
    try:
        for i in range(len(body)):
            handler.wfile.write(body[i:i + 1])
            handler.wfile.flush()
            time.sleep(0.2)
    except OSError:
        handler.close_connection = True


def endless(handler, _):
    try:
        while True:
            handler.wfile.write(b'x' * 65536)
    except OSError:
        handler.close_connection = True


# What is wrong with the answers to requests for a range of a file, if it is not
# the one byte that asks for the size. An index is found in spite of most of them.
FAULTS = {
    'busy': {'status': 503},       # the first two times
    'down': {'status': 503},       # always
    'large': {'status': 503},      # always, for ranges of more than 1 MiB
    'later': {'status': 429},      # with Retry-After, once
    'limited': {'status': 429},    # always, with RateLimit
    'closed': {'status': 403},
    'lost': {'status': 404},
    'norange': {'status': 200},    # the whole file instead of a range
    'claims': {'status': 200},     # the same, as a range that is much longer
    'untold': {},                  # listings of S3 that do not say how they go on
    'payer': {},                   # of S3, to whom says that he pays
    'wanders': {},                 # of S3: each answer names another region
    'refuses': {},                 # of S3, with the region that was asked
    'expires': {},                 # of the Hub: where files are, every second time
    'portal': {},                  # of the Hub: the same, once, and then a page
    'near': {},                    # of the Hub, which has the files itself
    'older': {},                   # an index of another state than the listing has
    'wrong': {'shift': 1},         # another range
    'cut': {'send': cut},
    'short': {'send': lambda h, body: h.wfile.write(body[:-1]) and None},
    'endless': {'send': endless},
    'changed': {'states': True},   # each answer is of another one
    'file': {'location': 'file:///etc/passwd'},
    'loop': {'location': ''},      # the same address
    'silent': {'silent': True},
    'trickle': {'send': trickle},
    'unlisted': {},                # ranges, but no lists, after listings that offer them
    'ignored': {},                 # the same: a listing in place of a list
    'storm': {},                   # all requests, listings too, fail two times in three
}
TIMES = {'busy': 2, 'later': 1, 'short': 2}


KEY, SECRET, SESSION, REGION = 'AKTEST', 'secret+of/tests', 'session', 'eu-test-1'
TOKEN = 'hf_secret'
# How an index is asked for when its directory is opened.
INDEX = 'bytes=0-1048575'
PAGE = int(os.environ.get('PAGE', 1000))
# In each bucket there are 100,000 more keys, of this form, of one byte.
MANY = os.environ.get('MANY')
SHA = '0123456789abcdef0123456789abcdef01234567'


KEYS = {KEY} | {'AK' + place.upper() for place in ('instance', 'container', 'sts', 'later')}


# That a server sends lists of segments, and that this is one.
LISTS = 'X-Optimfs-Segments'


def etag_of(file):
    st = file.stat()
    return '"%x-%x"' % (st.st_mtime_ns, st.st_size)


def is_signed(handler, body=b''):
    """Checks a signature of version 4, computed from the request as it came."""
    h = handler.headers
    if 'Authorization' in h:
        with open(handler.log + '.key', 'w', encoding='utf-8') as f:
            f.write(h['Authorization'].partition('Credential=')[2].partition('/')[0])
    m = re.fullmatch(r'AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, '
                     r'SignedHeaders=([^,]+), Signature=([0-9a-f]{64})',
                     h.get('Authorization', ''))
    digest = hashlib.sha256(body).hexdigest()
    if m is None or m[1] not in KEYS or m[3] != REGION or h.get('x-amz-content-sha256') != digest:
        return False
    names = m[4].split(';')
    if names != sorted(names) or not all(n in h for n in names) or not {'host', 'x-amz-date', 'x-amz-content-sha256'} <= set(names):
        return False
    if h.get('x-amz-security-token') not in (None, SESSION):
        return False
    path, _, query = handler.path.partition('?')
    safe = '-_.~'
    pairs = sorted(tuple(urllib.parse.quote(urllib.parse.unquote(x), safe=safe)
                         for x in p.partition('=')[::2]) for p in query.split('&') if p)
    request = '\n'.join([
        handler.command, urllib.parse.quote(urllib.parse.unquote(path), safe='/' + safe),
        '&'.join('='.join(p) for p in pairs),
        ''.join('%s:%s\n' % (n, ' '.join(h.get(n, '').split())) for n in names),
        m[4], digest])
    scope = '%s/%s/s3/aws4_request' % (m[2], m[3])
    text = '\n'.join(['AWS4-HMAC-SHA256', h['x-amz-date'], scope,
                      hashlib.sha256(request.encode()).hexdigest()])
    key = ('AWS4' + SECRET).encode()
    for part in scope.split('/'):
        key = hmac.digest(key, part.encode(), 'sha256')
    return hmac.compare_digest(hmac.new(key, text.encode(), 'sha256').hexdigest(), m[5])


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
        if how in ('json', 'tags', 'lists'):
            out = [{'name': e.name, 'type': 'directory' if e.is_dir() else 'file',
                    'mtime': email.utils.formatdate(int(e.stat().st_mtime), usegmt=True),
                    **({} if e.is_dir() else {'size': e.stat().st_size}),
                    **({'etag': '"%x-%x"' % (e.stat().st_mtime_ns, e.stat().st_size)}
                       if how != 'json' and not e.is_dir() else {})}
                   for e in entries
                   if e.name[0] != '.' or (how != 'json' and e.name == '.metadata')]
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

    def do_PUT(self):
        self.log_request_line('PUT')
        if self.path != '/aws/instance/latest/api/token' or \
                self.headers.get('x-aws-ec2-metadata-token-ttl-seconds') != '21600':
            return self.answer(404)
        return self.answer(200, [], b'the-token')

    def do_POST(self):
        self.log_request_line('POST')
        body = self.rfile.read(int(self.headers['Content-Length'])).decode()
        form = dict(urllib.parse.parse_qsl(body, strict_parsing=True))
        if self.path not in ('/aws/sts/', '/aws/later/') or form.pop('RoleSessionName', '') == '' or form != {
                'Action': 'AssumeRoleWithWebIdentity', 'Version': '2011-06-15',
                'RoleArn': 'arn:aws:iam::1:role/a+b', 'WebIdentityToken': 'web.id-token'}:
            return self.answer(403, [], b'<ErrorResponse><Error><Code>InvalidIdentityToken'
                               b'</Code></Error></ErrorResponse>')
        keys = self.keys_of(self.path.split('/')[2])
        keys['SessionToken'] = keys.pop('Token')
        return self.answer(200, [('Content-Type', 'text/xml')], (
            '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            '<AssumeRoleWithWebIdentityResult><SubjectFromWebIdentityToken>x'
            '</SubjectFromWebIdentityToken><Credentials>%s</Credentials>'
            '</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>' %
            ''.join('<%s>%s</%s>' % (k, v, k) for k, v in keys.items())).encode())

    def keys_of(self, place):
        first = self.count('keys of ' + place) == 1
        return {'AccessKeyId': 'AK' + place.upper() + '0' * first,
                'SecretAccessKey': SECRET, 'Token': SESSION,
                'Expiration': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time.time() + 3600))}

    def aws(self, parts, *_):
        place = parts[0]
        if place == 'instance':
            if self.headers.get('x-aws-ec2-metadata-token') != 'the-token':
                return self.answer(401)
            if parts[1:] == 'latest/meta-data/iam/security-credentials'.split('/'):
                return self.answer(200, [], b'a-role\n')
            if parts[-1] != 'a-role':
                return self.answer(404)
        elif self.headers.get('Authorization') != 'the-secret':
            return self.answer(401)
        return self.answer(200, [('Content-Type', 'application/json')], json.dumps(
            {'Code': 'Success', 'Type': 'AWS-HMAC', **self.keys_of(place)}).encode())

    def log_request_line(self, method):
        with self.lock:
            with open(self.log, 'a', encoding='utf-8') as f:
                f.write('%s %s %s\n' % (method, urllib.parse.unquote(self.path.split('?')[0]),
                                        self.headers.get('Range', '-')))

    def do_GET(self):
        path = urllib.parse.unquote(self.path.split('?')[0])
        wanted = self.headers.get('Range')
        self.log_request_line('GET')
        parts = path.strip('/').split('/')
        fault = parts.pop(0) if parts[0] in FAULTS else None
        if fault == 'storm' and self.count(self.path + str(wanted)) % 3:
            return self.answer(500)
        how = parts.pop(0)
        if how in ('s3', 'hub', 'elsewhere', 'aws'):
            return getattr(self, how)(parts, wanted, fault)
        file = self.root.joinpath(*parts)
        if file.is_dir():
            if not path.endswith('/'):
                return self.answer(301, [('Location', self.path + '/')])
            if how == 'bare':
                return self.answer(403)
            asked = urllib.parse.urlsplit(self.path).query.partition('segments=')[2]
            if asked and fault != 'ignored':
                return self.send_list(file, asked, wanted, fault)
            kind, text = self.listing(how, file)
            return self.answer(200, [('Content-Type', kind)] + [(LISTS, '1')] * (
                how == 'lists' and not asked), text.encode())
        if not file.is_file() or path.endswith('/'):
            return self.answer(404)
        return self.send_file(file, wanted, None if how == 'lists' else fault)

    def s3(self, parts, wanted, fault):
        expired = re.search('Credential=AK([A-Z]+)0/', self.headers.get('Authorization', ''))
        if expired:
            later = [('Retry-After', '60')] if expired[1] == 'LATER' else []
            return self.answer(400, [('Content-Type', 'application/xml')] + later,
                               b'<Error><Code>ExpiredToken</Code><Token-0>%s</Token-0></Error>'
                               % (b'x' * 5000))
        region = re.search('Credential=[^/]*/[0-9]*/([^/]*)/', self.headers.get('Authorization', ''))
        if region and region[1] != REGION or fault in ('wanders', 'refuses'):
            is_in = 'eu-other-%d' % self.count('s3') if fault == 'wanders' else REGION
            code = b'InvalidToken' if fault == 'refuses' else b'AuthorizationHeaderMalformed'
            return self.answer(400, [('Content-Type', 'application/xml'),
                                     ('x-amz-bucket-region', is_in)],
                               b'<Error><Code>%s</Code></Error>' % code)
        if not is_signed(self) or fault == 'payer' and (
                self.headers.get('x-amz-request-payer') != 'requester'
                or 'x-amz-request-payer' not in self.headers['Authorization']):
            return self.answer(403, [('Content-Type', 'application/xml')],
                               b'<Error><Code>SignatureDoesNotMatch</Code></Error>')
        if '.localhost' in self.headers['Host']:
            parts = [self.headers['Host'].split('.localhost')[0]] + parts
        query = dict(urllib.parse.parse_qsl(self.path.partition('?')[2]))
        if query.get('list-type') == '2':
            return self.keys(self.root / parts[0], query, fault)
        file = self.root.joinpath(*parts)
        return self.send_file(file, wanted, fault) if file.is_file() else self.answer(404)

    def keys(self, bucket, query, fault):
        everything = self.all_keys(bucket, query.get('prefix', ''), query.get('delimiter'))
        start = int(query.get('continuation-token', 'at/0').split('/')[1])
        page = everything[start:start + PAGE]
        out = ['<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult>']
        for key, is_prefix in page:
            name = urllib.parse.quote(key, safe='/-_.*').replace('%20', '+')
            if is_prefix:
                out.append('<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>' % name)
                continue
            st = (bucket / key if (bucket / key).exists() else bucket).stat()
            out.append('<Contents><Key>%s</Key><LastModified>%s'
                       '</LastModified><ETag>&quot;%x-%x&quot;</ETag><Size>%d</Size></Contents>' %
                       (name, time.strftime('%Y-%m-%dT%H:%M:%S.000Z',
                                              time.gmtime(st.st_mtime)),
                        st.st_mtime_ns, st.st_size, st.st_size))
        more = start + PAGE < len(everything)
        out.append('<IsTruncated>%s</IsTruncated>' % ('true' if more else 'false'))
        if more and fault != 'untold':
            out.append('<NextContinuationToken>at/%d</NextContinuationToken>' % (start + PAGE))
        out.append('</ListBucketResult>')
        return self.answer(200, [('Content-Type', 'application/xml')], ''.join(out).encode())

    lists = {}

    def all_keys(self, bucket, prefix, delimiter):
        what = (bucket, prefix, delimiter)
        if MANY and what in self.lists:
            return self.lists[what]
        keys = [os.path.relpath(os.path.join(where, name), bucket)
                for where, _, names in os.walk(bucket, followlinks=True) for name in names]
        keys += [MANY % i for i in range(100000)] if MANY else []
        found, prefixes = [], set()
        for key in keys:
            rest = key[len(prefix):]
            if not key.startswith(prefix):
                continue
            if delimiter and '/' in rest:
                prefixes.add(prefix + rest.split('/')[0] + '/')
            else:
                found.append(key)
        self.lists[what] = sorted([(k, False) for k in found] + [(p, True) for p in prefixes])
        return self.lists[what]

    def hub(self, parts, wanted, fault):
        if self.headers.get('Authorization') != 'Bearer ' + TOKEN:
            return self.answer(401)
        if parts[0] != 'api':
            if parts[2:4] != ['resolve', SHA]:
                return self.answer(404)
            port = self.server.server_address[1]
            return self.answer(302, [('Location', '%s/%selsewhere/%s%s' % (
                '' if fault == 'near' else 'http://localhost:%d' % port,
                fault + '/' if fault else '', urllib.parse.quote('/'.join(parts[:2] + parts[4:])),
                '?%d' % self.count('portal') if fault == 'portal' else ''))])
        repo = self.root.joinpath(*parts[2:4])
        if not repo.is_dir() or parts[1] != 'models':
            return self.answer(404)
        if parts[4] == 'revision':
            return self.answer(200 if parts[5] == 'v1' else 404, [],
                               json.dumps({'id': 'x', 'siblings': [{'rfilename': 'x'}], 'sha': SHA}).encode())
        query = dict(urllib.parse.parse_qsl(self.path.partition('?')[2]))
        files = sorted(p for p in repo.joinpath(*parts[6:]).rglob('*') if p.is_file())
        start = int(query.get('cursor', 0))
        out = [{'type': 'file', 'oid': 'x', 'size': p.stat().st_size,
                'path': str(p.relative_to(repo))} for p in files[start:start + PAGE]]
        link = [] if start + PAGE >= len(files) else [
            ('Link', '<http://%s%s?recursive=true&cursor=%d>; rel="next"' % (
                self.headers['Host'], self.path.partition('?')[0], start + PAGE))]
        return self.answer(200, [('Content-Type', 'application/json')] + link,
                           json.dumps(out).encode())

    def elsewhere(self, parts, wanted, fault):
        """Where the files of the Hub are, which gets no token elsewhere."""
        if (self.headers.get('Authorization') is None) == (fault == 'near'):
            return self.answer(400)
        if fault == 'expires' and self.count(self.path) % 2 == 0:
            return self.answer(403)
        if fault == 'portal' and self.count(self.path) > 1:
            return self.answer(200, [], b'x' * 100000)
        return self.send_file(self.root.joinpath(*parts), wanted, fault)

    def send_list(self, directory, asked, wanted, fault):
        if fault == 'unlisted':
            return self.answer(404)
        data = b''
        for part in asked.split(';'):
            name, tag, *runs = map(urllib.parse.unquote, part.split(','))
            file = directory / name
            if tag != etag_of(file):
                return self.answer(412)
            whole = file.read_bytes()
            for run in runs:
                off, n, count, pitch = [*map(int, run.split(':')), 1, 0][:4]
                data += b''.join(whole[at:at + n] for at in
                                 (off + i * pitch for i in range(count)))
        return self.send_bytes(data, [(LISTS, '1')], '', wanted, fault)

    def send_file(self, file, wanted, fault):
        modified = email.utils.formatdate(int(file.stat().st_mtime), usegmt=True)
        return self.send_bytes(file.read_bytes(), [('Last-Modified', modified)],
                               etag_of(file), wanted, fault)

    def send_bytes(self, data, headers, etag, wanted, fault):
        wrong = FAULTS[fault] if fault and wanted != 'bytes=0-0' else {}
        if wanted == INDEX and fault not in ('busy', 'later', 'cut', 'short', 'down', 'claims', 'older'):
            wrong = {}
        m = re.fullmatch(r'bytes=(\d+)-(\d+)', wanted or '')
        if fault == 'large' and m and int(m[2]) - int(m[1]) < 1 << 20:
            wrong = {}
        if fault in TIMES and wrong and self.count(self.path + (wanted or '')) > TIMES[fault]:
            wrong = {}
        if 'states' in wrong:
            etag = '"state-%d"' % self.count('states')
        if fault == 'older' and wanted == INDEX:
            etag, data = '"older"', bytes(len(data))
        match = self.headers.get('If-Match')
        headers += [('ETag', etag)] * bool(etag) + [('Accept-Ranges', 'bytes')]
        if wrong.get('silent'):
            threading.Event().wait(60)
        if 'location' in wrong:
            return self.answer(302, [('Location', wrong['location'] or self.path)])
        if wrong.get('status', 200) != 200:
            return self.answer(wrong['status'],
                               {'later': [('Retry-After', '1')],
                                'limited': [('RateLimit', '"api";r=0;t=60')]}.get(fault, []))
        if match is not None and match != etag and fault != 'changed':
            return self.answer(412)
        if fault == 'claims' and wrong:
            headers += [('Content-Range', 'bytes 0-%d/%d' % ((1 << 40) - 1, 1 << 40))]
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

#!/usr/bin/env python3
"""The server of server.py, whose buckets can be written.

usage: bucket.py DIRECTORY PORTFILE LOG

Objects are put, or uploaded in parts, with signatures of their bytes. A page of
parts has two. The environment's FAULTS names a file: a line "NAME COUNT" lets so
many of the next requests fail, all of those that upload a part or complete one:

    busy      503
    cut       the connection ends in the middle of the request
    lost      the request is done, and the connection ends before the answer
    digest    400 BadDigest, with the region of the bucket
    late      200, with an error in the body, for what completes
    damaged   what completes loses its last byte
    refused   403 for everything that writes
    stall     no answer
    held      no answer until the file is removed; then it is done
    skip      nothing: the next line counts after so many
"""
import html
import os
import pathlib
import re
import socket
import sys
import threading
import time
import urllib.parse

import server


class Handler(server.Handler):
    uploads = {}
    faults = pathlib.Path(os.environ.get('FAULTS', '/nonexistent'))

    def fault(self):
        """The name of the next fault, if there is one."""
        with self.lock:
            lines = self.faults.read_text().split('\n') if self.faults.exists() else []
            lines = [line.split() for line in lines if line]
            if not lines:
                return None
            name, count = lines[0][0], int(lines[0][1]) - 1
            lines[0][1] = str(count)
            self.faults.write_text(''.join('%s %s\n' % tuple(x)
                                           for x in lines[count == 0:]))
            return name

    def error(self, status, code):
        region = [('x-amz-bucket-region', server.REGION)] if code == 'BadDigest' else []
        return self.answer(status, [('Content-Type', 'application/xml')] + region,
                           ('<Error><Code>%s</Code></Error>' % code).encode())

    def cut(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def write(self):
        path, _, query = self.path.partition('?')
        with self.lock:
            with open(self.log, 'a', encoding='utf-8') as f:
                f.write('%s %s %s\n' % (self.command, urllib.parse.unquote(path), query or '-'))
        query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        fault = self.fault() if 'uploadId' in query and self.command != 'DELETE' else None
        if fault == 'cut':
            self.rfile.read(10)
            return self.cut()
        body = self.rfile.read(int(self.headers.get('Content-Length', 0)))
        if not server.is_signed(self, body):
            return self.error(403, 'SignatureDoesNotMatch')
        if fault == 'stall':
            threading.Event().wait(60)
        while fault == 'held' and self.faults.exists():
            time.sleep(0.02)
        if fault in ('busy', 'digest', 'refused', 'late'):
            return self.error(*{'busy': (503, 'SlowDown'), 'digest': (400, 'BadDigest'),
                                'refused': (403, 'AccessDenied'),
                                'late': (200, 'InternalError')}[fault])
        parts = urllib.parse.unquote(path).strip('/').split('/')
        if parts.pop(0) != 's3' or not (self.root / parts[0]).is_dir():
            return self.error(404, 'NoSuchBucket')
        if not os.access(self.root / parts[0], os.W_OK) or (self.root / parts[0] / '.closed').exists():
            return self.error(403, 'AccessDenied')
        status, headers, text = getattr(self, self.command.lower())(
            self.root.joinpath(*parts), query, body, fault)
        if fault == 'lost':
            return self.cut()
        return self.answer(status, headers, text.encode())

    do_PUT = do_POST = do_DELETE = write

    def tag(self, file):
        st = file.stat()
        return '"%x-%x"' % (st.st_mtime_ns, st.st_size)

    def store(self, file, body):
        new = self.root / ('.new.%d' % threading.get_ident())
        new.write_bytes(body)
        file.parent.mkdir(parents=True, exist_ok=True)
        os.rename(new, file)
        return self.tag(file)

    def put(self, file, query, body, _):
        if 'uploadId' not in query:
            return 200, [('ETag', self.store(file, body))], ''
        upload = self.uploads.get((query['uploadId'], str(file)))
        if upload is None:
            return 404, [], '<Error><Code>NoSuchUpload</Code></Error>'
        number = int(query['partNumber'])
        tag = '"%s"' % self.headers['x-amz-content-sha256'][:32]
        upload[number] = (tag, body)
        return 200, [('ETag', tag)], ''

    def post(self, file, query, body, fault):
        if 'uploads' in query:
            name = 'id/%d+%d' % (os.getpid(), self.count('uploads'))
            self.uploads[(name, str(file))] = {}
            return 200, [], ('<InitiateMultipartUploadResult xmlns="http://s3/">'
                             '<UploadId>%s</UploadId></InitiateMultipartUploadResult>' % name)
        key = (query['uploadId'], str(file))
        if key not in self.uploads:
            return 404, [], '<Error><Code>NoSuchUpload</Code></Error>'
        wanted = [(int(n), html.unescape(tag)) for n, tag in re.findall(
            r'<PartNumber>(\d+)</PartNumber><ETag>([^<]*)</ETag>', body.decode())]
        have = self.uploads[key]
        if not wanted or any(n not in have or have[n][0] != tag for n, tag in wanted):
            return 400, [], '<Error><Code>InvalidPart</Code></Error>'
        if any(len(have[n][1]) < 5 << 20 for n, _ in wanted[:-1]):
            return 400, [], '<Error><Code>EntityTooSmall</Code></Error>'
        data = b''.join(have[n][1] for n, _ in wanted)
        tag = self.store(file, data[:-1] if fault == 'damaged' else data)
        del self.uploads[key]
        return 200, [], ('<CompleteMultipartUploadResult><ETag>%s</ETag>'
                         '</CompleteMultipartUploadResult>' % html.escape(tag))

    def delete(self, file, query, *_):
        if 'uploadId' in query:
            found = self.uploads.pop((query['uploadId'], str(file)), None)
            return (404 if found is None else 204), [], ''
        file.unlink(missing_ok=True)
        while file.parent.parent != self.root and not any(file.parent.iterdir()):
            file = file.parent
            file.rmdir()
        return 204, [], ''

    def s3(self, parts, wanted, fault):
        """What GET finds: also parts, and for the tests all uploads."""
        query = dict(urllib.parse.parse_qsl(self.path.partition('?')[2], keep_blank_values=True))
        if parts == ['uploads']:
            return self.answer(200, [], ''.join(
                '%s %d\n' % (os.path.relpath(k[1], self.root), len(v))
                for k, v in sorted(self.uploads.items())).encode())
        if 'uploadId' not in query:
            return super().s3(parts, wanted, fault)
        have = self.uploads.get((query['uploadId'], str(self.root.joinpath(*parts))))
        if not server.is_signed(self):
            return self.error(403, 'SignatureDoesNotMatch')
        if have is None:
            return self.error(404, 'NoSuchUpload')
        left = [n for n in sorted(have) if n > int(query.get('part-number-marker', 0))]
        out = ''.join('<Part><PartNumber>%d</PartNumber><ETag>%s</ETag><Size>%d</Size></Part>' % (
            n, html.escape(have[n][0]), len(have[n][1])) for n in left[:2])
        more = '<NextPartNumberMarker>%d</NextPartNumberMarker>' % left[1] if len(left) > 2 else ''
        return self.answer(200, [('Content-Type', 'application/xml')], (
            '<ListPartsResult>%s<IsTruncated>%s</IsTruncated>%s</ListPartsResult>' % (
                more, str(len(left) > 2).lower(), out)).encode())


if __name__ == '__main__':
    server.Handler = Handler
    server.main()

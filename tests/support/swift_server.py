#!/usr/bin/env python3
"""OpenStack Swift with its S3 interface, all servers in one process, for tests.

usage: swift_server.py DIRECTORY PORTFILE KEY SECRET REGION

Keeps objects in DIRECTORY, whose file system needs extended attributes, and writes
the port of the S3 interface on the loopback to PORTFILE. Unlike moto, it checks the
signatures of requests. KEY, ACCOUNT:USER, may do everything in its account.

Needs Swift (Debian: python3-swift).
"""
import array
import logging
import os
import pathlib
import sys

import eventlet

# before there are many locks, which it looks for in all of memory, one by one
eventlet.patcher.monkey_patch(all=False, socket=True, select=True, thread=True)

# pylint: disable=wrong-import-position
from eventlet import wsgi  # noqa: E402
from swift.common import utils  # noqa: E402

utils.HASH_PATH_SUFFIX = utils.HASH_PATH_PREFIX = b'tests'

from swift.account.server import AccountController  # noqa: E402
from swift.common.ring.ring import RingData  # noqa: E402
from swift.common.wsgi import loadapp  # noqa: E402
from swift.container.server import ContainerController  # noqa: E402
from swift.obj.server import ObjectController  # noqa: E402

PIPELINE = '''
[DEFAULT]
swift_dir = %(dir)s
[pipeline:main]
pipeline = catch_errors gatekeeper cache bulk s3api tempauth slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:s3api]
use = egg:swift#s3api
location = %(region)s
[filter:tempauth]
use = egg:swift#tempauth
user_%(account)s_%(user)s = %(secret)s .admin
[filter:cache]
use = egg:swift#memcache
memcache_servers =
''' + ''.join('[filter:%s]\nuse = egg:swift#%s\n' % (name, name)
              for name in ('catch_errors', 'gatekeeper', 'bulk', 'slo', 'dlo'))


def serve(app, log, sock=None):
    """Serves app on a port of the loopback, which it returns."""
    sock = sock or eventlet.listen(('127.0.0.1', 0))
    eventlet.spawn(wsgi.server, sock, app, log, log_output=False,
                   socket_timeout=60, keepalive=True)
    return sock.getsockname()[1]


def main():
    where, portfile, key, secret, region = sys.argv[1:]
    where = pathlib.Path(where).resolve()
    os.setxattr(where, 'user.swift', b'')
    (where / 'sda').mkdir(exist_ok=True)
    log = logging.getLogger('swift')
    log.addHandler(logging.NullHandler())
    conf = {'devices': str(where), 'swift_dir': str(where), 'mount_check': 'false',
            'disk_chunk_size': str(1 << 20), 'network_chunk_size': str(1 << 20)}
    for name, kind in (('account', AccountController), ('container', ContainerController),
                       ('object', ObjectController)):
        sock = eventlet.listen(('127.0.0.1', 0))
        at = {'ip': '127.0.0.1', 'port': sock.getsockname()[1]}
        device = {'id': 0, 'zone': 0, 'region': 1, 'device': 'sda', 'weight': 1, 'meta': '', **at,
                  **{'replication_' + k: v for k, v in at.items()}}
        RingData([array.array('H', [0])], [device], 32).save(str(where / (name + '.ring.gz')))
        serve(kind(conf), log, sock)
    (where / 'proxy.conf').write_text(PIPELINE % {
        'dir': where, 'region': region, 'account': key.split(':')[0],
        'user': key.split(':')[1], 'secret': secret})
    port = serve(loadapp(str(where / 'proxy.conf')), log)
    pathlib.Path(portfile + '.new').write_text(str(port))
    os.rename(portfile + '.new', portfile)
    eventlet.sleep(1 << 20)


if __name__ == '__main__':
    main()

# server.sh - a server on the loopback, for tests
# SPDX-License-Identifier: Apache-2.0
#
# Sourced after tap.sh:
#
#   serve DIRECTORY          starts tests/support/$program (server.py); sets $server, its
#                            address, and $requests, a file with a line for each
#                            request
#   asked                    the number of requests since the last call of asked
#   start_nginx DIRECTORY    starts nginx; sets $plain, its address (/html/ lists as HTML,
#                            all else as JSON), and $tls, that with TLS and HTTP/2, by the
#                            certificate $scratch/cert.pem; requests are in
#                            $scratch/access.log, with the number of the connection
#                            at the end. 1: it cannot be started, for $why
#   stop_nginx

requires python3
[ -e "$TOP_BUILDDIR/optimfs-http.la" ] ||
    skip_all "built without libcurl: no checkpoints on servers"
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
no_proxy=127.0.0.1,localhost
export no_proxy

serve() {
	requests=$scratch/requests
	: >"$requests"
	python3 "$TOP_SRCDIR/tests/support/${program:-server.py}" "$1" "$scratch/port" \
	    "$requests" >"$scratch/server.log" 2>&1 &
	eventually test -s "$scratch/port" || {
		diag "$(cat "$scratch/server.log")"
		exit 99
	}
	server=http://127.0.0.1:$(cat "$scratch/port")
}

asked() {
	wc -l <"$requests"
	: >"$requests"
}

start_nginx() {
	PATH=$PATH:/usr/sbin:/sbin
	for program in nginx openssl; do
		why="no $program"
		command -v $program >/dev/null || return 1
	done
	chmod a+x "$scratch"
	why="openssl makes no certificate"
	openssl req -x509 -newkey rsa:2048 -nodes -keyout "$scratch/key.pem" \
	    -out "$scratch/cert.pem" -days 2 -subj /CN=localhost \
	    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 2>/dev/null || return 1
	# two ports that are free now
	ports=$(python3 -c 'import socket
s = [socket.create_server(("127.0.0.1", 0)) for _ in "ab"]
print(*[x.getsockname()[1] for x in s])')
	plain=http://127.0.0.1:${ports% *} tls=https://localhost:${ports#* }
	user=
	[ "$(id -u)" != 0 ] || user='user root;'
	cat >"$scratch/nginx.conf" <<-END
		$user
		daemon off;
		pid $scratch/nginx.pid;
		error_log $scratch/nginx.log;
		events {}
		http {
			log_format numbered '\$remote_addr - \$remote_user [\$time_local] "\$request" '
			    '\$status \$body_bytes_sent "-" "-" \$connection';
			access_log $scratch/access.log numbered;
			client_body_temp_path $scratch/t1; proxy_temp_path $scratch/t2;
			fastcgi_temp_path $scratch/t3; uwsgi_temp_path $scratch/t4;
			scgi_temp_path $scratch/t5;
			root $1;
			autoindex on;
			server { listen 127.0.0.1:${ports% *}; location /html/ { alias $1/; }
				location = /closed { return 403; }
				location / { autoindex_format json; } }
			server { listen 127.0.0.1:${ports#* } ssl http2;
				ssl_certificate $scratch/cert.pem;
				ssl_certificate_key $scratch/key.pem; }
		}
	END
	nginx -p "$scratch" -c "$scratch/nginx.conf" >/dev/null 2>&1 &
	eventually test -s "$scratch/nginx.pid" && return 0
	why="nginx does not start: $(cat "$scratch/nginx.log")"
	return 1
}

stop_nginx() {
	kill "$(cat "$scratch/nginx.pid")"
}

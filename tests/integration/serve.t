#!/bin/sh
# serve.t - optimfs serve: the tree over HTTP
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"
requires python3
"$OPTIMFS" --help | grep -q 'serve.*Ctrl-C' ||
    skip_all "this optimfs was built without libmicrohttpd"

ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w4/ckpt
tensor=model/layers.0.wq.weight
chmod go+x "$scratch" # what is below a private directory has a token

# serve ARGUMENT...: $url is what a server in the background answers.
serve() {
	rm -f "$scratch/url"
	"$OPTIMFS" serve --listen 127.0.0.1:0 "$@" >"$scratch/url" 2>"$scratch/said" &
	server=$!
	eventually grep -qs http "$scratch/url" || bail_out "no server: $(cat "$scratch/said")"
	url=$(cat "$scratch/url")
}
stop() {
	kill -TERM "$server"
	wait "$server"
}
http() {
	python3 "$TOP_SRCDIR/tests/support/http_client.py" "$@"
}
# get PATH [HEADER:VALUE]...
get() {
	path=$1
	shift
	http "$url$path" get "$@"
}
body() {
	sed '1,/^$/d'
}

serve "$ck"
ok "everything is copied by the listings" http "$url" copy "$scratch/copy"
"$OPTIMFS" cp -r "$ck" . "$scratch/tree"
ok "it is the tree" diff -r "$scratch/copy" "$scratch/tree"
cat >"$scratch/fsspec_http.py" <<'E'
import sys
import fsspec
url, copy, name = sys.argv[1:]
with open(copy + '/' + name, 'rb') as f:
    want = f.read()
fs = fsspec.filesystem('http')
assert url + name in fs.ls(url + 'model/', detail=False), fs.ls(url + 'model/')
assert fs.info(url + name)['size'] == len(want)
assert fs.cat_file(url + name, 10, 30) == want[10:30]
with fs.open(url + name, block_size=100) as f:
    f.seek(200)
    assert f.read(20) == want[200:220]
with fsspec.open('simplecache::' + url + name) as f:
    assert f.read() == want
E
if find_python -c 'import aiohttp, fsspec'; then
	ok "fsspec reads it, and ranges of it" "$python" "$scratch/fsspec_http.py" "$url" "$scratch/tree" $tensor
else
	skip 1 "no fsspec with aiohttp: $why"
fi
dd if="$scratch/tree/$tensor" bs=1 skip=10 count=20 of="$scratch/piece" 2>/dev/null
if command -v curl >/dev/null; then
	ok "curl reads a range" curl -sS --fail -r 10-29 -o "$scratch/got" "$url$tensor"
	ok "which is that part of it" cmp "$scratch/got" "$scratch/piece"
	head -c 100 "$scratch/tree/$tensor" >"$scratch/got"
	ok "and goes on where it was cut off" curl -sS --fail -C - -o "$scratch/got" "$url$tensor"
	ok "to its end" cmp "$scratch/got" "$scratch/tree/$tensor"
else
	skip 4 "no curl"
fi
ok "a view is copied" http "$url.optimfs/view/dcp@2/" copy "$scratch/view"
ok "it is the checkpoint in that layout" "$OPTIMFS" diff -q "$scratch/view" "$ck"
ok "so are its own files" http "$url.optimfs/view/source/" copy "$scratch/source"
ok "byte for byte" diff -r "$scratch/source" "$ck"
get "$tensor" >"$scratch/got"
like "a tensor has its type and shape" "$(sed '/^$/q' "$scratch/got")" \
    "200*ETag: *Content-Type: application/octet-stream*Dtype: float32*Shape: 12,12*"
tag=$(sed -n 's/^ETag: //p' "$scratch/got")
ok "a range is that part of it" sh -c '
    python3 "$1" "$2" get Range:bytes=10-29 | sed "1,/^\$/d" >"$4" &&
    dd if="$3" bs=1 skip=10 count=20 2>/dev/null | cmp - "$4"' - \
    "$TOP_SRCDIR/tests/support/http_client.py" "$url$tensor" \
    "$scratch/tree/$tensor" "$scratch/range"
like "the answer says which" "$(get "$tensor" Range:bytes=-8 | sed '/^$/q')" \
    "206*Content-Range: bytes 568-575/576*Content-Length: 8*"
like "what begins after the end is refused" "$(get "$tensor" Range:bytes=576-)" \
    "416*bytes \*/576*"
like "of a file that is another one, all comes" \
    "$(get "$tensor" Range:bytes=0-1 'If-Range:"x"' | sed '/^$/q')" "200*Length: 576*"
like "If-Range with its own tag" \
    "$(get "$tensor" Range:bytes=0-1 "If-Range:$tag" | sed '/^$/q')" "206*Length: 2*"
like "If-None-Match" "$(get "$tensor" "If-None-Match:$tag")" "304*"
like "If-Match" "$(get "$tensor" 'If-Match:"x"')" "412*"
like "HEAD has no body" "$(get "$tensor" method:HEAD)" "200*Content-Length: 576"
is "a value is text" "$(get optim/param_groups/0/lr | body)" 0.001
like "its type says so" "$(get optim/param_groups/0/lr)" \
    "200*Content-Type: text/plain; charset=utf-8*"
like "an empty file has no bytes" "$(get .optimfs/errors)" "200*Content-Length: 0*"
like "a listing is HTML for people" "$(get model/)" \
    '200*text/html*<a href="layers.0.wq.weight">layers.0.wq.weight</a><td>float32<td>12,12<td>576 B*'
like "a directory without its slash is elsewhere" "$(get model)" \
    "301*Location: ./model/*"
like "a name that is not there" "$(get model/none)" "404*OFS002 */model/none*"
like "there is no way out of the tree" \
    "$(http "$url" raw 'GET /../../etc/passwd HTTP/1.0\r\n\r\n')" "HTTP/1.? 404*"
like "nor a name with a zero" \
    "$(http "$url" raw 'GET /model%00 HTTP/1.0\r\n\r\n')" "HTTP/1.? 400*"
like "nothing can be written" "$(get "$tensor" method:DELETE)" "405*"
like "also not with a body" "$(get "$tensor" method:POST body:x)" "405*read only*"
is "what has not changed has one type" \
    "$(get "$tensor" 'If-None-Match:*' | sed -n '1p; s/^Content-Type: //p' | tr '\n' ' ')" \
    "304 application/octet-stream "
like "a page of another server cannot read it" "$(get "" Host:example.org)" "403*"
for junk in '\x16\x03\x01\x02' 'GET' 'GET / HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-' \
    'GET / HTTP/9.9\r\n\r\n' '\r\n\r\n\r\n' 'PUT / HTTP/1.0\r\nContent-Length: 99\r\n\r\nx'; do
	http "$url" raw "$junk" >"$scratch/answer" 2>&1
done
is "after requests that are none it goes on" \
    "$(get optim/param_groups/0/lr | body)" 0.001
if [ -e "$TOP_BUILDDIR/optimfs-http.la" ]; then
	ok "another optimfs reads the checkpoint at its address" \
	    env no_proxy=127.0.0.1 "$OPTIMFS" diff -q "$url.optimfs/view/source" "$ck"
else
	skip 1 "built without libcurl"
fi
ok "it ends by SIGTERM" stop

# Files that are lost.
cp -r "$ck" "$scratch/lost"
rm "$scratch/lost/__1_0.distcp"
serve "$scratch/lost"
like "what cannot be read is an error, with its code" "$(get "$tensor")" \
    "500*OFS*__1_0.distcp*"
stop

# The files as they are, and a directory that has only a part of them.
mkdir "$scratch/part" "$scratch/part/sub" "$scratch/part/.hidden"
cp "$ck"/__[12]_0.distcp "$scratch/part"
echo text >"$scratch/part/sub/a b"
echo secret >"$scratch/part/.hidden/x"
ln -s /etc/passwd "$scratch/part/link"
serve "$scratch/part"
like "it says why there is no tree" "$(cat "$scratch/said")" \
    "*only files are served: OFS601*no .metadata*"
ok "its files are copied by the listings" http "$url" copy "$scratch/files"
rm -r "$scratch/part/.hidden" "$scratch/part/link"
ok "byte for byte, without links and what is hidden" \
    diff -r "$scratch/files" "$scratch/part"
get __1_0.distcp Range:bytes=-8 >"$scratch/got"
tag=$(sed -n 's/^ETag: //p' "$scratch/got")
like "they have ranges" "$(sed '/^$/q' "$scratch/got")" "206*Content-Length: 8*"
like "and tags" "$(get __1_0.distcp "If-None-Match:$tag")" "304*"
echo more >>"$scratch/part/__1_0.distcp"
like "that change with them" "$(get __1_0.distcp "If-Match:$tag")" "412*"
for path in sub/../../copy/optim .optimfs/files/%2e%2e/copy .hidden/x link none; do
	like "no file: $path" "$(http "$url" raw "GET /$path HTTP/1.0\r\n\r\n")" \
	    "HTTP/1.? 404*"
done
chmod o= "$scratch/part/sub"
like "what is private is for nobody without a token" "$(get 'sub/a%20b')" "403*OFS022*"
chmod o= "$scratch/part/__2_0.distcp"
like "so is a file" "$(get __2_0.distcp)" "403*OFS022*"
stop
serve "$ck"
like "a tree says where its files are" "$(get "")" "200*X-Optimfs-Files: .optimfs/files/*"
ok "there they are" http "$url.optimfs/files/" copy "$scratch/all"
ok "all of them" diff -r "$scratch/all" "$ck"
stop
mkdir "$scratch/empty"
not_ok "of a directory without files nothing is served" \
    "$OPTIMFS" serve --listen 127.0.0.1:0 "$scratch/empty"

# A file whose last elements are lost: no client takes what came for all.
python3 - "$scratch/cut" <<'END'
import json, os, struct, sys
n = 1 << 20
head = json.dumps({"a": {"dtype": "F32", "shape": [n], "data_offsets": [0, 4 * n]}}).encode()
os.mkdir(sys.argv[1])
with open(sys.argv[1] + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head + bytes(4 * n))
END
"$OPTIMFS" reshard -q --to dcp@2 "$scratch/cut" "$scratch/half"
rm "$scratch/half/__1_0.distcp"
serve "$scratch/half"
not_ok "a body that ends early is an error" http "${url}model/a" get
stop

# Who may read.
cp -r "$ck" "$scratch/private"
chmod -R go= "$scratch/private"
serve "$scratch/private"
token=$(sed -n 's/.*TOKEN": //p' "$scratch/said")
is "a private checkpoint has a token, of 128 bits" "${#token}" 32
like "without it nothing comes" "$(get optim/)" "401*WWW-Authenticate: Basic*OFS022*"
like "nor with another" "$(get optim/ "Authorization:Bearer x$token")" "401*"
like "with it the tree comes" "$(get optim/ "Authorization:Bearer $token")" "200*state*"
like "or as a password" "$(get optim/ "Authorization:Basic $(printf 'me:%s' "$token" |
    base64 -w 0)")" "200*state*"
stop
echo secret >"$scratch/token"
serve --token-file "$scratch/token" "$ck"
like "a token of one's own" "$(get optim/ "Authorization:Bearer secret")" "200*state*"
like "is never said" "$(cat "$scratch/said" "$scratch/url")" "http*"
stop
serve --listen 0.0.0.0:0 "$ck"
like "where others can connect there is a token" "$(cat "$scratch/said")" "*TOKEN*"
stop

# Usage.
status "OFS021: no address" 2 "$OPTIMFS" serve --listen here "$ck"
like "it says what an address is" "$(cat "$scratch/err")" "*OFS021*[ADDRESS]:PORT*"
: >"$scratch/token"
not_ok "OFS022: no token in the file" \
    "$OPTIMFS" serve --token-file "$scratch/token" "$ck"
like "it says so" "$(cat "$scratch/err")" "*OFS022*no token*"

status "OFS021: no module" 4 env OPTIMFS_MODULES=/nonexistent \
    "$OPTIMFS" serve --listen 127.0.0.1:0 "$ck"
like "it says what is missing" "$(cat "$scratch/err")" "*OFS021*libmicrohttpd*/nonexistent/*"
LD_DEBUG=files "$OPTIMFS" --version >"$scratch/loaded" 2>&1
not_ok "no other command loads it" grep -q microhttpd "$scratch/loaded"

# A run.
mkdir "$scratch/run"
cp -r "$ck" "$scratch/run/step-5"
cp -r "$ck" "$scratch/run/step-4"
serve "$scratch/run"
is "a step of a run" "$(get steps/5/optim/param_groups/0/lr | body)" 0.001
is "by its link" "$(get latest/optim/param_groups/0/lr | body)" 0.001
cp -r "$ck" "$scratch/run/step-6"
chmod go= "$scratch/run/step-4"
like "without a token a private step is for nobody" \
    "$(get steps/4/optim/param_groups/0/lr)" "403*OFS022*--token-file*"
like "new steps appear" "$(get 'steps/?format=json')" '*"name": "6"*'
stop
done_testing

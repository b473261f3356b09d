#!/bin/sh
# release.t - scripts/release makes the same files twice, and each works. It takes
# twenty minutes: make check-release. RELEASE and RELEASE2 name directories that it
# has made already, of the same commit: these are not made again.
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires git python3 dpkg-buildpackage
limit=3600

[ -e "$TOP_SRCDIR/.git" ] || {
	echo "1..0 # SKIP a release is made from a repository"
	exit 0
}
if [ -n "${RELEASE:-}" ]; then
	cp -r "$RELEASE" "$scratch/one"
else
	HOMEPAGE=https://token@example.org/optimfs.git
	export HOMEPAGE
	ok "scripts/release succeeds" "$TOP_SRCDIR/scripts/release" "$scratch/one"
fi
cd "$scratch/one" || exit 99
ok "SHA256SUMS has all files" sha256sum --quiet -c SHA256SUMS
is "and only these" "$(wc -l <SHA256SUMS)" "$(find . -type f ! -name 'SHA256SUMS*' | wc -l)"
if [ -n "${RELEASE2:-}" ]; then
	mkdir "$scratch/elsewhere"
	cp -r "$RELEASE2" "$scratch/elsewhere/two"
else
	ok "scripts/release succeeds in another directory" \
	    "$TOP_SRCDIR/scripts/release" "$scratch/elsewhere/two"
fi
is "two releases are equal" "$(cat "$scratch/elsewhere/two/SHA256SUMS")" "$(cat SHA256SUMS)"

ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w4/ckpt
program=$(echo optimfs-*-linux-"$(uname -m)")
ok "the static program needs no file of its prefix" \
    env -i "./$program" units-script
ok "it reads" "./$program" info "$ck"
not_ok "it needs no library" sh -c "readelf -d ./$program | grep NEEDED"
wheel=$(echo optimfs-*_"$(uname -m)".whl)
like "the wheel is for glibc 2.34" "$wheel" '*-py3-none-manylinux_2_34_*'
mkdir "$scratch/unpacked"
python3 -m zipfile -e "$wheel" "$scratch/unpacked"
is "its libraries ask for no symbol of a later one: they run on Ubuntu 22.04" \
    "$(objdump -T "$scratch"/unpacked/optimfs/lib/*.so* | grep -o 'GLIBC_[0-9.]*' |
        sort -Vu | tail -n 1)" GLIBC_2.34
if command -v auditwheel >/dev/null; then
	like "auditwheel agrees" "$(auditwheel show "$wheel" | tr -s ' \n' ' ')" \
	    '*consistent with the following platform tag: "manylinux_2_34_*'
else
	skip 1 "no auditwheel (pip install auditwheel)"
fi
python3 -m venv "$scratch/venv"
ok "pip installs it" "$scratch/venv/bin/pip" --disable-pip-version-check install --no-index "$wheel"
is "it has the command optimfs" "$("$scratch/venv/bin/optimfs" cat "$ck" optim/param_groups/0/lr)" 0.001
is "and the package" "$("$scratch/venv/bin/python" -c 'import optimfs, sys
print(optimfs.open(sys.argv[1])["model/norm.bias"].shape)' "$ck")" "(12,)"
home=${HOMEPAGE:+https://example.org/optimfs}
is "the package names its homepage, without a token" \
    "$(dpkg-deb -f optimfs_*.deb Homepage)" "$home"
is "so does the wheel" "$(sed -n 's/^Home-page: //p' \
    "$scratch"/unpacked/optimfs-*.dist-info/METADATA)" "$home"
arm=$(echo optimfs-*_aarch64.whl)
if [ -e "$arm" ] && [ "$arm" != "$wheel" ] && command -v qemu-aarch64-static >/dev/null; then
	like "the wheel for ARM is for glibc 2.34" "$arm" '*-py3-none-manylinux_2_34_aarch64.whl'
	python3 -m zipfile -e "$arm" "$scratch/arm"
	is "all in it is for ARM" "$(find "$scratch/arm" -type f \( -name '*.so*' -o -path '*/scripts/*' \) \
	    -exec readelf -h {} + | grep -c 'Machine: *AArch64')" \
	    "$(find "$scratch/arm" -type f \( -name '*.so*' -o -path '*/scripts/*' \) | wc -l)"
	is "each library that one needs is in it, or on every system" "$(
	    readelf -d "$scratch"/arm/optimfs/lib/*.so* | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p' |
	        grep -v -e '^libc\.' -e '^libm\.' -e '^libz\.' -e '^ld-linux' -e '^libgcc_s\.' |
	        sort -u | while read -r name; do
	        [ -e "$scratch/arm/optimfs/lib/$name" ] || echo "$name"
	    done)" ""
	chmod +x "$scratch"/arm/optimfs-*.data/scripts/optimfs
	is "its program reads" "$(qemu-aarch64-static "$scratch"/arm/optimfs-*.data/scripts/optimfs cat \
	    -o sandbox=off "$ck" optim/param_groups/0/lr)" 0.001
else
	skip 4 "no wheel for ARM: gcc-aarch64-linux-gnu, dpkg --add-architecture arm64, qemu-user-static"
fi
ok "the bill of materials is JSON, and names what is linked" python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
assert d["spdxVersion"] == "SPDX-2.3" and len(d["packages"]) > 5, d' optimfs-*.spdx.json
ok "the source is the one of make dist" sh -c 'tar -tf optimfs-*.tar.xz | grep -q /configure$'
done_testing

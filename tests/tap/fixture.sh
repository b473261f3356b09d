# fixture.sh - checkpoints of $data, with manifests; sourced after tap.sh
# SPDX-License-Identifier: Apache-2.0
#
#   same CKPT NAME    is the tree of CKPT what the manifest of fixture NAME says?
#   take PATH         $ck becomes a copy of $data/PATH that can be changed

same() {
	rm -rf "$scratch/copy"
	"$OPTIMFS" cp -r "$1" . "$scratch/copy" &&
	    python3 "$TOP_SRCDIR/tests/support/manifest.py" \
		"$data/$2/expected/manifest.json" "$scratch/copy"
}

take() {
	ck=$scratch/ck
	rm -rf "${ck:?}"
	cp -r "$data/$1" "$ck"
	chmod -R u+w "$ck"
}

#!/bin/sh
# copies.t - what several ranks saved is shown once only if it is equal
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

data=$TOP_SRCDIR/tests/data/evidence

elements() {
	"$OPTIMFS" cat "$1" "$2" | od -An -v -tf4 | tr -s ' \n' ' '
}
# Views of a flat buffer, a slice of a transposed tensor, legacy streams, and
# archives without checksums.
for kind in views turned legacy bare; do
	ck=$data/ranks_${kind}_differ
	status "$kind: weights that differ are not shown" 3 "$OPTIMFS" cat "$ck" model/w
	like "$kind: the message names the ranks" "$("$OPTIMFS" cat "$ck" model/w 2>&1)" \
	    '*OFS674 model/w *rank 0 and rank 1 have different elements*'
	not_ok "$kind: nor converted" "$OPTIMFS" reshard --to torch "$ck" "$scratch/$kind"
	first=$(elements "$ck" .optimfs/rank/0/model/w)
	like "$kind: .optimfs/rank has what rank 0 saved" "$first" " 0 *"
	like "$kind: and what rank 1 saved" "$(elements "$ck" .optimfs/rank/1/model/w)" " 100 *"
	ck=$data/ranks_${kind}_same
	is "$kind: equal weights are shown" "$(elements "$ck" model/w)" "$first"
	ok "$kind: and converted" "$OPTIMFS" reshard --to torch "$ck" "$scratch/$kind"
done
ck=$data/ranks_elsewhere_same
is "buffers that differ elsewhere do not matter" "$(elements "$ck" model/w)" " 0 1 2 3 "

done_testing

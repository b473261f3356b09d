#!/bin/sh
# python.t - runs the tests of the Python package with pytest
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

for python in ${PYTHON:-} python3 /usr/bin/python3 ''; do
	[ -n "$python" ] && "$python" -c 'import pytest' 2>/dev/null && break
done
[ -n "$python" ] || skip_all "no python3 with pytest"
sanitized && skip_all "a sanitizer's library is not loaded into Python"

import_optimfs
export OPTIMFS_TAP=3

# conftest.py writes TAP to descriptor 3.
status=0
"$python" -m pytest -q -p no:cacheprovider --basetemp "$scratch/pytest" \
    --rootdir "$TOP_SRCDIR/tests/python" "$TOP_SRCDIR/tests/python" \
    3>&1 >"$scratch/report" 2>&1 || status=$?
[ $status = 0 ] || diag "$(tail -n 30 "$scratch/report")"
exit $status

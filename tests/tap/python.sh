# python.sh - a Python that has what a test needs; sourced after tap.sh
# SPDX-License-Identifier: Apache-2.0
#
#   find_python ARGUMENT...  sets $python to the first that takes these arguments;
#                            '' if none does: $why has what the last one printed
#   import_optimfs           for processes that import optimfs, or talk by gloo
#   torch NAME ARGUMENT...   one test: does $python run $script with them?
#                            Skipped without a Python

find_python() {
	why="no Python"
	for python in ${TORCH_PYTHON:-${PYTHON:-} python3 /usr/bin/python3} ''; do
		[ -n "$python" ] || return 1
		why=$("$python" "$@" 2>&1 >/dev/null) && return 0
		why=$(echo "$why" | tail -n 1)
	done
}

import_optimfs() {
	: "${OPTIMFS_LIBRARY:=$TOP_BUILDDIR/.libs/liboptimfs.so.0}"
	: "${GLOO_SOCKET_IFNAME:=lo}"
	PYTHONPATH=$TOP_SRCDIR/python${PYTHONPATH:+:$PYTHONPATH}
	PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
	export OPTIMFS_LIBRARY GLOO_SOCKET_IFNAME PYTHONPATH \
	    PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS
}

torch() {
	torch_name=$1
	shift
	if [ -n "$python" ]; then
		ok "$torch_name" "$python" "$script" "$@"
	else
		skip 1 "no PyTorch here"
	fi
}

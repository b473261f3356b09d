#!/bin/sh
# mpi_slow.t - a link that needs longer than timeout= for what is read, but not
# for the next bytes of it
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "${TOP_SRCDIR:-.}/tests/tap/mpi.sh"
requires python3 unshare ip tc
can_run_ranks

# 8 MiB, which take about 7 s.
cat >"$scratch/slow.sh" <<'END'
ip link set lo mtu 1500 up &&
    tc qdisc add dev lo root tbf rate 10mbit burst 64kb latency 200ms || exit 77
exec "$@"
END
slowly() { # COMMAND...: on a machine whose network is slow
	unshare -n sh "$scratch/slow.sh" "$@"
}
slowly true 2>"$scratch/err" || skip_all "no slow network here: $(head -n 1 "$scratch/err")"

python3 - "$nodes" <<'END'
import json, os, struct, sys
names = {}
for r in range(2):
    os.makedirs(f"{sys.argv[1]}/{r}")
    file, size = f"model-{r + 1:05}-of-00002.safetensors", 8 << 20
    head = {f"r{r}": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{sys.argv[1]}/{r}/{file}", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + bytes([r + 1]) * size)
    names[f"r{r}"] = file
with open(f"{sys.argv[1]}/0/model.safetensors.index.json", "w") as f:
    json.dump({"metadata": {}, "weight_map": names}, f)
END
status "cat over a slow link exits with 0" 0 slowly timeout -k 5 "$limit" \
    mpirun --oversubscribe -n 2 --mca btl tcp,self \
    --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo \
    "$OPTIMFS" cat -o timeout=5 "$nodes/%r" model/r1
is "it prints all bytes" "$(md5sum <"$scratch/out")" \
    "$(python3 -c 'import sys; sys.stdout.buffer.write(b"\2" * (8 << 20))' | md5sum)"
done_testing

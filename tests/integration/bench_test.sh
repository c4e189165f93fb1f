#!/bin/bash
# SPDX-License-Identifier: MIT
# The benchmark cannot rot: its small set runs, every scenario gives results, each of them one line
# of JSON with what a reader needs, and nothing is left behind.
set -u
BUILD=${BUILD:-build/release}
DIR=$(mktemp -d "$BUILD/bench.XXXXXX") || exit 1
trap 'rm -rf "$DIR"' EXIT
fail() {
    echo "FAIL: $*"
    exit 1
}

plot=()
command -v gnuplot >/dev/null && plot=(--plot "$DIR/all.svg")
"$BUILD/pawl-bench" --small --json "${plot[@]}" --dir "$DIR" all >"$DIR/out" 2>"$DIR/err"
code=$?
if [ $code != 0 ] && grep -q 'no O_DIRECT here' "$DIR/err"; then
    echo "skip: no O_DIRECT on the file system of $BUILD, so no bare device to compare with"
    exit 77
fi
[ $code = 0 ] || fail "exit $code: $(tail -5 "$DIR/err")"

python3 - "$DIR/out" <<'PY' || fail "results that are not as promised"
import json, os, sys

ok, seen = True, {}
def wrong(*what):
    global ok
    ok = False
    print(*what)

for number, line in enumerate(open(sys.argv[1]), 1):
    r = json.loads(line)
    for key in ("bench", "case", "unit"):
        if not isinstance(r.get(key), str):
            wrong(number, "lacks", key)
    if r["bench"] == "host":
        continue
    if (r["bench"], r["case"]) in seen:
        wrong(number, "is a second", r["bench"], r["case"])
    seen[r["bench"], r["case"]] = r
    if "value" in r:
        continue
    row = [r.get(k) for k in ("p50", "p99", "p999", "p9999", "max")]
    if None in row or sorted(row) != row or row[0] < 0 or r["samples"] < 1:
        wrong(number, "has no growing percentiles:", row)

for want in ("limits cacheline_one_way", "limits device_4k_spin", "path path_memory_64",
             "durable send_64_spin_two_cores", "durable ratio_64_spin_two_cores",
             "durable 16_producers_pinned", "throughput durable_64", "latency memory_one_way",
             "latency durable_round_trip", "latency memory_schedule_1000",
             "latency direct_one_way", "throughput direct_64_single", "throughput direct_64_2x2", "throughput memory_64",
             "throughput in_turn_memory_one_core", "txn durable_16_clients", "recover log_1024",
             "memory index_durable_64", "timers storm_lateness_durable", "timers live_in_storm_memory",
             "ledger resident_an_entry", "ledger rate_kept_durable_64", "death redelivery_durable",
             "idle broker_and_30_clients"):
    bench, case = want.split()
    if (bench, case) in seen:
        continue

    if len(os.sched_getaffinity(0)) >= 2 or ("two_cores" not in case and "cacheline" not in case and "direct" not in case):
        wrong("no result of", want)
for key in (("throughput", "durable_64"), ("throughput", "memory_64"), ("recover", "log_1024")):
    if key in seen and not seen[key]["value"] > 0:
        wrong(key, "moved nothing")
sys.exit(0 if ok else 1)
PY

left=$(find "$DIR" -mindepth 1 -maxdepth 1 -name 'pawl-bench.*')
[ -z "$left" ] || fail "left behind: $left"

"$BUILD/pawl-bench" --small --dir "$DIR" nonsense >"$DIR/out" 2>&1
[ $? = 2 ] || fail "an unknown scenario is not exit code 2"
"$BUILD/pawl-bench" --small --dir "$DIR" --pawld /bin/false --only redelivery death >"$DIR/out" 2>&1
[ $? = 1 ] || fail "a broker that does not start is not exit code 1"
grep -q 'did not start' "$DIR/out" || fail "it does not say that the broker did not start"
if [ ${#plot[@]} != 0 ]; then
    grep -q '<svg' "$DIR/all.svg" || fail "no picture"
fi
lines=$(wc -l <"$DIR/err")

PATH=/nonexistent "$BUILD/pawl-bench" --small --dir "$DIR" --plot "$DIR/x.svg" limits >"$DIR/out" 2>&1
[ $? = 2 ] || fail "a picture without gnuplot is not exit code 2"
grep -q 'PLOT_NO_GNUPLOT' "$DIR/out" || fail "it does not name what it lacks for the picture"
"$BUILD/pawl-bench" --small --dir "$DIR" --plot "$DIR/x.pdf" limits >"$DIR/out" 2>&1
[ $? = 2 ] || fail "a picture of an unknown kind is not exit code 2"
grep -q 'PLOT_SUFFIX' "$DIR/out" || fail "it does not say which pictures there are"

core=$(python3 -c 'import os; print(min(os.sched_getaffinity(0)))')
taskset -c "$core" "$BUILD/pawl-bench" --small --json --dir "$DIR" --only memory_one_way latency >"$DIR/out" 2>"$DIR/one" ||
    fail "it does not run on one core"
grep -q '"case":"memory_one_way".*"refused":"NEEDS_CORES"' "$DIR/out" || fail "conclusions are drawn from one core"
grep -q 'NEEDS_CORES' "$DIR/one" || fail "it does not name why"
grep -q '"case":"memory_one_way_spin"' "$DIR/out" && fail "three spin on one core"
left=$(find "$DIR" -mindepth 1 -maxdepth 1 -name 'pawl-bench.*')
[ -z "$left" ] || fail "left behind: $left"
echo "passed: $lines lines of results"

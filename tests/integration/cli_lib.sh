# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# What the tests of the command line share: a directory, a broker in it, expectations. Sourced, with
# BUILD naming the directory of the programs.

set -u
export LC_ALL=C
BUILD=$(realpath "${BUILD:?the directory of the programs}")
CLI_ROOT=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
export CLI_ROOT

# Nothing here may hang: the whole test runs under a time-out of its own.
if [[ -z ${CLI_WATCHED:-} ]]; then
    export CLI_WATCHED=1
    timeout -k 5 $((${CLI_SECONDS:-120} * ${PAWL_TEST_SLOW:-1})) bash "$0" "$@"
    rc=$?
    ((rc == 124)) && echo "$0: hung" >&2
    exit $rc
fi

T=$(mktemp -d "${TMPDIR:-/tmp}/pawl-cli.XXXXXX")
D=$T/d
BROKER=
FAILED=0
unset PAWL_DIR PAWL_SOCKET

cleanup() {
    [[ -n $BROKER ]] && kill -KILL "$BROKER" 2>/dev/null && wait "$BROKER" 2>/dev/null
    if [[ -n ${PAWL_TEST_KEEP:-} ]]; then echo "kept: $T"; else rm -rf "$T"; fi
}
trap cleanup EXIT

pawl() { "$BUILD/pawl" --dir "$D" "$@"; }

# Starts the broker and returns when it says that it is ready.
broker_start() {
    local before
    : >>"$T/broker.log"
    before=$(grep -c 'ready on' "$T/broker.log" 2>/dev/null || true)
    "$BUILD/pawld" --dir "$D" --memory 256M "$@" 2>>"$T/broker.log" &
    BROKER=$!
    until (($(grep -c 'ready on' "$T/broker.log" || true) > ${before:-0})); do
        kill -0 "$BROKER" 2>/dev/null || { cat "$T/broker.log" >&2; die "the broker did not start"; }
        sleep 0.01
    done
}

broker_kill() {
    kill -KILL "$BROKER"
    wait "$BROKER" 2>/dev/null
    BROKER=
}

broker_stop() {
    kill -TERM "$BROKER"
    wait "$BROKER"
    local rc=$?
    BROKER=
    ((rc == 0)) || fail "the broker stopped with $rc"
}

say() { echo "--- $*"; }
die() { echo "FAILED: $*" >&2; exit 1; }
fail() { echo "FAILED: $*" >&2; FAILED=$((FAILED + 1)); }
finish() { ((FAILED == 0)) || die "$FAILED expectations"; echo passed; exit 0; }

# expect CODE REGEX COMMAND...: its exit code, and a line of its output (both streams) that matches;
# "" matches all. The output stays in $T/out and $T/err.
expect() {
    local code=$1 regex=$2 rc
    shift 2
    "$@" >"$T/out" 2>"$T/err" </dev/null
    rc=$?
    if ((rc != code)); then
        fail "$* gave $rc and not $code: $(head -c 500 "$T/out" "$T/err" | tr '\n' ' ')"
    elif [[ -n $regex ]] && ! cat "$T/out" "$T/err" | grep -E -q -- "$regex"; then
        fail "$* did not say \"$regex\": $(head -c 500 "$T/out" "$T/err" | tr '\n' ' ')"
    fi
}

# equal WHAT ACTUAL EXPECTED
equal() { [[ $2 == "$3" ]] || fail "$1: \"$2\" and not \"$3\""; }

# member NAME FILE: of the first JSON object there, a text without its quotes
member() { sed -n -E 's/.*"'"$1"'":("([^"]*)"|(\{[^}]*\}|[^,}]*)).*/\2\3/p;q' "$2"; }
# field NAME: of the first JSON object in $T/out
field() { member "$1" "$T/out"; }
# lease Q [options]: receives one without --ack and prints its token
lease() {
    pawl receive "$@" --json >"$T/out" || { fail "nothing to receive: $*"; return; }
    field token
}
# state Q ID
state() { pawl query "$1" --id "$2" --json >"$T/out" && field state; }

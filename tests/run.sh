#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs test programs, JOBS at a time, each with a time limit, and counts.
#
#   run.sh PROGRAM...       from the top of the tree; prints a line a program as it ends and at last
#                           `N passed, N failed, N skipped`; exit 0 only if none failed and one passed
#
# Exit 0 of a program: passed. 77: skipped, the reason being its last line that begins with `skip:`.
# Anything else, the time limit too: failed; the end of its output is shown. Passed and failed count
# programs; skipped counts programs and, by name, the cases that cmocka skipped inside a passed one.
# Environment: JOBS, TEST_TIMEOUT (seconds a program, default 300), BUILD, FLAVOUR.
# Everything a program says is kept in $BUILD/log/NAME.log.
set -u
BUILD=${BUILD:-build/release}
export BUILD
LOGS=$BUILD/log
TALLY=$LOGS/tally.$$
mkdir -p "$LOGS"
: >"$TALLY"
trap 'rm -f "$TALLY"' EXIT

# A sanitizer that finds something must fail the test, in children and in pawld too.
export ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:exitcode=99:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
export TSAN_OPTIONS="halt_on_error=1:exitcode=98:second_deadlock_stack=1:${TSAN_OPTIONS:-}"
# Time limits stretch with the flavour: they are there for what hangs.
case ${FLAVOUR:-release} in
asan) slow=4 ;;
tsan) slow=10 ;;
*) slow=1 ;;
esac
export PAWL_TEST_SLOW=${PAWL_TEST_SLOW:-$slow}
export TEST_TIMEOUT=$((${TEST_TIMEOUT:-300} * PAWL_TEST_SLOW))

run_one() {
    local program=$1 name log start end code
    name=${program#"$BUILD/tests/"}
    name=${name#tests/}
    log=$LOGS/${name//\//-}.log
    start=$(date +%s%N)
    timeout -k 10 "$TEST_TIMEOUT" "$program" >"$log" 2>&1 </dev/null
    code=$?
    end=$(date +%s%N)
    local took
    took=$(printf '%d.%02d s' $(((end - start) / 1000000000)) $(((end - start) / 10000000 % 100)))
    case $code in
    0)
        # cmocka names a skipped case in a line of its own; one without a reason counts as well.
        local inner
        inner=$(sed -n 's/^\[  SKIPPED \] //p' "$log" | grep -cv 'test(s)')
        echo "passed $inner" >>"$TALLY"
        printf 'ok    %-34s %8s\n' "$name" "$took"
        [ "$inner" = 0 ] || grep '^skip:' "$log" | sed "s|^|      $name: |"
        ;;
    77)
        echo "skipped 1" >>"$TALLY"
        printf 'skip  %-34s %8s  %s\n' "$name" "$took" "$(grep '^skip:' "$log" | tail -1)"
        ;;
    *)
        echo "failed 0" >>"$TALLY"
        local why="exit $code"
        [ $code = 124 ] || [ $code = 137 ] && why="exit $code: the time limit of $TEST_TIMEOUT s"
        printf 'FAIL  %-34s %8s  %s\n%s\n' "$name" "$took" "$why" \
            "$(tail -n "${TEST_TAIL:-40}" "$log" | sed 's/^/      | /')"
        ;;
    esac
}
export -f run_one
export LOGS TALLY

[ $# -gt 0 ] && printf '%s\0' "$@" | xargs -0 -n 1 -P "${JOBS:-2}" bash -c 'run_one "$1"' _

passed=$(grep -c '^passed' "$TALLY")
failed=$(grep -c '^failed' "$TALLY")
skipped=$(awk '{ n += $1 == "failed" ? 0 : $2 } END { print n + 0 }' "$TALLY")
# A runner that died without a word is a failure as well.
lost=$(($# - passed - failed - $(grep -c '^skipped' "$TALLY")))
[ $lost = 0 ] || echo "FAIL  $lost programs ended without a result"
failed=$((failed + lost))
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]

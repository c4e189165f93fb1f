#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs every libFuzzer target of $BUILD for FUZZ_SECONDS, starting from its corpus in
# tests/fuzz/corpus/NAME; what it finds goes to $BUILD/corpus/NAME, a crashing input to
# $BUILD/crash. Ends with `N passed, N failed, N skipped`.
set -u
BUILD=${BUILD:-build/fuzz}
passed=0
failed=0
mkdir -p "$BUILD/crash"
export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"
for program in "$BUILD"/tests/fuzz/*_fuzz; do
    [ -x "$program" ] || continue
    name=$(basename "$program")
    found=$BUILD/corpus/$name
    mkdir -p "$found"
    corpus=()
    [ -d "tests/fuzz/corpus/$name" ] && corpus=("tests/fuzz/corpus/$name")
    log=$BUILD/$name.log
    if "$program" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$BUILD/crash/$name-" "$found" "${corpus[@]}" >"$log" 2>&1; then
        passed=$((passed + 1))
        echo "ok    $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") executions"
    else
        failed=$((failed + 1))
        echo "FAIL  $name"
        tail -30 "$log" | sed 's/^/      | /'
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]

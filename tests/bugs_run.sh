#!/bin/bash
# SPDX-License-Identifier: MIT
# Every seeded bug must be caught: builds each program of tests/bugs.txt with its bug and sees it fail.
#
#   bugs_run.sh [NAME...]     all, or those; prints a line each and `N caught, N missed`
#
# A line of bugs.txt:  NAME  program  one line why. The program is unit/x_test or the like, made with
# -DPAWL_BUG_NAME in $BUILD/bugs/NAME. Objects that the bug does not touch are taken from $BUILD, which
# is made first, without any bug. Caught is an exit code that is neither 0 nor 77, after a build that
# succeeded. Environment: BUILD (build/release), JOBS (1), TEST_TIMEOUT (300, seconds a program),
# BUGS (tests/bugs.txt), MAKE. Exit 0 only if there is a bug, and all are caught.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build/release}
BUGS=${BUGS:-tests/bugs.txt}
MAKE=${MAKE:-make}
export BUILD MAKE
FOLDER=$BUILD/bugs
mkdir -p "$FOLDER"

# What a bug touches: the sources that name it and, if a header does, all that include it.
touched() {
    local word="PAWL_BUG_$1" file
    grep -rlw --include='*.[ch]' "$word" libclient broker tools bench tests | while read -r file; do
        case $file in *.c) echo "$BUILD/obj/${file%.c}.o" ;; esac
        # a test may include a source, too
        grep -rlF --include='*.d' "$file" "$BUILD/obj" | sed 's/\.d$/.o/'
    done | sort -u
}

one() {
    local name=$1 program=$2 why=$3 place=$FOLDER/$1 object code
    rm -rf "$place"
    mkdir -p "$place"
    cp -al "$BUILD/obj" "$place/obj"
    # The compiler writes over a dependency file that is there: it would write over the link's other
    # name, too, and $BUILD would no longer know what to make again.
    find "$place/obj" -name '*.d' -delete
    local objects
    objects=$(touched "$name")
    if [ -z "$objects" ]; then
        echo "MISS  $name: no source knows PAWL_BUG_$name"
        return 1
    fi
    for object in $objects; do rm -f "$place/obj/${object#"$BUILD/obj/"}"; done
    if ! $MAKE -s BUILD="$place" EXTRA="-DPAWL_BUG_$name" "$place/tests/$program" \
        >"$place/build.log" 2>&1; then
        echo "MISS  $name: does not build, see $place/build.log"
        return 1
    fi
    BUILD=$place timeout -k 10 "${TEST_TIMEOUT:-300}" "$place/tests/$program" >"$place/run.log" 2>&1 \
        </dev/null
    code=$?
    case $code in
    0) echo "MISS  $name: $program passes ($why)" ;;
    77) echo "MISS  $name: $program is skipped here" ;;
    *)
        echo "ok    $name: $program fails with $code ($why)"
        rm -rf "$place/obj"
        return 0
        ;;
    esac
    return 1
}

programs=$(awk '!/^#/ && NF { print ENVIRON["BUILD"] "/tests/" $2 }' "$BUGS" | sort -u)
# shellcheck disable=SC2086
if ! $MAKE -s -j"${JOBS:-1}" $programs; then
    echo "the programs do not build without a bug"
    exit 1
fi
# Each in a folder of its own, JOBS at a time; said in the order of the list.
caught=0
missed=0
names=()
while read -r name program why; do
    case $name in '' | '#'*) continue ;; esac
    if [ $# -gt 0 ] && ! printf '%s\n' "$@" | grep -qx "$name"; then continue; fi
    while [ "$(jobs -pr | wc -l)" -ge "${JOBS:-1}" ]; do wait -n; done
    names+=("$name")
    one "$name" "$program" "$why" >"$FOLDER/$name.said" 2>&1 &
done <"$BUGS"
wait
for name in "${names[@]}"; do
    cat "$FOLDER/$name.said"
    if grep -q "^ok    $name: " "$FOLDER/$name.said"; then caught=$((caught + 1)); else missed=$((missed + 1)); fi
done
echo "$caught caught, $missed missed"
[ "$missed" = 0 ] && [ "$caught" -gt 0 ]

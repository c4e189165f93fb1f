#!/bin/bash
# SPDX-License-Identifier: MIT
# The README does not drift from the tree: its first C program is libclient/examples/hello.c to the
# byte (but for the licence line), and every path and make target that it names exists.
set -u
failed=0
say() {
    echo "readme_check: $*"
    failed=1
}
program=$(sed -n '/^```c$/,/^```$/p' README.md | sed '1d; /^```$/,$d')
diff <(echo "$program") <(sed 1d libclient/examples/hello.c) || say "the first program is not libclient/examples/hello.c"
for t in $(grep -o '`make [a-z-]*' README.md | sed 's/.*make //' | sort -u); do
    grep -q "^$t:" Makefile || say "no make target $t"
done
# what stands in back quotes and looks like a path of the tree
for p in $(grep -o '`[A-Za-z0-9_./{},*-]*`' README.md | tr -d '`' | grep -E '^(libclient|broker|tools|bench|tests|\.ci)(/|$)' | sort -u); do
    for q in $(eval "echo $p"); do
        [ -e "$q" ] || say "no $q in the tree"
    done
done
[ $failed = 0 ] && echo "readme_check: done"
exit $failed

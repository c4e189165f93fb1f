#!/bin/bash
# SPDX-License-Identifier: MIT
# Keeps the shape of the tree: who may include whom, which file alone may touch what, what the
# shared libraries show. Runs from the top of the tree. Then it breaks each rule in a tree of its
# own and must notice, so that no rule here is one that cannot fail.
set -u
BUILD=${BUILD:-build/release}

# folder: folders that its files may include from ("." is the folder with the public headers)
ARROWS='
libclient/base: base .
libclient/abi: base abi .
libclient/client: base abi client .
broker/core: base abi core .
broker/io: base abi io .
broker/log: base abi core io log .
broker/session: base abi core io log session loop .
broker/loop: base abi core io log session loop .
'
# What the core, pure as it is, may take from the system.
CORE_SYSTEM='limits.h stdalign.h stdarg.h stdbool.h stddef.h stdint.h string.h'
# Words of the shared structs of abi/layout.h; a plain access to one is a data race (hazards M7).
SHARED_WORDS='tail|comp_head|taken|wait_for|waiting|events|sub_head|bell|wake|durable_lsn|state|reason'

sources() { # tree folder...
    local tree=$1 d
    shift
    for d in "$@"; do
        [ -d "$tree/$d" ] && find "$tree/$d" -name '*.[ch]'
    done
}

# Prints one line for each breach in the tree $1.
breaches() {
    local t=$1 folder allowed f inc top
    while IFS=: read -r folder allowed; do
        [ -n "$folder" ] || continue
        for f in $(sources "$t" "$folder"); do
            for inc in $(sed -n 's/^ *# *include *"\(.*\)".*/\1/p' "$f"); do
                case $inc in
                */*) top=${inc%%/*} ;;
                pawl.h | pawld.h) top=. ;;
                *) top=${folder##*/} ;;
                esac
                [[ " $allowed " == *" $top "* ]] || echo "$f includes $inc: $folder may include $allowed"
            done
        done
    done <<<"$ARROWS"
    for f in $(sources "$t" broker/core); do
        for inc in $(sed -n 's/^ *# *include *<\(.*\)>.*/\1/p' "$f"); do
            [[ " $CORE_SYSTEM " == *" $inc "* ]] || echo "$f includes <$inc>: the core is pure"
        done
    done
    # public headers stand alone
    for f in libclient/include/pawl.h broker/include/pawld.h; do
        [ -f "$t/$f" ] && grep -n '# *include *"' "$t/$f" | sed "s|^|$f includes one of ours: |"
    done
    # Lines of code, comments taken out, that match.
    only() { # pattern, folders, the files that may (a pattern), why
        # shellcheck disable=SC2086
        sources "$t" $2 | grep -Ev "$3" | xargs -r awk -v pattern="$1" -v why="$4" '
            FNR == 1 { inside = 0 }
            {
                code = $0
                if (inside) {
                    if (!sub(/^.*\*\//, "", code)) next
                    inside = 0
                }
                gsub(/\/\*([^*]|\*[^\/])*\*\//, " ", code)
                if (sub(/\/\*.*$/, "", code)) inside = 1
                sub(/\/\/.*$/, "", code)
                if (code ~ pattern) print FILENAME ":" FNR ":" code "  <- " why
            }'
    }
    only '<stdatomic|__atomic_|__sync_|_Atomic' 'libclient broker tools' '/abi/atomic[.]h$' \
        'atomics live in abi/atomic.h'
    only 'include *<xxhash|XXH[0-9_a-zA-Z]*[(]' 'libclient broker tools bench' '/base/hash[.]c$' \
        'xxhash lives in base/hash.c'
    only '<liburing[.]h>|io_uring_(setup|queue_init|get_sqe|submit|enter|register)' 'libclient broker tools' \
        '/io/[a-z_]*uring[a-z_]*[.]c$' 'io_uring lives in broker/io'
    only '(^|[^A-Za-z0-9_])volatile[^A-Za-z0-9_]' 'libclient broker tools' '/abi/atomic[.]h$' \
        'volatile is no way to share' | grep -vE 'volatile sig_atomic_t|\*\(volatile ' # and a forced touch of a page of one's own
    # a word of a shared struct whose address is not taken for an access function
    only "(^|[^&A-Za-z0-9_>.])([A-Za-z_][A-Za-z0-9_]*(->|[.]))*(sub|comp|shm|sub_shm|comp_shm)->($SHARED_WORDS)([^A-Za-z0-9_]|\$)" \
        'libclient broker' '/abi/' 'shared words go through abi/atomic.h'
    sources "$t" libclient broker tools bench tests | xargs -r grep -nE 'TODO|FIXME|XXX|not implemented' |
        grep -v XXXXXX | sed 's|$|  <- finish it or leave it out|'
    for f in $(sources "$t" libclient broker tools bench tests); do
        head -1 "$f" | grep -q '^/\* SPDX-License-Identifier: MIT \*/$' || echo "$f: first line is not the licence"
        case ${f#"$t/"} in
        libclient/* | broker/*)
            grep -nE '# *include *"(tools|bench|tests|lib)/' "$f" | sed "s|^|$f: nothing includes these: |" ;;
        esac
    done
    # the header, the version script and the library name the same functions
    local h m so what
    for what in libclient/include/pawl.h:libclient/libpawl.map:libpawl broker/include/pawld.h:broker/libpawld.map:libpawld; do
        IFS=: read -r h m so <<<"$what"
        [ -f "$t/$h" ] || continue
        diff <(gcc -E -P "$t/$h" | grep -oE '\bpawld?_[a-z_0-9]+\(' | tr -d '(' | sort -u) \
            <(sed -n 's/^ *\(pawld\{0,1\}_[a-z_0-9]*\);/\1/p' "$t/$m" | sort -u) |
            sed -n "s|^[<>]|$h and $m differ:|p"
        so=$BUILD/$so.so
        [ "$t" = . ] && [ -f "$so" ] && diff \
            <(nm -D --defined-only "$so" | sed -n 's/^[0-9a-f]* T \([a-z_0-9]*\).*/\1/p' | sort -u) \
            <(sed -n 's/^ *\(pawld\{0,1\}_[a-z_0-9]*\);/\1/p' "$m" | sort -u) |
            sed -n "s|^[<>]|$so and $m differ:|p"
    done
}

found=$(breaches .)
failed=0
if [ -n "$found" ]; then
    echo "$found"
    failed=1
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
seed() { # file, line: the tree with only this must be refused
    rm -rf "$tmp/t"
    mkdir -p "$tmp/t/$(dirname "$1")"
    printf '/* SPDX-License-Identifier: MIT */\n%s\n' "$2" >"$tmp/t/$1"
    if [ -z "$(breaches "$tmp/t" 2>/dev/null)" ]; then
        echo "not noticed: $1: $2"
        failed=1
    fi
}
seed libclient/base/a.c '#include "abi/ring.h"'
seed libclient/abi/a.c '#include "client/lane.h"'
seed libclient/client/a.c '#include "core/core.h"'
seed broker/core/a.c '#include "log/log.h"'
seed broker/core/a.c '#include <stdio.h>'
seed broker/log/a.c '#include "session/session.h"'
seed broker/io/a.c '#include "log/log.h"'
seed broker/loop/a.c '#include "client/lane.h"'
seed broker/loop/a.c '#include "lib/harness.h"'
seed broker/core/a.c '#include <stdatomic.h>'
seed tools/a.c 'int a = __atomic_load_n(p, 0);'
seed broker/log/a.c '#include <xxhash.h>'
seed broker/loop/a.c '#include <liburing.h>'
seed libclient/client/a.c 'volatile int shared;'
seed libclient/client/a.c '    if (lane->comp->tail == 0)'
seed libclient/client/a.c '    x = sub->taken;'
seed broker/core/a.c '// TODO'
seed libclient/include/pawl.h '#include "abi/ring.h"'
seed libclient/include/pawl.h 'int pawl_unheard_of(void);'
# and this must not be
rm -rf "$tmp/t" && mkdir -p "$tmp/t/libclient/client"
printf '/* SPDX-License-Identifier: MIT */\n%s\n' '#include "abi/ring.h"' \
    '    uint64_t t = pawl_load_acq_u64(&lane->comp->tail); // volatile xxhash io_uring_setup' \
    >"$tmp/t/libclient/client/a.c"
[ -z "$(breaches "$tmp/t" | grep -v volatile)" ] || { echo 'refused what is right:'; breaches "$tmp/t"; failed=1; }
rm -rf "$tmp/t" && mkdir -p "$tmp/t/tools" && echo 'int a;' >"$tmp/t/tools/a.c"
[ -n "$(breaches "$tmp/t")" ] || { echo "not noticed: no licence line"; failed=1; }

[ $failed = 0 ] && echo "arrows: $(sources . libclient broker tools bench tests | wc -l) files keep them"
exit $failed

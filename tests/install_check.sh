#!/bin/bash
# SPDX-License-Identifier: MIT
# What `make install` puts on a machine is enough to write a program with: installs into a temporary
# prefix, builds the first program of the README through pkg-config, compiles the header as C11,
# strict C99 and C++17, runs the program against the installed broker, embeds the installed broker,
# and takes it all away again.
set -eu
BUILD=${BUILD:-build/release}
CC=${CC:-gcc}
CXX=${CXX:-g++}
step() { echo "- $*"; }
fail() {
    echo "install_check: $*" >&2
    exit 1
}
tmp=$(mktemp -d)
broker=
cleanup() {
    [ -z "$broker" ] || kill -9 "$broker" 2>/dev/null || true
    rm -rf "$tmp"
}
trap cleanup EXIT
# Under `make check` this is a make inside a make: it must not wait for the outer one's job slots.
unset MAKEFLAGS MAKELEVEL MFLAGS
mk() { make -s --no-print-directory BUILD="$BUILD" CC="$CC" CXX="$CXX" "$@"; }

[ -f "$BUILD/libpawl.so" ] || { echo "skip: no shared library in $BUILD"; exit 77; }

step "a staged install stays inside DESTDIR and names the final prefix"
mk install DESTDIR="$tmp/stage" PREFIX=/usr >/dev/null
[ "$(ls "$tmp/stage")" = usr ] || fail "files outside the prefix: $(ls "$tmp/stage")"
grep -q '^prefix=/usr$' "$tmp/stage/usr/lib/pkgconfig/pawl.pc" || fail "pawl.pc names another prefix"
grep -q '^ExecStart=/usr/bin/pawld ' "$tmp/stage/usr/lib/systemd/system/pawld.service" || fail "pawld.service"
grep -rl "$tmp" "$tmp/stage"/usr/lib/pkgconfig "$tmp/stage"/usr/lib/systemd && fail "the staging place is written in a file"
for page in $(cd "$tmp/stage/usr/share/man" 2>/dev/null && find . -type f); do
    if command -v man >/dev/null && man --version >/dev/null 2>&1 && command -v groff >/dev/null; then
        MANWIDTH=80 man -l --warnings "$tmp/stage/usr/share/man/$page" >/dev/null 2>"$tmp/man" || true
        [ ! -s "$tmp/man" ] || fail "$page: $(head -3 "$tmp/man")"
    fi
done

step "uninstall leaves no file"
mk uninstall DESTDIR="$tmp/stage" PREFIX=/usr >/dev/null
left=$(find "$tmp/stage" ! -type d | grep -v '/man/' || true)
[ -z "$left" ] || fail "left behind: $left"
[ -z "$(find "$tmp/stage" ! -type d)" ] || fail "man pages left behind"

root=$tmp/root
mk install PREFIX="$root" >/dev/null
export PKG_CONFIG_PATH=$root/lib/pkgconfig LD_LIBRARY_PATH=$root/lib
version=$(sed -n 's/^#define PAWL_VERSION "\(.*\)"/\1/p' "$root/include/pawl.h")
[ "$(pkg-config --modversion pawl)" = "$version" ] || fail "pkg-config says another version"
readelf -d "$root/lib/libpawl.so" | grep -q "soname: \[libpawl.so.${version%%.*}\]" || fail "soname"

step "the header is C11, C99, C++17 and complete in itself"
for h in pawl.h pawld.h; do
    printf '#include <%s>\n#include <%s>\nint main(void) { return 0; }\n' $h $h >"$tmp/h.c"
    cp "$tmp/h.c" "$tmp/h.cc"
    $CC -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$root/include" -c "$tmp/h.c" -o "$tmp/h.o"
    $CC -std=c99 -Wall -Wextra -Wpedantic -Werror -I"$root/include" -c "$tmp/h.c" -o "$tmp/h.o"
    if command -v "$CXX" >/dev/null; then
        $CXX -std=c++17 -Wall -Wextra -Wpedantic -Werror -I"$root/include" -c "$tmp/h.cc" -o "$tmp/h.o"
    else
        echo "skip: no C++ compiler ($CXX): $h as C++17 was not tried"
    fi
done
cat >"$tmp/init.cc" <<'C'
#include <pawl.h>
int main()
{
    pawl_options options = PAWL_OPTIONS_INIT;
    pawl_send_options send = PAWL_SEND_OPTIONS_INIT;
    pawl_receive_options receive = PAWL_RECEIVE_OPTIONS_INIT;
    return options.size && send.priority == PAWL_PRIORITY_DEFAULT && receive.size ? 0 : 1;
}
C
if command -v "$CXX" >/dev/null; then
    # Designated initializers are C++20's; as an extension both compilers take them in C++17.
    $CXX -std=c++17 -Wall -I"$root/include" "$tmp/init.cc" -o "$tmp/init" && "$tmp/init" || fail "initializers in C++"
fi

step "the first program, shared and static, against the installed broker"
# shellcheck disable=SC2046
$CC -std=c11 -Wall -Wextra -Werror libclient/examples/hello.c $(pkg-config --cflags --libs pawl) -o "$tmp/hello"
ldd "$tmp/hello" | grep -q "$root/lib/libpawl.so.${version%%.*}" || fail "not linked to the installed library"
$CC -std=c11 $(pkg-config --cflags pawl) libclient/examples/hello.c "$root/lib/libpawl.a" -lpthread -o "$tmp/hello_static"
PAWL_DIR=$tmp/nobody "$tmp/hello_static" 2>"$tmp/alone" & # waits its 10 s meanwhile
alone=$!
export PAWL_DIR=$tmp/data
"$root/bin/pawld" --dir "$PAWL_DIR" 2>"$tmp/pawld.log" &
broker=$!
# pawl_open() itself waits for a broker that is just starting.
[ "$("$tmp/hello")" = "Hello, world" ] || fail "hello: $(cat "$tmp/pawld.log")"
[ "$(LD_LIBRARY_PATH='' "$tmp/hello_static")" = "Hello, world" ] || fail "hello, static"
kill "$broker"
wait "$broker" || fail "pawld did not stop cleanly: $?"
broker=
wait "$alone" && fail "without a broker it ended well"
grep -q PAWL_E_BROKER_DOWN "$tmp/alone" || fail "without a broker it says: $(cat "$tmp/alone")"

step "the broker embedded from the installed library"
# shellcheck disable=SC2046
$CC -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror broker/examples/embed.c \
    $(pkg-config --cflags --libs pawl pawld) -lpthread -o "$tmp/embed"
[ "$("$tmp/embed" "$tmp/embedded" 2>"$tmp/embed.log")" = "Hello, inside" ] || fail "embed: $(cat "$tmp/embed.log")"

if command -v systemd-analyze >/dev/null; then
    step "systemd accepts the unit"
    said=$(systemd-analyze verify "$root/lib/systemd/system/pawld.service" 2>&1 | grep -v "man pawld(8)" || true)
    [ -z "$said" ] || fail "pawld.service: $said"
fi
echo "install_check: done"

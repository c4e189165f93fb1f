#!/bin/bash
# SPDX-License-Identifier: MIT
# The guide libclient/EXACTLY_ONCE.md is true: each of its programs compiles alone, without a warning;
# together, with a main of their own, they do what it says; all names, files and links in it exist.
# shellcheck source=tests/integration/cli_lib.sh
. "$(dirname "$0")/cli_lib.sh"
GUIDE=$CLI_ROOT/libclient/EXACTLY_ONCE.md
HEADER=$CLI_ROOT/libclient/include/pawl.h
CC=${CC:-cc}
case ${FLAVOUR:-release} in asan) sanitize=-fsanitize=address,undefined ;; tsan) sanitize=-fsanitize=thread ;; *) sanitize= ;; esac

say "each program compiles alone"
awk -v T="$T/part" '/^```c$/ { n++; on = 1; next } /^```$/ { on = 0 } on { print > (T n ".body") }' "$GUIDE"
parts=("$T"/part*.body)
((${#parts[@]} >= 9)) || die "${#parts[@]} programs found"
: >"$T/all.c"
for body in "${parts[@]}"; do
    c=${body%.body}.c
    { printf '#include <pawl.h>\n#include <stdio.h>\n#include <string.h>\n'; cat "$body"; } >"$c"
    if grep -q sqlite3 "$body" && ! printf '#include <sqlite3.h>\n' | $CC -E -x c - >/dev/null 2>&1; then
        echo "skip: no SQLite (libsqlite3-dev): pattern 5 was not compiled"
        continue
    fi
    $CC -std=c11 -Wall -Wextra -Wshadow -Wno-missing-prototypes -Werror -I"$CLI_ROOT/libclient/include" \
        -c "$c" -o "$c.o" || fail "does not compile: $(cat "$body")"
    lines=$(wc -l <"$body")
    ((lines <= 18)) || fail "a snippet has $lines lines"
    grep -q sqlite3 "$body" || cat "$body" >>"$T/all.c"
done

say "names, files and links exist"
for name in $(grep -o -E '\b(pawl|PAWL)_[A-Za-z0-9_]+' "$GUIDE" | sort -u); do
    grep -q -w "$name" "$HEADER" || grep -q -w "X(${name#PAWL_}," "$HEADER" || fail "no $name in pawl.h"
done
for file in $(grep -o '`[a-z_]*\.c`' "$GUIDE" | tr -d '`' | sort -u); do
    [[ -e $CLI_ROOT/libclient/examples/$file ]] || fail "no example $file"
done
for link in $(grep -o '](#[^)]*)' "$GUIDE" | sed 's/](#//; s/)//' | sort -u); do
    grep '^##' "$GUIDE" | sed 's/^#* //' | tr 'A-Z ' 'a-z-' | grep -q -x -- "$link" || fail "no section #$link"
done

say "they do what it says"
cat >"$T/main.c" <<'C'
#include <pawl.h>
#include <stdio.h>
#include <string.h>
#include "all.c"
static int failed;
#define WANT(what) ((what) ? (void)0 : (void)(failed = 1, printf("line %d: %s\n", __LINE__, #what)))
static int64_t number(struct pawl *lane, const char *table, const char *key)
{
    struct pawl_value v = PAWL_VALUE_INIT;
    return pawl_state_get(lane, table, key, strlen(key), NULL, 0, &v) == PAWL_OK ? v.number : -1;
}
int main(void)
{
    static const char *const queues[] = { "orders", "invoices", "alarms" };
    static const char *const tables[] = { "accounts", "totals", "stock", "requests" };
    const uint8_t first[16] = "order 1", second[16] = "order 2", third[16] = "order 3", fourth[16] = "order 4";
    struct pawl *lane;
    struct pawl_message m, none;
    struct pawl_op_id id, unused;
    char result[64];
    WANT(pawl_open(NULL, &lane) == PAWL_OK);
    for (int i = 0; i < 3; i++)
        WANT(pawl_queue_create(lane, queues[i], NULL) == PAWL_OK);
    for (int i = 0; i < 4; i++)
        WANT(pawl_table_create(lane, tables[i], NULL) == PAWL_OK);
    WANT(send_order(lane, "4711", "2 cups") == PAWL_OK);
    WANT(send_order(lane, "4711", "2 cups") == PAWL_OK_DUPLICATE);
    WANT(send_order(lane, "4711", "3 cups") == PAWL_E_KEY_MISMATCH);
    WANT(pawl_receive(lane, "orders", NULL, &m) == PAWL_OK && m.bytes == 6);
    WANT(may_still_act(lane, &m));
    WANT(handle_order(lane, &m) == PAWL_OK && number(lane, "totals", "orders") == 1);
    WANT(handle_order(lane, &m) == PAWL_E_ALREADY_ACKED && number(lane, "totals", "orders") == 1);
    WANT(!may_still_act(lane, &m));
    WANT(pawl_receive(lane, "invoices", NULL, &m) == PAWL_OK && memcmp(m.body, "2 cups", 6) == 0);
    WANT(send_order(lane, "4711", "2 cups") == PAWL_OK_DUPLICATE);
    WANT(relay_row(lane, 1, "row", 3) == PAWL_OK && relay_row(lane, 1, "row", 3) == PAWL_OK_DUPLICATE);
    WANT(relay_row(lane, 2, "row", 3) == PAWL_OK);

    pawl_op_id_new(&id);
    pawl_op_id_new(&unused);
    WANT(deposit(lane, &id, 250) == PAWL_OK && deposit(lane, &id, 250) == PAWL_OK);
    WANT(number(lane, "accounts", "main") == 250 && was_deposited(lane, &id) == 1);
    WANT(was_deposited(lane, &unused) == 0 && deposit(lane, &unused, 1) == PAWL_E_OP_FENCED);
    WANT(was_deposited(lane, &unused) == 0 && number(lane, "accounts", "main") == 250);

    WANT(pawl_send(lane, "alarms", "fire", 4, NULL, NULL) == PAWL_OK);
    WANT(next_alarm(lane, &m) == PAWL_OK && m.bytes == 4);
    WANT(next_alarm(lane, &none) == PAWL_OK_EMPTY && pawl_ack(lane, &m.token, 0) < 0);

    WANT(pawl_state_add(lane, "stock", "seat", 4, 2, 0, INT64_MAX, NULL) == PAWL_OK);
    WANT(sell_seat(lane, first, 1) == PAWL_OK && sell_seat(lane, first, 1) == PAWL_OK);
    WANT(sell_seat(lane, second, 0) == PAWL_OK && number(lane, "stock", "seat") == 1);
    WANT(sell_seat(lane, second, 1) == PAWL_E_RES_ALREADY_VOIDED);
    WANT(sell_seat(lane, third, 1) == PAWL_OK && number(lane, "stock", "seat") == 0);
    WANT(sell_seat(lane, fourth, 1) == PAWL_E_RES_SHORT);

    WANT(answer(lane, "r1", result, sizeof result) == PAWL_IDEM_DONE);
    memset(result, 0, sizeof result);
    WANT(answer(lane, "r1", result, sizeof result) == PAWL_IDEM_DONE && !strcmp(result, "receipt for r1"));
    pawl_close(lane);
    return failed;
}
C
# shellcheck disable=SC2086
$CC -std=c11 $sanitize -I"$CLI_ROOT/libclient/include" "$T/main.c" "$BUILD/libpawl.a" -lpthread -o "$T/main" ||
    die "the programs do not go together"
broker_start
PAWL_DIR=$D "$T/main" || fail "they do not do what the guide says"
broker_stop
finish

#!/bin/bash
# SPDX-License-Identifier: MIT
# The examples of "exactly once" do what they say: each runs against a real broker while it and the
# broker are killed with SIGKILL, and the end result is exact: counts, rows, balances, sums.
# shellcheck source=tests/integration/cli_lib.sh
CLI_SECONDS=${CLI_SECONDS:-240}
. "$(dirname "$0")/cli_lib.sh"
E=$BUILD/libclient/examples
export PAWL_DIR=$D

WORKERS=()
cleanup_workers() {
    ((${#WORKERS[@]})) && kill -KILL "${WORKERS[@]}" 2>/dev/null
    cleanup
}
trap cleanup_workers EXIT

# Consumers, by their place in WORKERS: start COMMAND..., then kills, then a clean stop.
start() {
    "$@" >>"$T/worker.log" 2>&1 &
    WORKERS+=($!)
}
# again I COMMAND...: kills the I-th and starts another in its place
again() {
    local i=$1
    shift
    kill -KILL "${WORKERS[i]}"
    wait "${WORKERS[i]}" 2>/dev/null
    "$@" >>"$T/worker.log" 2>&1 &
    WORKERS[i]=$!
}
stop_workers() {
    local pid
    for pid in "${WORKERS[@]}"; do
        kill -TERM "$pid"
        wait "$pid" || fail "a worker ended with $?: $(tail -3 "$T/worker.log")"
    done
    WORKERS=()
}
stat_of() { pawl stat "$1" --json >"$T/stat" && member "$2" "$T/stat"; }
# until_empty QUEUE: the consumers finish it, and none of them ends by itself
until_empty() {
    local pid
    until pawl query "$1" --state ready,scheduled,leased --limit 1 --json >"$T/left" 2>/dev/null &&
        [[ ! -s $T/left ]]; do
        for pid in "${WORKERS[@]}"; do
            kill -0 "$pid" 2>/dev/null || die "a worker ended: $(tail -3 "$T/worker.log")"
        done
        sleep 0.1
    done
    equal "dead messages of $1" "$(stat_of "$1" dead)" 0
}
# Kills a consumer ROUNDS times; every third time while the broker is dead, too, so that a call that
# was not answered is lost with its caller.
kills() {
    local rounds=$1 r
    shift
    for ((r = 0; r < rounds; r++)); do
        sleep "0.$((RANDOM % 25 + 10))"
        ((r % 3 == 2)) && broker_kill
        again $((r % ${#WORKERS[@]})) "$@"
        [[ -n $BROKER ]] || broker_start
    done
}
# Nothing that a consumer's death does may make a message dead here: it is killed for no fault of it.
queue() { expect 0 created pawl create "$1" --lease 2s --max-crashed 0 --max-failed 0 --retry 0s; }

broker_start

say "counter: one for each message"
queue words
expect 0 created pawl create counts --table
for ((i = 0; i < 12000; i++)); do echo "word-$((i * i % 7))"; done >"$T/words"
sort "$T/words" | uniq -c | awk '{ print $2, $1 }' >"$T/want"
pawl send words --lines <"$T/words" >/dev/null || fail "the words were not sent"
start "$E/counter" words counts
start "$E/counter" words counts
kills 12 "$E/counter" words counts
until_empty words
stop_workers
while read -r key _; do
    pawl state get counts "$key" --json >"$T/out" || fail "no $key"
    echo "$key $(field number)"
done <"$T/want" >"$T/got"
diff "$T/want" "$T/got" || fail "the counts are not exact"

say "long work: one result a message, with the whole sum"
queue jobs
queue sums
for n in 100 200 700 1500 5000; do
    expect 0 . pawl send jobs "$n"
    echo "$n $((n * (n + 1) / 2))"
done | sort >"$T/want"
start "$E/long_work" jobs sums
start "$E/long_work" jobs sums
kills 9 "$E/long_work" jobs sums
until_empty jobs
stop_workers
pawl receive sums --ack --count 0 | sort >"$T/got"
diff "$T/want" "$T/got" || fail "the sums are not exact"

if [[ ! -x $E/outbox ]]; then
    echo "skip: the examples with SQLite were not built (libsqlite3-dev)"
    broker_stop
    finish
fi

sql() { # DATABASE STATEMENT...: prints the rows
    python3 - "$@" <<'PY'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60)
for statement in sys.argv[2:]:
    for row in db.execute(statement):
        print(*row)
db.commit()
PY
}

# Another program holds the database for writing, until release.
hold() {
    : >"$T/held" # an earlier one's word is not this one's
    python3 -c 'import signal, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
signal.pause()' "$1" >"$T/held" &
    WORKERS+=($!)
    until grep -q held "$T/held"; do sleep 0.01; done
}
# Kills the worker that was started last.
release() {
    kill -KILL "${WORKERS[-1]}"
    wait "${WORKERS[-1]}" 2>/dev/null
    unset "WORKERS[-1]"
}
make_letters() { # DATABASE COUNT
    sql "$1" "CREATE TABLE outbox(id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL, sent INTEGER)" \
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $2)
         INSERT INTO outbox(body) SELECT 'letter ' || i FROM n"
}
same_letters() { # QUEUE COUNT
    pawl receive "$1" --ack --count 0 | sort >"$T/got"
    for ((i = 1; i <= $2; i++)); do echo "letter $i"; done | sort >"$T/want"
    diff "$T/want" "$T/got" || fail "the letters are not one a row"
}

say "outbox: a row that was sent and not marked"
queue notes
make_letters "$T/notes.db" 3
hold "$T/notes.db"
start "$E/outbox" "$T/notes.db" notes
until [[ $(stat_of notes ready) == 1 ]]; do sleep 0.02; done
release # the relay
release # the holder
expect 0 '^2 rows sent, 1 were sent before' "$E/outbox" "$T/notes.db" notes
same_letters notes 3

say "outbox: one message a row"
queue mail
make_letters "$T/mail.db" 400
start "$E/outbox" "$T/mail.db" mail
for ((r = 0; r < 6; r++)); do
    sleep "0.0$((RANDOM % 9))"
    ((r % 3 == 2)) && broker_kill
    again 0 "$E/outbox" "$T/mail.db" mail
    [[ -n $BROKER ]] || broker_start
done
wait "${WORKERS[0]}" || fail "outbox ended with $?: $(tail -3 "$T/worker.log")"
WORKERS=()
equal "rows not marked" "$(sql "$T/mail.db" "SELECT count(*) FROM outbox WHERE sent IS NULL")" 0
same_letters mail 400

say "effect: booked, and not acknowledged"
queue coins
expect 0 . pawl send coins 25
expect 0 . pawl send coins nothing
start "$E/effect" coins "$T/coins.db"
until [[ $(stat_of coins dead) == 1 && $(stat_of coins done) == 1 ]]; do sleep 0.05; done
hold "$T/coins.db"
expect 0 . pawl send coins 17
until [[ $(stat_of coins leased) == 1 ]]; do sleep 0.02; done
broker_kill # whom it will ask in vain
release
until [[ $(sql "$T/coins.db" "SELECT cents FROM account") == 42 ]]; do sleep 0.05; done
again 0 "$E/effect" coins "$T/coins.db"
broker_start
until [[ $(stat_of coins done) == 2 ]]; do sleep 0.05; done
equal "cents" "$(sql "$T/coins.db" "SELECT cents FROM account")" 42
stop_workers

say "effect: booked once"
queue money
for ((i = 1; i <= 300; i++)); do echo "$i"; done >"$T/amounts"
pawl send money --lines <"$T/amounts" >/dev/null || fail "the amounts were not sent"
start "$E/effect" money "$T/book.db"
start "$E/effect" money "$T/book.db"
kills 9 "$E/effect" money "$T/book.db"
until_empty money
stop_workers
equal "cents" "$(sql "$T/book.db" "SELECT cents FROM account")" $((300 * 301 / 2))
equal "bookings" "$(sql "$T/book.db" "SELECT count(*) FROM booked")" 300

broker_stop
finish

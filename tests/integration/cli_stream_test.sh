#!/bin/bash
# SPDX-License-Identifier: MIT
# send --lines and receive --ack: a file through a queue and back, byte for byte and in order, with
# the broker restarted in between, killed in the middle of either, a full queue, output that fails,
# signals.
# shellcheck source-path=SCRIPTDIR source=cli_lib.sh
export CLI_SECONDS=${CLI_SECONDS:-280}
. "$(dirname "$0")/cli_lib.sh"

N=${CLI_LINES:-60000}

# Empty lines, long ones, bytes that are no text, and a number in each so that none is like another.
bytes=
for ((i = 0; i < 256; i++)); do ((i == 10)) || bytes+=$(printf '\\x%02x' $i); done
{
    awk -v n="$N" 'BEGIN {
        for (x = "x"; length(x) < 100000;) x = x x
        y = substr(x, 1, 200); gsub(/x/, "y", y)
        for (i = 0; i < n; i++)
            if (i % 53 == 0) print ""
            else if (i % 1009 == 0) print i, substr(x, 1, i * 7919 % 100000)
            else print i, substr(y, 1, i * 31 % 120)
    }'
    # shellcheck disable=SC2059 # the bytes are a format
    for ((i = 0; i < 200; i++)); do printf "$i $bytes\n"; done
} >"$T/file"
(($(wc -l <"$T/file") == N + 200)) || die "the file was not made"
N=$((N + 200))

received() { # received FILE: it is the file that was sent
    cmp "$1" "$T/file" || fail "$1 differs from what was sent: $(wc -l <"$1") lines"
}
ready() { pawl stat "$1" --json | sed -E 's/.*"ready":([0-9]+),"scheduled":([0-9]+),"leased":([0-9]+).*/\1 \3 \2/'; }
lines_at_least() { until (($(wc -l <"$1") >= $2)); do kill -0 "$3" || return; sleep 0.005; done; }

broker_start
for mode in durable relaxed memory; do pawl create $mode --mode $mode >/dev/null || fail "create $mode"; done

say "there and back, all modes"
for mode in durable relaxed memory; do
    pawl send $mode --lines <"$T/file" || fail "send --lines to $mode"
    pawl receive $mode --ack --count 0 --wait 100ms >"$T/back" || fail "drain of $mode"
    received "$T/back"
    equal "left in $mode" "$(ready $mode)" "0 0 0"
done

say "with the broker restarted in between, cleanly and by kill -9"
pawl send durable --lines <"$T/file" || fail "send"
broker_stop
broker_start
broker_kill
broker_start
pawl receive durable --ack --count 0 --wait 100ms >"$T/back" || fail "drain"
received "$T/back"

# Lines without an end, fast enough that many are in flight at any moment, until $T/enough is there;
# what was sent is in $T/fed.
feed() {
    local z n
    z=$(printf 'z%.0s' {1..80})
    for ((n = 0; ; n += 200)); do
        [[ -e $T/enough ]] && break
        seq -f "%.0f $z" $n $((n + 199))
    done | tee "$T/fed"
}
# A reader that is slower than the drain while $T/enough is not there.
sip() {
    until [[ -e $T/enough ]]; do
        head -c 8192
        sleep 0.004
    done
    cat
}

say "kill -9 of the broker in the middle of the send"
rm -f "$T/enough"
feed | "$BUILD/pawl" --dir "$D" send durable --lines &
sender=$!
for _ in 1 2 3 4; do
    count=$(ready durable | cut -d ' ' -f 1)
    until (($(ready durable | cut -d ' ' -f 1) > count + 1000)); do :; done
    kill -0 $sender || fail "the sender did not live to see the kill"
    broker_kill
    broker_start
done
touch "$T/enough"
wait $sender || fail "send --lines with kills gave $?"
pawl receive durable --ack --count 0 --wait 100ms >"$T/back" || fail "drain"
cmp "$T/back" "$T/fed" || fail "after kills in the middle of the send"

say "kill -9 of the broker in the middle of the drain, once for longer than the drain waits"
pawl send durable --lines <"$T/file" || fail "send"
rm -f "$T/enough" "$T/rc"
("$BUILD/pawl" --dir "$D" receive durable --ack --count 0 --wait 300ms; echo $? >"$T/rc") | sip >"$T/back" &
receiver=$!
for away in 0 0 1 0; do
    lines=$(wc -l <"$T/back")
    until (($(wc -l <"$T/back") > lines + 500)) || [[ -e $T/rc ]]; do sleep 0.002; done
    [[ -e $T/rc ]] && fail "the drain did not live to see the kill"
    broker_kill
    sleep $away
    broker_start
done
touch "$T/enough"
wait $receiver
equal "exit code of the drain with kills" "$(cat "$T/rc")" 0
received "$T/back"
equal "left" "$(ready durable)" "0 0 0"

say "the last line needs no newline; --from skips"
printf 'a\n\nc' | pawl send durable --lines || fail "send"
equal "three lines" "$(pawl receive durable --ack --count 0 | od -c | head -2)" "$(printf 'a\n\nc\n' | od -c | head -2)"
printf 'a\nb\nc\n' | pawl send durable --lines --from 3 || fail "send --from"
equal "from the third" "$(pawl receive durable --ack --count 0)" c
pawl send durable --lines </dev/null || fail "no lines at all"

say "a full queue is waited for"
pawl create narrow --max-messages 50 >/dev/null
head -2000 "$T/file" >"$T/some"
pawl send narrow --lines <"$T/some" 2>"$T/sender.err" &
sender=$!
pawl receive narrow --ack --count 2000 --wait 10s >"$T/back" || fail "drain of the narrow queue"
wait $sender || fail "send --lines into a full queue gave $?"
cmp -s <(sort "$T/back") <(sort "$T/some") || fail "what came is not what was sent"
pawl send narrow --lines --window 1 <"$T/some" &
sender=$!
pawl receive narrow --ack --count 2000 --wait 10s >"$T/back" || fail "drain of the narrow queue"
wait $sender || fail "send --lines --window 1 into a full queue gave $?"
cmp "$T/back" "$T/some" || fail "a window of one did not keep the order"
head -60 "$T/file" | pawl send narrow --lines --wait-room 50ms >"$T/out" 2>"$T/err"
equal "exit code without room" $? 1
grep -q 'PAWL_E_FULL' "$T/err" || fail "no room said: $(cat "$T/err")"
grep -q 'go on with --from 51$' "$T/err" || fail "where to go on said: $(cat "$T/err")"
seq 10 | "$BUILD/pawl" --dir "$D" send narrow --lines 2>"$T/err" &
sender=$!
until grep -q 'PAWL_E_FULL.*max_messages.*waiting for room' "$T/err"; do sleep 0.05; done
kill -INT $sender # it has read all and waits without an end
wait $sender
equal "exit code of one that is stopped while it waits" $? 1
grep -q 'go on with --from 1$' "$T/err" || fail "where to go on said: $(cat "$T/err")"
pawl purge narrow >/dev/null

say "a refused line is named"
pawl create tiny --max-message 4 >/dev/null
printf 'abcd\nabcde\nabc\n' | pawl send tiny --lines 2>"$T/err"
equal "exit code" $? 1
grep -q 'PAWL_E_TOO_BIG' "$T/err" || fail "said: $(cat "$T/err")"
grep -q 'that was line 2' "$T/err" || fail "said: $(cat "$T/err")"
expect 1 'PAWL_E_NOT_FOUND' bash -c 'echo x | "$1" --dir "$2" send nowhere --lines' bash "$BUILD/pawl" "$D"

say "output that fails is not acknowledged"
pawl send durable hello >/dev/null
pawl receive durable --ack >/dev/full 2>"$T/err"
equal "exit code of a full disk" $? 1
grep -q 'No space left' "$T/err" || fail "said: $(cat "$T/err")"
equal "given back" "$(ready durable)" "1 0 0"
equal "it comes again" "$(pawl receive durable --ack)" hello
pawl send durable --lines <"$T/file" || fail "send"
(pawl receive durable --ack --count 0 --wait 1s; echo $? >"$T/rc") 2>"$T/err" | head -100 >"$T/back"
equal "exit code of a closed pipe" "$(cat "$T/rc")" 1
head -100 "$T/file" | cmp - "$T/back" || fail "the first 100 lines"
pawl receive durable --ack --count 0 --wait 100ms >"$T/rest" || fail "the rest"
# what the pipe had taken is acknowledged and may have gone with it; nothing else is missing
size=$(stat -c %s "$T/rest")
((size > $(stat -c %s "$T/file") * 9 / 10)) || fail "only $size bytes are left behind the closed pipe"
tail -c "$size" "$T/file" | cmp - "$T/rest" || fail "a line was lost behind the closed pipe"

say "a signal ends it in order"
pawl send durable --lines <"$T/file" || fail "send"
"$BUILD/pawl" --dir "$D" receive durable --ack --follow >"$T/back" &
receiver=$!
lines_at_least "$T/back" 1000 $receiver
kill -INT $receiver
wait $receiver || fail "receive gave $? after SIGINT"
pawl receive durable --ack --count 0 --wait 100ms >>"$T/back" || fail "the rest"
received "$T/back"
mkfifo "$T/fifo"
"$BUILD/pawl" --dir "$D" send durable --lines <"$T/fifo" 2>"$T/err" &
sender=$!
exec 9>"$T/fifo"
printf 'one\ntwo\nthr' >&9
until [[ $(ready durable) == "2 0 0" ]]; do sleep 0.01; done # a quiet pipe holds nothing back
kill -INT $sender
wait $sender
equal "exit code of a stopped send" $? 1
exec 9>&-
grep -q 'go on with --from 3$' "$T/err" || fail "said: $(cat "$T/err")"
pawl purge durable >/dev/null

say "leases by hand, JSON, headers"
pawl send durable 'grüße' --header a=1 --header b= --header a=2 --priority 6 >/dev/null
token=$(lease durable)
equal "body" "$(field body)" 'grüße'
equal "headers" "$(field headers)" '{"a":["1","2"],"b":""}'
equal "priority" "$(field priority)" 6
equal "lease" "$(field lease)" detached
equal "ack from stdin" "$(echo "$token" | pawl ack -)" "acked $token"
printf '\xff\x00\n' | pawl send durable >/dev/null
equal "peek" "$(pawl peek durable | od -An -tx1)" " ff 00 0a 0a"
lease durable >/dev/null
equal "bytes that are no text" "$(field body_base64)" /wAK
expect 0 '"body":"once"' bash -c '"$1" --dir "$2" send durable once >/dev/null && "$1" --dir "$2" receive durable --at-most-once --json' bash "$BUILD/pawl" "$D"
equal "at most once leaves nothing" "$(ready durable)" "0 1 0"

broker_stop
finish

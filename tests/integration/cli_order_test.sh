#!/bin/bash
# SPDX-License-Identifier: MIT
# Ordering keys, ordered queues, progress of deferred messages and results of acknowledged ones on
# the command line.
# shellcheck source=tests/integration/cli_lib.sh
. "$(dirname "$0")/cli_lib.sh"

token() { pawl --json receive "$@" | sed -n 's/.*"token":"\([0-9a-f]*\)".*/\1/p'; }

broker_start

say "one message of a key at a time"
expect 0 'created' pawl create orders
for body in 1 2; do
    expect 0 . pawl send orders "$body" --ordering-key k
done
first=$(token orders)
[[ -n $first ]] || fail "nothing received"
expect 3 '' pawl receive orders
broker_kill
broker_start
expect 3 '' pawl receive orders
expect 0 . pawl ack "$first"
expect 0 '^2$' pawl receive orders --ack

say "an ordered queue"
expect 0 'created' pawl create row --ordered
expect 0 'there already' pawl create row --ordered
expect 1 'PAWL_E_EXISTS' pawl create row
expect 0 'ordered +yes' pawl stat row
expect 0 '"ordered":true' pawl --json stat row
expect 0 'altered' pawl alter row --lease 5s
expect 0 . pawl send row 1
expect 0 . pawl send row 2
first=$(token row)
expect 3 '' pawl receive row
expect 0 . pawl ack "$first"
expect 0 '^2$' pawl receive row --ack

say "progress of a deferred message"
expect 0 'created' pawl create work
expect 0 . pawl send work job
first=$(token work)
expect 0 'deferred' pawl defer "$first" --delay 0s --progress 'page 7'
broker_kill
broker_start
expect 0 '"progress":"page 7"' pawl --json receive work --ack
expect 3 '' pawl receive work

say "the result of an acknowledged message"
id=$(pawl send work job)
first=$(token work)
expect 0 . pawl ack "$first" --result 'seven pages'
expect 1 'process [0-9]+ acknowledged it at 20' pawl ack "$first"
broker_kill
broker_start
expect 0 'result +seven pages' pawl explain "$id"
expect 0 'done .* by process [0-9]+' pawl explain "$id"
expect 0 '"result":"seven pages"' pawl --json query work --id "$id"
expect 2 'goes with tokens' pawl ack --queue work --id "$id" --result x

broker_stop
finish

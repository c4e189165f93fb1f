/* SPDX-License-Identifier: MIT */
/* The table of commands: names are a contract, texts are what `pawl COMMAND --help` says. */
#include "cli.h"

#define QUEUES_TEXT                                                              \
    "A name has 1 to 127 of A-Z a-z 0-9 . _ : / -. Memory, disk and --max-log\n" \
    "of the broker bound all queues together; a full queue refuses sends and\n"  \
    "never drops what it has taken."

#define TOKEN_TEXT                                                             \
    "A token comes from receive --json; it works in any process of the same\n" \
    "user. Several may be given; - reads them from stdin, one a line."

#define RESERVE_TEXT                                                                 \
    "A number of a table is a stock: what is reserved is set aside, then posted\n"   \
    "(gone) or voided (back). ID is the caller's: up to 32 hexadecimal digits, as\n" \
    "uuidgen prints them. One that is over is remembered for a day."

const struct cli_command cli_commands[] = {
    { "create", "Q [options]", "make a queue, or a table of state", QUEUES_TEXT,
      "pawl create orders\npawl create stock --table\npawl create mail --lease 1m --retry "
      "1s,10s,1m --max-failed 5",
      cli_create, "Queues" },
    { "alter", "Q [options]", "change options of a queue",
      "What is not given stays as it is. The mode cannot be changed.",
      "pawl alter orders --max-messages 100000 --ttl 7d", cli_alter, NULL },
    { "pause", "Q", "stop deliveries; sends and acks go on", NULL, "pawl pause orders", cli_pause,
      NULL },
    { "resume", "Q", "let a paused queue go on", NULL, "pawl resume orders", cli_resume, NULL },
    { "purge", "Q", "empty a queue", "All its messages become PURGED, leased and dead ones too.",
      "pawl purge orders", cli_purge, NULL },
    { "drop", "Q", "remove a queue with all that is in it",
      "A queue of that name made later is another one: old tokens do not work there.",
      "pawl drop orders", cli_drop, NULL },
    { "send", "Q [TEXT | --file F | --lines] [options]", "put messages into a queue",
      "Prints the id of the message. On a durable queue it is on disk then.\n"
      "Without TEXT the body is what stdin holds.\n\n"
      "--lines: each line is one message, without its newline; an empty line is an\n"
      "empty message, and a last line need not have a newline. Many are in flight;\n"
      "exit code 0 says that all are in the queue. It goes on over a restart of the\n"
      "broker (up to --timeout, here 1m) and waits for room. On a failure it says\n"
      "which line to go on with: --from N. On a terminal it shows how far it is.\n"
      "With --key-from each line has a dedup key: sent again, it is there once.",
      "pawl send orders 'order 4711: 2 cups'\n"
      "pawl send mail --file letter.txt --at 2027-01-31T08:00:00Z --priority 6\n"
      "pawl send orders --lines < orders.txt\n"
      "pawl send orders --lines --key-from 1 --separator , < orders.csv",
      cli_send, "Messages" },
    { "receive", "Q [options]", "take messages from a queue",
      "Prints the body and a newline; --json prints id, token, key, counters, times\n"
      "and the body (body_base64 where it is not UTF-8), one object a line.\n\n"
      "Without --ack the message is leased: settle it with its token (--json) by\n"
      "ack, nack, release, reject, defer; else it comes again when the lease is\n"
      "over. With --ack each message is acknowledged when stdout has taken it; what\n"
      "could not be written is given back. Exit code 3: nothing came in time.",
      "pawl receive orders --ack --wait 30s\n"
      "pawl receive orders --ack --count 0 --wait 1s > orders.txt\n"
      "pawl receive mail --json --lease 5m | jq -r .token",
      cli_receive, NULL },
    { "ack", "TOKEN... | --queue Q --id ID... | --key K...", "done: a message will not come again",
      TOKEN_TEXT,
      "pawl ack $TOKEN\npawl receive orders --json | jq -r .token | pawl ack -\n"
      "pawl ack --queue orders --id 1099511627777",
      cli_ack, NULL },
    { "nack", "TOKEN... [options]", "failed: counted, and again later, or DEAD at the limit",
      TOKEN_TEXT, "pawl nack $TOKEN --reason 'no stock' --delay 5m", cli_nack, NULL },
    { "release", "TOKEN...", "give back untouched: not counted as failed", TOKEN_TEXT,
      "pawl release $TOKEN", cli_release, NULL },
    { "renew", "TOKEN... [--lease D]", "more time: the lease ends D from now", TOKEN_TEXT,
      "pawl renew $TOKEN --lease 10m", cli_renew, NULL },
    { "reject", "TOKEN... [--reason TEXT]", "DEAD at once: it will never work", TOKEN_TEXT,
      "pawl reject $TOKEN --reason 'no such customer'", cli_reject, NULL },
    { "defer", "TOKEN... --delay D", "the same message again after D, not counted as failed",
      TOKEN_TEXT "\nThe old token still acks with --if-unclaimed until another has the message.",
      "pawl defer $TOKEN --delay 2h", cli_defer, NULL },
    { "cancel", "Q --id ID... | --key K...", "take back messages that nobody has got yet",
      "Ready and scheduled messages only. Ids come from send and query.",
      "pawl cancel mail --id 1099511627777\npawl cancel mail --key order-4711", cli_cancel, NULL },
    { "state get", "T KEY", "the value of a key of a table",
      "The value and a newline; --json adds the version. Exit code 3: no such key.",
      "pawl state get stock cups\npawl --json state get config limits | jq .version", cli_state_get,
      "Tables" },
    { "state put", "T KEY [VALUE | --file F] [options]", "set a key",
      "Make the table first: pawl create T --table. On disk when it returns. Without\n"
      "VALUE it is what stdin holds, at most 64 KiB.",
      "pawl create config --table\npawl state put config limits 'a=1 b=2'\n"
      "pawl state put config limits 'a=2' --if-version 1099511627779",
      cli_state_put, NULL },
    { "state add", "T KEY N [options]", "add to a number of a table, and print it",
      "A key that is not there is 0. A negative N stands behind --.",
      "pawl state add stock cups 100\npawl state add stock cups --min 0 -- -3", cli_state_add,
      NULL },
    { "state delete", "T KEY [options]", "take a key out of a table",
      "A version that it had is never given again.", "pawl state delete config limits",
      cli_state_delete, NULL },
    { "state list", "T [options]", "keys of a table, in order", NULL,
      "pawl state list stock --prefix warehouse-3/", cli_state_list, NULL },
    { "state reserve", "T KEY ID AMOUNT [--ttl D]", "set a part of a number aside; prints the rest",
      RESERVE_TEXT, "id=$(uuidgen)\npawl state reserve stock cups $id 2 --ttl 15m",
      cli_state_reserve, NULL },
    { "state post", "T ID [AMOUNT]", "use what was reserved, all or a part", RESERVE_TEXT,
      "pawl state post stock $id\npawl state post stock $id 1", cli_state_post, NULL },
    { "state void", "T ID", "give back what was reserved", RESERVE_TEXT,
      "pawl state void stock $id", cli_state_void, NULL },
    { "state reservation", "T ID", "what became of a reservation", RESERVE_TEXT,
      "pawl state reservation stock $id", cli_state_reservation, NULL },
    { "list", "[options]", "all queues, tables and what is in them",
      "One line a queue: messages by state, bytes of those that live, age of the\n"
      "oldest that is ready (elsewhere than on a terminal: milliseconds), receives\n"
      "that wait. READY of a table is the number of its keys.",
      "pawl list\npawl list --json | jq -r 'select(.dead > 0) | .queue'", cli_list, "Looking" },
    { "stat", "Q...", "all about a queue: counts, totals, options", NULL,
      "pawl stat orders\npawl stat orders --json | jq .options", cli_stat, NULL },
    { "query", "Q [--id ID... | --state S,S] [options]", "messages of a queue and their states",
      "In the order of their ids, which is that of their sends. Those that are done\n"
      "are listed as long as they are remembered (create --retain).",
      "pawl query orders --state leased,dead\npawl query orders --id 1099511627777 --json",
      cli_query, NULL },
    { "peek", "Q [--id ID...] [options]", "bodies of messages, without taking them",
      "In the order of their ids. Exit code 3: there is none.",
      "pawl peek orders\npawl peek orders --state dead --count 0 --json", cli_peek, NULL },
    { "dead", "Q [--limit N]", "dead messages, why and after how many tries", NULL,
      "pawl dead orders", cli_dead, NULL },
    { "restore", "Q [--id ID...] [--rate N]", "dead messages back into the queue",
      "At their old places, attempts (TRIES, FAILED, CRASHED) counted from zero; the\n"
      "last reason that a receiver gave is kept.",
      "pawl restore orders --id 1099511627777\npawl restore orders --rate 50", cli_restore, NULL },
    { "explain", "ID [--queue Q | --session]", "what became of one message, in words",
      "ID is that of the message, or a token of it; with --session that of a session,\n"
      "as shown of the holder of a lease: whose it is, and what it holds.",
      "pawl explain 1099511627777\npawl explain --session 8796093022209", cli_explain, NULL },
    { "resolve", "OP [--fence]", "what became of an operation, by the id that its caller gave it",
      "OP has the form of a UUID. Prints NEVER_SEEN, COMMITTED, ABORTED or FORGOTTEN\n"
      "and what is known; exit code 0 in all four cases. --fence: if it was never\n"
      "seen it is refused from now on, so NEVER_SEEN stays true.",
      "pawl resolve 0192f0c1-8a2b-7c3d-9e4f-5a6b7c8d9e0f --fence", cli_resolve, NULL },
    { "metrics", "", "counters of the broker, a name and a number a line", NULL,
      "pawl metrics | grep log", cli_metrics, NULL },
    { "top", "[options]", "live view: queues and their rates; q quits",
      "Where stdout is no terminal: one frame, after one interval.",
      "pawl top\npawl top --interval 5s --count 12 > day.txt", cli_top, NULL },
    { "log list", "[DIR]", "segments of the log",
      "DIR is the broker's directory or its log/; without it, the one in force. Reads\n"
      "only; the broker may be running.",
      "pawl log list /var/lib/pawl", cli_log_list, "Log and machine" },
    { "log verify", "[DIR]", "read all of the log and say what is wrong with it",
      "Exit code 0: whole, or only a torn tail that the next start would cut.\n"
      "Reads only; the broker may be running.",
      "pawl log verify /var/lib/pawl", cli_log_verify, NULL },
    { "log dump", "[DIR] [options]", "the records of the log",
      "One line a record, in order; secrets and the random part of tokens are left\n"
      "out. It goes on behind damage, and its exit code is 1 then. Reads only; the\n"
      "broker may be running.",
      "pawl log dump /var/lib/pawl | tail\npawl log dump --id 1099511627777 --bodies", cli_log_dump,
      NULL },
    { "log repair", "DIR --accept-loss", "cut a damaged log where the damage begins",
      "What stands behind the damage is lost; nothing is changed without\n"
      "--accept-loss. Copy the directory first. No broker may run on it.",
      "pawl log verify DIR\ncp -a DIR DIR.before\npawl log repair DIR --accept-loss",
      cli_log_repair, NULL },
    { "doctor", "[DIR]", "is this machine and this directory fit for a broker?",
      "Each line is ok, warn or bad, with what to do. Exit code 1: something is bad.\n"
      "Writes nothing but one nameless file in DIR, to see how fast a flush is.",
      "pawl doctor\npawl doctor --json | jq 'select(.level != \"ok\")'", cli_doctor, NULL },
    { "help", "[COMMAND]", "this overview, or the help of a command", NULL, "pawl help send",
      cli_help, "This program" },
    { "version", "", "version of this program", NULL, "pawl version", cli_version, NULL },
    { 0 },
};

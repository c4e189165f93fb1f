/* SPDX-License-Identifier: MIT */
/* An effect outside pawl, made once: each message is an amount in cents, to be booked in SQLite.
 * The booking and the message's id, as a primary key, are one SQLite transaction; the
 * acknowledgement comes after it. Whoever dies in between, the message comes again, its id is
 * found, and nothing is booked twice.    effect QUEUE DATABASE */
#include <pawl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

static volatile sig_atomic_t stop;
static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

/* Ids of messages are never given twice by a broker's directory. Where one may be wiped or restored
 * from a copy, or where the producer could send twice, take an id of his out of the body. Rows
 * older than any message that can still come may be deleted. */
static const char schema[] = "CREATE TABLE IF NOT EXISTS booked(message INTEGER PRIMARY KEY);"
                             "CREATE TABLE IF NOT EXISTS account(name TEXT PRIMARY KEY, cents);"
                             "INSERT OR IGNORE INTO account VALUES ('main', 0)";

static int run(sqlite3 *db, const char *sql, sqlite3_int64 value)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &s, NULL);
    if (rc == SQLITE_OK && sqlite3_bind_parameter_count(s))
        rc = sqlite3_bind_int64(s, 1, value);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    (void)sqlite3_finalize(s);
    return rc == SQLITE_DONE;
}

/* True when the amount is booked, now or before. Also right when two do it at once, because a lease
 * ended while its holder was slow: the second one waits for the first and then finds the id. */
static int book(sqlite3 *db, uint64_t message, long long cents)
{
    int done = run(db, "BEGIN IMMEDIATE", 0) &&
               run(db, "INSERT OR IGNORE INTO booked VALUES (?)", (sqlite3_int64)message);
    if (done && sqlite3_changes(db) == 1)
        done = run(db, "UPDATE account SET cents = cents + ?", cents);
    done = done && run(db, "COMMIT", 0);
    if (!done) {
        fprintf(stderr, "sqlite: %s\n", sqlite3_errmsg(db));
        (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    }
    return done;
}

/* 0: the program cannot go on. */
static int handle(struct pawl *lane, sqlite3 *db, const struct pawl_message *m)
{
    char text[24], *end;
    (void)snprintf(text, sizeof text, "%.*s", (int)m->bytes, (const char *)m->body);
    long long cents = strtoll(text, &end, 10);
    int rc;
    if (end == text || *end)
        rc = pawl_reject(lane, &m->token, "not an amount");
    else if (book(db, m->id, cents))
        rc = pawl_ack(lane, &m->token, 0);
    else
        rc = pawl_nack(lane, &m->token, PAWL_DELAY_LADDER, "not booked");
    if (rc >= 0)
        return 1;
    fprintf(stderr, "%llu: %s: %s\n", (unsigned long long)m->id, pawl_strname(rc),
            pawl_last_text(lane));
    /* Too late or unknown: it is booked, and if it is not acknowledged it comes again, is found in
     * the table, and is acknowledged then. */
    return rc == PAWL_E_LEASE_LOST || rc == PAWL_E_ALREADY_ACKED ||
           pawl_advice(rc) == PAWL_ADVICE_RESOLVE;
}

static int consume(struct pawl *lane, sqlite3 *db, const char *queue)
{
    struct pawl_receive_options receive = PAWL_RECEIVE_OPTIONS_INIT;
    receive.wait_ns = PAWL_NS_S; /* then look whether we should stop */
    int rc = PAWL_OK;
    while (rc == PAWL_OK && !stop) {
        struct pawl_message m;
        rc = pawl_receive(lane, queue, &receive, &m);
        if (rc == PAWL_OK && !handle(lane, db, &m))
            return 0;
        if (rc == PAWL_OK_EMPTY || pawl_advice(rc) == PAWL_ADVICE_RESOLVE)
            rc = PAWL_OK;
    }
    if (rc != PAWL_OK)
        fprintf(stderr, "%s: %s\n", pawl_strname(rc), pawl_last_text(lane));
    return rc == PAWL_OK;
}

int main(int argc, char **argv)
{
    struct pawl *lane = NULL;
    sqlite3 *db = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: effect QUEUE DATABASE\n");
        return 2;
    }
    (void)signal(SIGTERM, on_signal);
    (void)signal(SIGINT, on_signal);
    int well = 0;
    if (sqlite3_open(argv[2], &db) != SQLITE_OK || sqlite3_busy_timeout(db, 60000) != SQLITE_OK ||
        sqlite3_exec(db, schema, NULL, NULL, NULL) != SQLITE_OK)
        fprintf(stderr, "sqlite: %s\n", sqlite3_errmsg(db));
    else if (pawl_open(NULL, &lane) != PAWL_OK)
        fprintf(stderr, "%s\n", pawl_last_text(NULL));
    else
        well = consume(lane, db, argv[1]);
    pawl_close(lane);
    (void)sqlite3_close(db);
    return !well;
}

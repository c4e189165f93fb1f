/* SPDX-License-Identifier: MIT */
/* The outbox: a program that keeps its data in SQLite writes, in the transaction that changes them,
 * a row into the table `outbox`. This relay sends each row once, whenever it or the broker dies:
 * the row's number is the dedup key, so a row that was sent and not yet marked is answered
 * OK_DUPLICATE when it is sent again. Ends when nothing is left.    outbox DATABASE QUEUE */
#include <pawl.h>
#include <sqlite3.h>
#include <stdio.h>

static const char schema[] = "CREATE TABLE IF NOT EXISTS outbox("
                             " id INTEGER PRIMARY KEY AUTOINCREMENT," /* never given twice */
                             " body BLOB NOT NULL, sent INTEGER)";

struct relay {
    sqlite3 *db;
    sqlite3_stmt *next, *mark;
    struct pawl *lane;
    const char *queue;
    unsigned sent, repeated;
};

/* The key makes it safe to send again whatever the last answer was, and by whatever process: also
 * after an unknown outcome. It is remembered for the queue's dedup_window, so a relay must not stay
 * away for longer than that between its send and its mark; and where more than one database feeds
 * the queue, it must name the database, too. */
static int send_row(struct relay *r, sqlite3_int64 id, const void *body, int bytes)
{
    struct pawl_send_options options = PAWL_SEND_OPTIONS_INIT;
    char key[32];
    options.key = key;
    options.key_bytes = (uint32_t)snprintf(key, sizeof key, "outbox-%lld", (long long)id);
    options.wait_room_ns = 5 * PAWL_NS_S; /* if the queue is full */
    int rc;
    do {
        rc = pawl_send(r->lane, r->queue, body, (size_t)bytes, &options, NULL);
    } while (pawl_advice(rc) == PAWL_ADVICE_RESOLVE); /* unknown: the same again, under the key */
    r->sent += rc == PAWL_OK;
    r->repeated += rc == PAWL_OK_DUPLICATE;
    if (rc < 0)
        fprintf(stderr, "row %lld: %s: %s\n", (long long)id, pawl_strname(rc),
                pawl_last_text(r->lane));
    return rc;
}

/* 1: a row was sent and marked, 0: there is none, -1: failed. */
static int relay_one(struct relay *r)
{
    int step = sqlite3_step(r->next), rc = -1;
    sqlite3_int64 id = sqlite3_column_int64(r->next, 0);
    if (step == SQLITE_ROW)
        rc = send_row(r, id, sqlite3_column_blob(r->next, 1), sqlite3_column_bytes(r->next, 1));
    (void)sqlite3_reset(r->next);
    if (step == SQLITE_DONE)
        return 0;
    if (step == SQLITE_ROW && rc < 0)
        return -1;
    /* A death here is the reason for the key. */
    if (step == SQLITE_ROW && sqlite3_bind_int64(r->mark, 1, id) == SQLITE_OK)
        step = sqlite3_step(r->mark);
    (void)sqlite3_reset(r->mark);
    if (step == SQLITE_DONE)
        return 1;
    fprintf(stderr, "sqlite: %s\n", sqlite3_errmsg(r->db));
    return -1;
}

static int database(struct relay *r, const char *path)
{
    if (sqlite3_open(path, &r->db) == SQLITE_OK &&
        sqlite3_busy_timeout(r->db, 60000) == SQLITE_OK &&
        sqlite3_exec(r->db, schema, NULL, NULL, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(r->db, "SELECT id, body FROM outbox WHERE sent IS NULL ORDER BY id", -1,
                           &r->next, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(r->db, "UPDATE outbox SET sent = strftime('%s', 'now') WHERE id = ?", -1,
                           &r->mark, NULL) == SQLITE_OK)
        return 1;
    fprintf(stderr, "sqlite: %s\n", sqlite3_errmsg(r->db));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: outbox DATABASE QUEUE\n");
        return 2;
    }
    struct relay r = { .queue = argv[2] };
    int more = -1;
    if (database(&r, argv[1])) {
        int rc = pawl_open(NULL, &r.lane);
        if (rc != PAWL_OK)
            fprintf(stderr, "%s: %s\n", pawl_strname(rc), pawl_last_text(NULL));
        for (more = rc == PAWL_OK ? 1 : -1; more == 1;)
            more = relay_one(&r);
        printf("%u rows sent, %u were sent before\n", r.sent, r.repeated);
    }
    pawl_close(r.lane);
    (void)sqlite3_finalize(r.next);
    (void)sqlite3_finalize(r.mark);
    (void)sqlite3_close(r.db);
    return more != 0;
}

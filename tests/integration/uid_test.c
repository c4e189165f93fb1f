/* SPDX-License-Identifier: MIT */
/* Who may do what: the socket's mode, a queue's rights by uid and gid, tokens of another uid, the
 * administration of one's own (design.md's security; hazards P1, P5-P7). Needs root to become
 * others. */
#include <errno.h>
#include <grp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/raw.h"

enum { ALICE = 20001, BOB = 20002, CLIENTS_GROUP = 20100 };

static struct harness_broker broker;

/* What a worker does in another's name, and what it leaves for the test. */
struct job {
    uint32_t uid, gid;
    int (*body)(struct job *j);
    struct pawl_token token;
    uint64_t id;
    uint32_t step, go;
};

static int as_another(void *arg)
{
    struct job *j = arg;
    gid_t groups[] = { CLIENTS_GROUP };
    if (setgroups(1, groups) != 0 || setresgid(j->gid, j->gid, j->gid) != 0 ||
        setresuid(j->uid, j->uid, j->uid) != 0)
        harness_fail("setresuid: %s", strerror(errno));
    return j->body(j);
}

static void run(struct job *j)
{
    int rc = harness_wait(harness_fork(as_another, j));
    if (rc != 0)
        harness_fail("uid %u ended with %d", j->uid, rc);
}

static int connects(struct job *j)
{
    (void)j;
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "any", PAWL_DURABLE, 0); /* who may connect may create */
    pawl_close(lane);
    return 0;
}

static int is_kept_out(struct job *j)
{
    (void)j;
    struct pawl_options o = PAWL_OPTIONS_INIT;
    struct pawl *lane = NULL;
    o.dir = broker.dir;
    o.flags = PAWL_OPEN_NO_WAIT;
    int rc = pawl_open(&o, &lane);
    harness_check(lane == NULL);
    harness_check_rc(rc, PAWL_E_PERM);
    return 0;
}

/* Alice makes a queue of her own and one for the group, and leaves a leased message. */
static int alice_begins(struct job *j)
{
    struct pawl *lane = harness_open(&broker);
    struct pawl_queue_options q = PAWL_QUEUE_OPTIONS_INIT;
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    q.perm = 0700;
    harness_check_rc(pawl_queue_create(lane, "alice.own", &q), PAWL_OK);
    q.perm = 0720; /* her group may send, nothing else */
    q.group = CLIENTS_GROUP;
    harness_check_rc(pawl_queue_create(lane, "alice.inbox", &q), PAWL_OK);
    q.perm = 0777;
    harness_check_rc(pawl_queue_create(lane, "alice.all", &q), PAWL_OK);
    (void)harness_send(lane, "alice.all", "hers");
    j->id = harness_send(lane, "alice.own", "secret");
    o.lease_kind = PAWL_LEASE_DETACHED;
    o.lease_ns = PAWL_LEASE_NS_MAX;
    harness_check_rc(pawl_receive(lane, "alice.all", &o, &m), PAWL_OK);
    j->token = m.token;
    struct pawl_queue_stat s = harness_stat(lane, "alice.own");
    harness_check(s.options.owner == ALICE && s.options.perm == 0700);
    pawl_close(lane);
    return 0;
}

/* Whether a queue is there is nobody's business who has no right on it at all. */
static void no_right(int rc)
{
    if (rc != PAWL_E_PERM && rc != PAWL_E_NOT_FOUND)
        harness_fail("without a right: %s", pawl_strname(rc));
}

static int bob_tries(struct job *j)
{
    struct pawl *lane = harness_open(&broker);
    struct pawl_queue_stat s = { .size = sizeof s };
    struct pawl_record r = { .size = sizeof r };
    struct pawl_message m;
    char body[16];
    size_t have;
    /* Nothing of a queue without any right. */
    no_right(pawl_send(lane, "alice.own", "x", 1, NULL, NULL));
    no_right(pawl_receive(lane, "alice.own", NULL, &m));
    no_right(pawl_queue_stat(lane, "alice.own", &s));
    no_right(pawl_query_one(lane, "alice.own", j->id, &r));
    no_right(pawl_query_scan(lane, "alice.own", 0, ~0u, &r, 1));
    no_right(pawl_peek(lane, "alice.own", j->id, body, sizeof body, &have));
    no_right(pawl_cancel(lane, "alice.own", j->id));
    /* Sending only. */
    harness_check_rc(pawl_send(lane, "alice.inbox", "hello", 5, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_receive(lane, "alice.inbox", NULL, &m), PAWL_E_PERM);
    harness_check_rc(pawl_queue_stat(lane, "alice.inbox", &s), PAWL_E_PERM);
    /* Her token is worth nothing in his hands, though he may receive from that queue. */
    harness_check_rc(pawl_ack(lane, &j->token, 0), PAWL_E_NOT_FOUND);
    harness_check_rc(pawl_release(lane, &j->token), PAWL_E_NOT_FOUND);
    harness_check_rc(pawl_nack(lane, &j->token, 0, ""), PAWL_E_NOT_FOUND);
    harness_check_rc(pawl_reject(lane, &j->token, ""), PAWL_E_NOT_FOUND);
    harness_check_rc(pawl_renew(lane, &j->token, PAWL_NS_S), PAWL_E_NOT_FOUND);
    harness_check_rc(pawl_defer(lane, &j->token, 0, NULL), PAWL_E_NOT_FOUND);
    /* All rights on messages are no right to administer. */
    struct pawl_queue_options q = PAWL_QUEUE_OPTIONS_INIT;
    q.perm = 0777;
    const char *hers[] = { "alice.own", "alice.inbox", "alice.all" };
    for (unsigned i = 0; i < 3; i++) {
        no_right(pawl_queue_drop(lane, hers[i]));
        no_right(pawl_queue_alter(lane, hers[i], &q));
        no_right(pawl_queue_pause(lane, hers[i]));
        no_right(pawl_queue_resume(lane, hers[i]));
        no_right(pawl_queue_purge(lane, hers[i], NULL));
    }
    /* A list shows what he may query. */
    struct pawl_queue_stat all[16];
    for (unsigned i = 0; i < 16; i++)
        all[i].size = sizeof all[i];
    int n = pawl_queue_list(lane, NULL, all, 16);
    harness_check(n > 0);
    for (int i = 0; i < n; i++)
        harness_check(strcmp(all[i].name, "alice.own") != 0 &&
                      strcmp(all[i].name, "alice.inbox") != 0);
    pawl_close(lane);
    return 0;
}

static int alice_ends(struct job *j)
{
    struct pawl *lane = harness_open(&broker);
    struct pawl_token t = harness_receive(lane, "alice.inbox", 0, "hello");
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    harness_check_rc(pawl_ack(lane, &j->token, 0), PAWL_OK); /* from a new session of hers */
    harness_check_rc(pawl_queue_drop(lane, "alice.all"), PAWL_OK);
    pawl_close(lane);
    return 0;
}

int main(void)
{
    harness_begin("uid_test", 60);
    if (geteuid() != 0)
        harness_skip("only root can act as other users");
    struct job *j = harness_shared(sizeof *j);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);

    harness_step("kept out");
    /* The directory above is 0700 as mkdtemp makes it; what is tested is pawld's own. */
    char top[400];
    snprintf(top, sizeof top, "%s/..", broker.dir);
    harness_check(chmod(top, 0755) == 0);
    *j = (struct job){ .uid = ALICE, .gid = ALICE, .body = is_kept_out };
    run(j);

    harness_step("the group is let in");
    /* As an administrator does: the directory and the socket get the clients' group. */
    char socket[400];
    snprintf(socket, sizeof socket, "%s/pawl.sock", broker.dir);
    harness_check(chown(broker.dir, 0, CLIENTS_GROUP) == 0 && chown(socket, 0, CLIENTS_GROUP) == 0);
    j->body = connects; /* by a second group of hers */
    run(j);
    j->gid =
        CLIENTS_GROUP; /* what the kernel reports of a peer, and rights go by, is the first one */
    j->body = alice_begins;
    run(j);
    harness_step("another member");
    j->uid = BOB;
    j->body = bob_tries;
    run(j);
    harness_step("and after a restart");
    harness_broker_restart(&broker);
    harness_check(chown(socket, 0, CLIENTS_GROUP) == 0);
    run(j);
    harness_step("the owner again");
    j->uid = ALICE;
    j->body = alice_ends;
    run(j);
    /* The broker's own uid administers all. */
    struct pawl *lane = harness_open(&broker);
    harness_check_rc(pawl_queue_drop(lane, "alice.own"), PAWL_OK);
    harness_check_rc(pawl_queue_drop(lane, "alice.inbox"), PAWL_OK);
    pawl_close(lane);
    harness_broker_stop(&broker);
    return 0;
}

/* SPDX-License-Identifier: MIT */
#include "lib/load.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS_MAX 32
#define NUMBERS_MAX (1u << 20)
#define PENDING_MAX 16
#define WINDOW 64

enum { SENT_NOT, SENT_INTENT, SENT_OK };

struct entry {
    uint64_t id;      /* of the message that carried this number */
    uint8_t sent;     /* SENT_... */
    uint8_t acked;    /* acks that said OK */
    uint8_t unknown;  /* acks whose outcome was not noted */
    uint8_t received; /* deliveries, up to 255 */
};

/* One worker process; in shared memory, so that it outlives its lives. */
struct worker {
    bool producer;
    uint32_t index;
    pid_t pid;
    uint64_t made; /* producer: how many numbers it has used */
    uint32_t pending_count;
    uint32_t pending[PENDING_MAX]; /* consumer: numbers whose settling is under way */
};

struct shared {
    uint32_t stop_producers, stop_consumers;
    uint64_t sent, acked, unknown, lost_leases, full, redelivered;
    struct worker workers[WORKERS_MAX];
    struct entry entries[NUMBERS_MAX];
};

struct load {
    struct harness_broker *b;
    const struct load_options *o;
    struct shared *s;
    struct pawl_prng prng;
    struct load_report *report;
    struct pawl *lane; /* of the driver */
};

struct body {
    uint64_t number, bytes, check;
};

static void add(uint64_t *counter, uint64_t n) { __atomic_fetch_add(counter, n, __ATOMIC_RELAXED); }
static uint64_t see(const uint64_t *counter) { return __atomic_load_n(counter, __ATOMIC_RELAXED); }

/* --- bodies ---------------------------------------------------------------------------------- */

/* Everything in a body follows from its number. */
static size_t body_make(uint64_t number, uint32_t body_max, uint8_t *out)
{
    struct pawl_prng p = { .state = number };
    size_t bytes = sizeof(struct body) + pawl_prng_below(&p, body_max - sizeof(struct body) + 1);
    struct body b = { .number = number, .bytes = bytes, .check = pawl_prng_next(&p) };
    memcpy(out, &b, sizeof b);
    for (size_t i = sizeof b; i < bytes; i++)
        out[i] = (uint8_t)(b.check >> (i % 8 * 8)) ^ (uint8_t)i;
    return bytes;
}

static uint64_t body_number(const struct load *l, const struct pawl_message *m, uint8_t *scratch)
{
    struct body b;
    if (m->bytes < sizeof b)
        harness_fail("a body of %zu bytes that nobody sent", m->bytes);
    memcpy(&b, m->body, sizeof b);
    if (b.number >= NUMBERS_MAX)
        harness_fail("a message with number %llu", (unsigned long long)b.number);
    size_t bytes = body_make(b.number, l->o->body_max, scratch);
    if (bytes != m->bytes || memcmp(scratch, m->body, bytes) != 0)
        harness_fail("the body of message %llu is not what was sent", (unsigned long long)b.number);
    return b.number;
}

/* --- producer -------------------------------------------------------------------------------- */

struct flight {
    pawl_ticket ticket;
    uint64_t number;
    bool open;
};

static void producer_submit(const struct load *l, struct pawl *lane, struct flight *f,
                            uint8_t *scratch)
{
    size_t bytes = body_make(f->number, l->o->body_max, scratch);
    l->s->entries[f->number].sent = SENT_INTENT;
    int rc = pawl_submit_send(lane, l->o->queue, scratch, bytes, NULL, &f->ticket);
    if (rc != PAWL_OK)
        harness_fail("submit: %s: %s", pawl_strname(rc), pawl_last_text(lane));
    f->open = true;
}

static void producer_answer(const struct load *l, struct pawl *lane, struct flight *flights,
                            const struct pawl_answer *a, uint8_t *scratch)
{
    struct flight *f = NULL;
    for (unsigned i = 0; i < WINDOW; i++)
        if (flights[i].open && flights[i].ticket == a->ticket)
            f = &flights[i];
    if (f == NULL)
        harness_fail("an answer to ticket %llu, which is not open", (unsigned long long)a->ticket);
    if (a->result == PAWL_E_FULL) {
        /* Not applied, leaves no trace: the same number goes again, a moment later. */
        add(&l->s->full, 1);
        harness_pause();
        producer_submit(l, lane, f, scratch);
        return;
    }
    f->open = false;
    if (a->result == PAWL_E_OUTCOME_UNKNOWN) {
        add(&l->s->unknown, 1); /* the intent stays */
        return;
    }
    if (a->result != PAWL_OK)
        harness_fail("send: %s", pawl_strname(a->result));
    l->s->entries[f->number].sent = SENT_OK;
    add(&l->s->sent, 1);
}

static int producer(const struct load *l, struct worker *w)
{
    struct flight flights[WINDOW] = { 0 };
    uint8_t *scratch = malloc(l->o->body_max);
    struct pawl *lane = harness_open(l->b);
    unsigned open = 0;
    if (scratch == NULL)
        harness_fail("no memory");
    while (open > 0 || !__atomic_load_n(&l->s->stop_producers, __ATOMIC_RELAXED)) {
        for (unsigned i = 0; i < WINDOW && !l->s->stop_producers; i++) {
            if (flights[i].open)
                continue;
            /* Used up before it is sent: a later life never sends it again. */
            uint64_t k = __atomic_fetch_add(&w->made, 1, __ATOMIC_RELAXED);
            flights[i].number = k * l->o->producers + w->index;
            if (flights[i].number >= NUMBERS_MAX)
                harness_fail("more than %u messages in one run", NUMBERS_MAX);
            producer_submit(l, lane, &flights[i], scratch);
            open++;
        }
        struct pawl_answer answers[WINDOW];
        if (open == 0)
            continue;
        int n = pawl_poll(lane, answers, WINDOW, 1, 60 * PAWL_NS_S);
        if (n < 0)
            harness_fail("poll: %s: %s", pawl_strname(n), pawl_last_text(lane));
        for (int i = 0; i < n; i++)
            producer_answer(l, lane, flights, &answers[i], scratch);
        open = 0;
        for (unsigned i = 0; i < WINDOW; i++)
            open += flights[i].open;
    }
    pawl_close(lane);
    free(scratch);
    return 0;
}

/* --- consumer -------------------------------------------------------------------------------- */

/* Notes a delivery; a second message with the same number is a doubled send. */
static void consumer_note(const struct load *l, const struct pawl_message *m, uint64_t number)
{
    struct entry *e = &l->s->entries[number];
    uint64_t none = 0;
    if (__atomic_load_n(&e->sent, __ATOMIC_ACQUIRE) == SENT_NOT)
        harness_fail("message %llu was never sent", (unsigned long long)number);
    if (!__atomic_compare_exchange_n(&e->id, &none, m->id, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST) &&
        none != m->id)
        harness_fail("number %llu came as message %llx and as %llx", (unsigned long long)number,
                     (unsigned long long)none, (unsigned long long)m->id);
    if (__atomic_load_n(&e->received, __ATOMIC_RELAXED) > 0)
        add(&l->s->redelivered, 1);
    if (e->received < 255)
        __atomic_fetch_add(&e->received, 1, __ATOMIC_RELAXED);
}

static void consumer_outcome(const struct load *l, uint64_t number, int rc)
{
    switch (rc) {
    case PAWL_OK:
    case PAWL_OK_DUPLICATE: /* this very call, submitted again by the library */
        __atomic_fetch_add(&l->s->entries[number].acked, 1, __ATOMIC_SEQ_CST);
        add(&l->s->acked, 1);
        break;
    case PAWL_E_LEASE_LOST:
    case PAWL_E_ALREADY_ACKED:
        add(&l->s->lost_leases, 1);
        break;
    case PAWL_E_OUTCOME_UNKNOWN:
        add(&l->s->unknown, 1);
        __atomic_fetch_add(&l->s->entries[number].unknown, 1, __ATOMIC_SEQ_CST);
        break;
    default:
        harness_fail("ack of %llu: %s", (unsigned long long)number, pawl_strname(rc));
    }
}

/* Now and then one of the row is not acknowledged but given back in one of the other ways. */
static bool consumer_other(struct pawl *lane, const struct pawl_message *m, struct pawl_prng *prng)
{
    int rc;
    switch (pawl_prng_below(prng, 64)) {
    case 0:
        rc = pawl_nack(lane, &m->token, 0, "the test wants it again");
        break;
    case 1:
        rc = pawl_release(lane, &m->token);
        break;
    case 2:
        rc = pawl_defer(lane, &m->token, pawl_prng_below(prng, 20) * PAWL_NS_MS, NULL);
        break;
    default:
        return false;
    }
    if (rc != PAWL_OK && rc != PAWL_OK_DUPLICATE && rc != PAWL_E_LEASE_LOST &&
        rc != PAWL_E_ALREADY_ACKED && rc != PAWL_E_OUTCOME_UNKNOWN)
        harness_fail("giving back: %s", pawl_strname(rc));
    return true;
}

static int consumer(const struct load *l, struct worker *w)
{
    struct pawl_prng prng = harness_prng(l->o->number * 1000 + w->index + (uint64_t)getpid());
    struct pawl_message m[PENDING_MAX];
    struct pawl_token tokens[PENDING_MAX];
    int32_t results[PENDING_MAX];
    uint32_t numbers[PENDING_MAX];
    uint8_t *scratch = malloc(l->o->body_max);
    struct pawl *lane = harness_open(l->b);
    struct pawl_receive_options options = PAWL_RECEIVE_OPTIONS_INIT;
    options.wait_ns = 100 * PAWL_NS_MS;
    if (scratch == NULL)
        harness_fail("no memory");
    while (!__atomic_load_n(&l->s->stop_consumers, __ATOMIC_RELAXED)) {
        uint32_t count = 0, n = 0;
        int rc = pawl_receive_batch(lane, &l->o->queue, 1, &options, m, PENDING_MAX, &count);
        if (rc == PAWL_OK_EMPTY)
            continue;
        if (rc != PAWL_OK || count == 0 || count > PENDING_MAX)
            harness_fail("receive: %s: %s", pawl_strname(rc), pawl_last_text(lane));
        /* Pointers into the ring stay good until the next receive: read all before settling. */
        for (uint32_t i = 0; i < count; i++) {
            uint64_t number = body_number(l, &m[i], scratch);
            consumer_note(l, &m[i], number);
            if (consumer_other(lane, &m[i], &prng))
                continue;
            tokens[n] = m[i].token;
            numbers[n++] = (uint32_t)number;
        }
        if (n == 0)
            continue;
        memcpy(w->pending, numbers, n * sizeof numbers[0]);
        __atomic_store_n(&w->pending_count, n, __ATOMIC_RELEASE);
        rc = pawl_ack_batch(lane, tokens, n, 0, results);
        (void)rc; /* the row below says it for each */
        for (uint32_t i = 0; i < n; i++)
            consumer_outcome(l, numbers[i], results[i]);
        __atomic_store_n(&w->pending_count, 0, __ATOMIC_RELEASE);
    }
    pawl_close(lane);
    free(scratch);
    return 0;
}

/* --- driver ---------------------------------------------------------------------------------- */

struct start {
    const struct load *l;
    struct worker *w;
};

static int worker_body(void *arg)
{
    const struct start *start = arg;
    harness_step("%s %u", start->w->producer ? "producer" : "consumer", start->w->index);
    return start->w->producer ? producer(start->l, start->w) : consumer(start->l, start->w);
}

static void worker_start(const struct load *l, struct worker *w)
{
    struct start start = { .l = l, .w = w };
    w->pid = harness_fork(worker_body, &start);
}

/* What a dead consumer was settling has an outcome that nobody noted. */
static void worker_bury(struct worker *w, struct shared *s)
{
    for (uint32_t i = 0; i < w->pending_count; i++)
        if (s->entries[w->pending[i]].unknown < 255)
            s->entries[w->pending[i]].unknown++;
    w->pending_count = 0;
}

static struct worker *any_worker(struct load *l)
{
    return &l->s->workers[pawl_prng_below(&l->prng, l->o->producers + l->o->consumers)];
}

static void fault(struct load *l, uint32_t left[3])
{
    uint64_t pick = pawl_prng_below(&l->prng, (uint64_t)left[0] + left[1] + left[2]);
    if (pick < left[0]) {
        left[0]--;
        l->report->broker_kills++;
        harness_step("broker kill %llu", (unsigned long long)l->report->broker_kills);
        harness_broker_kill(l->b);
        if (pawl_prng_below(&l->prng, 4) == 0)
            harness_pause(); /* clients run into a broker that is not there */
        harness_broker_start(l->b);
    } else if (pick < (uint64_t)left[0] + left[1]) {
        struct worker *w = any_worker(l);
        left[1]--;
        l->report->client_kills++;
        harness_step("client kill %llu", (unsigned long long)l->report->client_kills);
        harness_signal(w->pid, SIGKILL);
        int rc = harness_wait(w->pid);
        if (rc != 128 + SIGKILL)
            harness_fail("worker had ended by itself: %d", rc);
        worker_bury(w, l->s);
        worker_start(l, w);
    } else {
        struct worker *w = any_worker(l);
        left[2]--;
        l->report->freezes++;
        harness_step("freeze %llu", (unsigned long long)l->report->freezes);
        harness_freeze(w->pid);
        uint64_t until = harness_clock() + l->o->lease_ns + l->o->lease_ns / 4;
        harness_until(harness_clock() > until);
        harness_signal(w->pid, SIGCONT);
    }
}

/* A worker that ended by itself has failed and said why. */
static void workers_alive(const struct load *l)
{
    for (uint32_t i = 0; i < l->o->producers + l->o->consumers; i++) {
        pid_t pid = l->s->workers[i].pid;
        siginfo_t info = { 0 };
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0) {
            harness_broker_show(l->b);
            harness_fail("a worker ended with %d", harness_wait(pid));
        }
    }
}

static void run_faults(struct load *l)
{
    uint32_t left[3] = { l->o->broker_kills, l->o->client_kills, l->o->freezes };
    do {
        uint64_t target = see(&l->s->acked) + 1 + pawl_prng_below(&l->prng, l->o->step);
        while (see(&l->s->acked) < target) {
            workers_alive(l);
            harness_pause();
        }
        if (left[0] + left[1] + left[2] > 0)
            fault(l, left);
    } while (left[0] + left[1] + left[2] > 0 || see(&l->s->acked) < l->o->step);
}

static void wind_down(struct load *l)
{
    harness_step("producers end");
    __atomic_store_n(&l->s->stop_producers, 1, __ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < l->o->producers; i++)
        if (harness_wait(l->s->workers[i].pid) != 0)
            harness_fail("a producer failed");
    harness_step("the queue runs empty");
    struct pawl_queue_stat stat;
    do {
        harness_pause();
        stat = harness_stat(l->lane, l->o->queue);
    } while (stat.ready + stat.scheduled + stat.leased > 0);
    __atomic_store_n(&l->s->stop_consumers, 1, __ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < l->o->consumers; i++)
        if (harness_wait(l->s->workers[l->o->producers + i].pid) != 0)
            harness_fail("a consumer failed");
    if (stat.dead != 0)
        harness_fail("%llu messages are dead", (unsigned long long)stat.dead);
}

static void judge_entry(struct load *l, uint64_t number)
{
    struct entry *e = &l->s->entries[number];
    unsigned long long n = number;
    if (e->acked > 1)
        harness_fail("message %llu was acknowledged %u times", n, e->acked);
    if (e->sent == SENT_INTENT)
        l->report->sends_open++;
    if (e->acked == 1 || (e->sent != SENT_OK && e->id == 0))
        return;
    if (e->received == 0)
        harness_fail("message %llu was sent and is lost", n);
    if (e->unknown == 0)
        harness_fail("message %llu was delivered, acknowledged by nobody, and is gone", n);
    struct pawl_record record = { .size = sizeof record };
    int rc = pawl_query_one(l->lane, l->o->queue, e->id, &record);
    if (rc != PAWL_OK || record.state != PAWL_STATE_ACKED)
        harness_fail("message %llu: its ack was cut off, and the broker says %s, %s", n,
                     pawl_strname(rc), pawl_state_name(record.state));
    l->report->acks_open++;
}

void load_run(struct harness_broker *b, const struct load_options *options,
              struct load_report *report)
{
    struct load l = { .b = b, .o = options, .report = report };
    memset(report, 0, sizeof *report);
    l.s = harness_shared(sizeof *l.s);
    l.prng = harness_prng(options->number);
    harness_check(options->producers >= 1 && options->consumers >= 1);
    harness_check(options->producers + options->consumers <= WORKERS_MAX);
    harness_check(options->body_max >= sizeof(struct body));
    l.lane = harness_open(b);
    struct pawl_queue_options q = PAWL_QUEUE_OPTIONS_INIT;
    q.mode = options->mode;
    q.lease_ns = options->lease_ns;
    q.max_failed = q.max_crashed = 0; /* nothing may end up dead here */
    q.retry_count = 1;                /* back at once */
    q.max_messages = options->backlog_max != 0 ? options->backlog_max : 2000;
    harness_check_rc(pawl_queue_create(l.lane, options->queue, &q), PAWL_OK);

    uint64_t begin = harness_clock();
    for (uint32_t i = 0; i < options->producers + options->consumers; i++) {
        struct worker *w = &l.s->workers[i];
        w->producer = i < options->producers;
        w->index = w->producer ? i : i - options->producers;
        worker_start(&l, w);
    }
    run_faults(&l);
    wind_down(&l);
    harness_step("the verdict");
    for (uint64_t n = 0; n < NUMBERS_MAX; n++)
        judge_entry(&l, n);
    report->ns = harness_clock() - begin;
    report->sent = l.s->sent;
    report->acked = l.s->acked;
    report->unknown = l.s->unknown;
    report->lost_leases = l.s->lost_leases;
    report->full = l.s->full;
    report->redelivered = l.s->redelivered;
    harness_check(report->sent > 0 && report->acked > 0);
    pawl_close(l.lane);
    munmap(l.s, sizeof *l.s);
}

void load_print(const char *title, const struct load_report *r)
{
    printf(
        "%s: %llu sends said OK, %llu were cut off by a kill; %llu messages acknowledged once each "
        "by an OK, %llu by one that was cut off; in %.1f s with %llu kills of the broker, %llu of "
        "clients, %llu freezes; %llu delivered again, %llu leases lost, %llu refused full, %llu "
        "outcomes "
        "unknown\n",
        title, (unsigned long long)r->sent, (unsigned long long)r->sends_open,
        (unsigned long long)r->acked, (unsigned long long)r->acks_open, (double)r->ns / 1e9,
        (unsigned long long)r->broker_kills, (unsigned long long)r->client_kills,
        (unsigned long long)r->freezes, (unsigned long long)r->redelivered,
        (unsigned long long)r->lost_leases, (unsigned long long)r->full,
        (unsigned long long)r->unknown);
}

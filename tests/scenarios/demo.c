/* SPDX-License-Identifier: MIT */
/* `make demo`: every line of a real text goes through a durable queue from a producer to three
 * consumer processes, while the broker and the consumers are killed with SIGKILL again and again.
 * At the end what was acknowledged must be what went in, line for line.
 *
 * Who says what was acknowledged. Not the broker: each consumer keeps a file of its own (a new one
 * for each of its lives, so that a torn last record ends the file). Before it acknowledges a row of
 * messages it writes them down as INTENT with their bodies; after the call it writes for each OK or
 * NOT (lease lost: somebody else has it). A file that was written outlives a SIGKILL.
 *
 * What remains is the row that a consumer was acknowledging when it was killed: INTENT without OK
 * or NOT. Nobody outside the broker can know whether that ack was decided before the kill, and a
 * program that must know asks, as it would in real life: the id is there, pawl_query_one() tells.
 * If the broker says ACKED and no other consumer has an OK for the same id, it was this ack. If
 * another one has an OK, this ack did not take effect, for of all acks of one message one does
 * (G3): two OKs for one id are the failure that this program looks for. So a line counts as
 * acknowledged by exactly one OK, or by none and one or more cut-off intents and the broker's
 * ACKED; the number of the latter is printed, and cannot be more than kills times the size of a
 * row. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"

#define TEXTS "/usr/share/common-licenses"
#define QUEUE "demo"
#define KILLS_EACH 6

enum { CONSUMERS = 3, ROW = 16, BATCH = 32, LIVES_MAX = KILLS_EACH + 1 };

struct line {
    const char *text;
    size_t bytes;
};

static struct {
    const char *what; /* the input, for people */
    char *text;
    size_t bytes;
    struct line *lines;
    uint64_t count;
} input;

struct shared {
    uint64_t sent, acked;
    uint32_t stop;
};
static struct shared *shared;
static struct harness_broker broker;
static const char *work; /* directory of the files */

/* --- input ----------------------------------------------------------------------------------- */

static void input_append(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        harness_fail("%s: %s", path, strerror(errno));
    input.text = realloc(input.text, input.bytes + (size_t)st.st_size + 1);
    if (input.text == NULL)
        harness_fail("%s: no memory", path);
    ssize_t n;
    size_t end = input.bytes + (size_t)st.st_size;
    while (input.bytes < end && (n = read(fd, input.text + input.bytes, end - input.bytes)) > 0)
        input.bytes += (size_t)n;
    close(fd);
    /* Where files follow one another each ends its last line. */
    if (input.bytes > 0 && input.text[input.bytes - 1] != '\n')
        input.text[input.bytes++] = '\n';
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void input_default(void)
{
    char *names[256];
    unsigned count = 0;
    DIR *d = opendir(TEXTS);
    if (d == NULL)
        harness_fail("no %s here: say make demo FILE=some-text", TEXTS);
    for (struct dirent *e; (e = readdir(d)) != NULL && count < 256;) {
        struct stat st;
        char *path = harness_text("%s/%s", TEXTS, e->d_name);
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) /* links to them as well: more lines */
            names[count++] = path;
    }
    closedir(d);
    qsort(names, count, sizeof names[0], by_name);
    for (unsigned i = 0; i < count; i++)
        input_append(names[i]);
    input.what = harness_text("the %u licence texts in %s", count, TEXTS);
}

static void input_split(void)
{
    for (size_t i = 0; i < input.bytes; i++)
        input.count += input.text[i] == '\n';
    if (input.count == 0)
        harness_fail("%s has no lines", input.what);
    input.lines = calloc(input.count, sizeof *input.lines);
    if (input.lines == NULL)
        harness_fail("no memory");
    const char *p = input.text;
    for (uint64_t i = 0; i < input.count; i++) {
        const char *end = memchr(p, '\n', input.bytes - (size_t)(p - input.text));
        input.lines[i] = (struct line){ .text = p, .bytes = (size_t)(end - p) };
        if (input.lines[i].bytes > PAWL_MESSAGE_BYTES_MAX)
            harness_fail("line %llu is longer than a message", (unsigned long long)i + 1);
        p = end + 1;
    }
}

/* --- files ----------------------------------------------------------------------------------- */

enum { RECORD_SENT = 's', RECORD_INTENT = 'i', RECORD_OK = 'o', RECORD_NOT = 'n' };

struct record {
    uint32_t type, bytes; /* bytes of the body that follows */
    uint64_t id;
    uint64_t line; /* of RECORD_SENT */
};

/* A row of records that goes to a file with one write. */
struct row {
    int fd;
    uint8_t *data;
    size_t bytes, room;
};

static struct row row_open(const char *path)
{
    struct row r = { .fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_APPEND | O_CLOEXEC, 0600) };
    if (r.fd < 0)
        harness_fail("%s: %s", path, strerror(errno));
    return r;
}

static void row_add(struct row *r, uint32_t type, uint64_t id, uint64_t line, const void *body,
                    size_t bytes)
{
    struct record head = { .type = type, .bytes = (uint32_t)bytes, .id = id, .line = line };
    size_t need = r->bytes + sizeof head + bytes;
    if (need > r->room) {
        r->room = 2 * need;
        r->data = realloc(r->data, r->room);
        if (r->data == NULL)
            harness_fail("no memory");
    }
    memcpy(r->data + r->bytes, &head, sizeof head);
    if (bytes > 0)
        memcpy(r->data + r->bytes + sizeof head, body, bytes);
    r->bytes = need;
}

static void row_write(struct row *r)
{
    for (size_t at = 0; at < r->bytes;) {
        ssize_t n = write(r->fd, r->data + at, r->bytes - at);
        if (n < 0)
            harness_fail("write: %s", strerror(errno));
        at += (size_t)n;
    }
    r->bytes = 0;
}

/* --- producer -------------------------------------------------------------------------------- */

static int produce(void *arg)
{
    struct row file = row_open(harness_text("%s/sent", work));
    struct pawl *lane = harness_open(&broker);
    (void)arg;
    harness_step("producer");
    uint64_t row[BATCH];
    uint64_t next = 0;
    for (uint32_t n = 0; next < input.count || n > 0;) {
        struct pawl_item items[BATCH];
        struct pawl_sent sent[BATCH];
        while (n < BATCH && next < input.count)
            row[n++] = next++;
        for (uint32_t i = 0; i < n; i++)
            items[i] = (struct pawl_item){ .body = input.lines[row[i]].text,
                                           .bytes = input.lines[row[i]].bytes };
        int rc = pawl_send_batch(lane, QUEUE, items, n, sent);
        uint32_t left = 0;
        for (uint32_t i = 0; i < n; i++) {
            if (sent[i].result == PAWL_OK) {
                row_add(&file, RECORD_SENT, sent[i].id, row[i], NULL, 0);
                __atomic_fetch_add(&shared->sent, 1, __ATOMIC_RELAXED);
            } else if (sent[i].result == PAWL_E_FULL) {
                row[left++] = row[i]; /* certainly not taken: again, when there is room */
            } else {
                harness_fail("send: %s, %s", pawl_strname(sent[i].result), pawl_strname(rc));
            }
        }
        row_write(&file);
        n = left;
        if (left > 0)
            harness_pause();
    }
    pawl_close(lane);
    close(file.fd);
    return 0;
}

/* --- consumers ------------------------------------------------------------------------------- */

struct consumer {
    unsigned index, lives;
    pid_t pid;
};

static int consume(void *arg)
{
    const struct consumer *c = arg;
    struct row file = row_open(harness_text("%s/consumer-%u-%u", work, c->index, c->lives));
    struct pawl *lane = harness_open(&broker);
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    const char *queue = QUEUE;
    o.wait_ns = 100 * PAWL_NS_MS;
    harness_step("consumer %u", c->index);
    while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
        struct pawl_message m[ROW];
        struct pawl_token tokens[ROW];
        int32_t results[ROW];
        uint32_t n = 0;
        int rc = pawl_receive_batch(lane, &queue, 1, &o, m, ROW, &n);
        if (rc == PAWL_OK_EMPTY)
            continue;
        if (rc != PAWL_OK)
            harness_fail("receive: %s: %s", pawl_strname(rc), pawl_last_text(lane));
        for (uint32_t i = 0; i < n; i++) {
            row_add(&file, RECORD_INTENT, m[i].id, 0, m[i].body, m[i].bytes);
            tokens[i] = m[i].token;
        }
        row_write(&file);
        rc = pawl_ack_batch(lane, tokens, n, 0, results);
        for (uint32_t i = 0; i < n; i++) {
            bool ok = results[i] == PAWL_OK || results[i] == PAWL_OK_DUPLICATE;
            if (!ok && results[i] != PAWL_E_LEASE_LOST && results[i] != PAWL_E_ALREADY_ACKED)
                harness_fail("ack: %s, %s", pawl_strname(results[i]), pawl_strname(rc));
            row_add(&file, ok ? RECORD_OK : RECORD_NOT, tokens[i].message, 0, NULL, 0);
            if (ok)
                __atomic_fetch_add(&shared->acked, 1, __ATOMIC_RELAXED);
        }
        row_write(&file);
    }
    pawl_close(lane);
    close(file.fd);
    return 0;
}

static void consumer_start(struct consumer *c)
{
    c->lives++;
    c->pid = harness_fork(consume, c);
}

/* --- driver ---------------------------------------------------------------------------------- */

struct run {
    struct pawl *lane;
    struct consumer consumers[CONSUMERS];
    pid_t producer;
    bool sending;
    unsigned broker_kills, consumer_kills;
    uint64_t begin, end;
};

static void show_progress(bool last)
{
    static uint64_t shown;
    uint64_t now = harness_clock();
    if (!isatty(1) || (!last && now - shown < 100 * PAWL_NS_MS))
        return;
    shown = now;
    printf("\r  %8llu sent  %8llu acknowledged  of %llu %s",
           (unsigned long long)__atomic_load_n(&shared->sent, __ATOMIC_RELAXED),
           (unsigned long long)__atomic_load_n(&shared->acked, __ATOMIC_RELAXED),
           (unsigned long long)input.count, last ? "\n" : "");
    fflush(stdout);
}

static void processes_alive(struct run *r)
{
    int status;
    for (unsigned i = 0; i < CONSUMERS; i++)
        if (waitpid(r->consumers[i].pid, &status, WNOHANG) != 0)
            harness_fail("consumer %u ended by itself", i);
    if (r->sending && waitpid(r->producer, &status, WNOHANG) == r->producer) {
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            harness_fail("the producer failed");
        r->sending = false;
    }
}

static bool drained(struct run *r)
{
    if (r->sending)
        return false;
    struct pawl_queue_stat s = harness_stat(r->lane, QUEUE);
    if (s.dead > 0)
        harness_fail("%llu messages are dead", (unsigned long long)s.dead);
    return s.ready + s.leased + s.scheduled == 0;
}

static void kill_something(struct run *r, struct pawl_prng *prng)
{
    uint64_t at = __atomic_load_n(&shared->acked, __ATOMIC_RELAXED);
    show_progress(false);
    if (isatty(1))
        printf("\r\033[K");
    if (r->broker_kills <= r->consumer_kills) {
        pid_t pid = broker.pid;
        harness_broker_kill(&broker);
        harness_broker_start(&broker);
        r->broker_kills++;
        printf("  SIGKILL broker   %7d at %7llu acknowledged; up again after %.0f ms\n", (int)pid,
               (unsigned long long)at, (double)broker.up_ns / 1e6);
    } else {
        struct consumer *c = &r->consumers[pawl_prng_below(prng, CONSUMERS)];
        printf("  SIGKILL consumer %7d at %7llu acknowledged\n", (int)c->pid,
               (unsigned long long)at);
        harness_signal(c->pid, SIGKILL);
        if (harness_wait(c->pid) != 128 + SIGKILL)
            harness_fail("a consumer had ended by itself");
        consumer_start(c);
        r->consumer_kills++;
    }
}

static void drive(struct run *r)
{
    struct pawl_prng prng = harness_prng(1);
    r->begin = harness_clock();
    for (unsigned i = 0; i < CONSUMERS; i++) {
        r->consumers[i].index = i;
        consumer_start(&r->consumers[i]);
    }
    r->producer = harness_fork(produce, NULL);
    r->sending = true;
    for (unsigned kill = 1; kill <= 2 * KILLS_EACH; kill++) {
        uint64_t target = input.count * kill / (2 * KILLS_EACH + 1);
        while (__atomic_load_n(&shared->acked, __ATOMIC_RELAXED) < target && !drained(r)) {
            processes_alive(r);
            show_progress(false);
            harness_pause();
        }
        kill_something(r, &prng);
    }
    while (!drained(r)) {
        processes_alive(r);
        show_progress(false);
        harness_pause();
    }
    r->end = harness_clock();
    show_progress(true);
    __atomic_store_n(&shared->stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < CONSUMERS; i++)
        if (harness_wait(r->consumers[i].pid) != 0)
            harness_fail("a consumer failed");
}

/* --- verdict --------------------------------------------------------------------------------- */

/* What the files say of one message; in order of id. */
struct fate {
    uint64_t id, line;
    uint32_t ok, open; /* OKs; intents that were cut off */
    bool right;        /* every body seen under this id was its line */
};

static struct fate *fates;

static int by_id(const void *a, const void *b)
{
    const struct fate *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static struct fate *fate_of(uint64_t id)
{
    struct fate key = { .id = id };
    return bsearch(&key, fates, input.count, sizeof key, by_id);
}

/* The next whole record of a file; false at its end, be it torn. */
static bool next_record(FILE *f, struct record *head, uint8_t **body)
{
    if (fread(head, sizeof *head, 1, f) != 1)
        return false;
    *body = realloc(*body, (size_t)head->bytes + 1);
    if (*body == NULL)
        harness_fail("no memory");
    return head->bytes == 0 || fread(*body, head->bytes, 1, f) == 1;
}

static void read_sent(void)
{
    uint64_t n = 0;
    struct record head;
    uint8_t *body = NULL;
    FILE *f = fopen(harness_text("%s/sent", work), "r");
    fates = calloc(input.count, sizeof *fates);
    uint8_t *seen = calloc(input.count, 1);
    if (f == NULL || fates == NULL || seen == NULL)
        harness_fail("the producer's file: %s", strerror(errno));
    while (next_record(f, &head, &body)) {
        if (n == input.count || head.line >= input.count || seen[head.line]++ != 0)
            harness_fail("a line was sent twice");
        fates[n++] = (struct fate){ .id = head.id, .line = head.line, .right = true };
    }
    fclose(f);
    free(seen);
    free(body);
    if (n != input.count)
        harness_fail("%llu of %llu lines were sent", (unsigned long long)n,
                     (unsigned long long)input.count);
    qsort(fates, n, sizeof *fates, by_id);
    for (uint64_t i = 1; i < n; i++)
        if (fates[i].id == fates[i - 1].id)
            harness_fail("two lines have the message id %llx", (unsigned long long)fates[i].id);
}

static void read_consumer(const char *path)
{
    uint64_t open_ids[ROW];
    unsigned open = 0;
    struct record head;
    uint8_t *body = NULL;
    FILE *f = fopen(path, "r");
    if (f == NULL)
        harness_fail("%s: %s", path, strerror(errno));
    while (next_record(f, &head, &body)) {
        struct fate *fate = fate_of(head.id);
        if (fate == NULL)
            harness_fail("message %llx was received and never sent", (unsigned long long)head.id);
        if (head.type == RECORD_INTENT) {
            const struct line *line = &input.lines[fate->line];
            if (open == ROW)
                harness_fail("%s is not as it should be", path);
            open_ids[open++] = head.id;
            fate->right &= head.bytes == line->bytes && memcmp(body, line->text, line->bytes) == 0;
            continue;
        }
        /* Outcomes follow in the order of the intents. */
        if (open == 0 || open_ids[0] != head.id)
            harness_fail("%s is not as it should be", path);
        memmove(open_ids, open_ids + 1, --open * sizeof open_ids[0]);
        fate->ok += head.type == RECORD_OK;
    }
    for (unsigned i = 0; i < open; i++)
        fate_of(open_ids[i])->open++;
    fclose(f);
    free(body);
}

/* True: passed. */
static bool verdict(struct run *r)
{
    uint64_t acked = 0, cut_off = 0, lost = 0, twice = 0, wrong = 0;
    read_sent();
    for (unsigned i = 0; i < CONSUMERS; i++)
        for (unsigned life = 1; life <= r->consumers[i].lives; life++)
            read_consumer(harness_text("%s/consumer-%u-%u", work, i, life));
    for (uint64_t i = 0; i < input.count; i++) {
        const struct fate *f = &fates[i];
        struct pawl_record record = { .size = sizeof record };
        wrong += !f->right;
        if (f->ok == 1)
            acked++;
        else if (f->ok > 1)
            twice++;
        else if (f->open > 0 && pawl_query_one(r->lane, QUEUE, f->id, &record) == PAWL_OK &&
                 record.state == PAWL_STATE_ACKED)
            cut_off++;
        else
            lost++;
    }
    double seconds = (double)(r->end - r->begin) / 1e9;
    printf("  rate      %.0f lines/s sent, leased and acknowledged, over %.2f s with all kills and "
           "restarts in it\n",
           (double)input.count / seconds, seconds);
    printf("  kills     broker %u, consumer %u (SIGKILL)\n", r->broker_kills, r->consumer_kills);
    printf(
        "  lines     %llu in, %llu acknowledged by one OK, %llu by an OK that a kill kept from its "
        "consumer\n",
        (unsigned long long)input.count, (unsigned long long)acked, (unsigned long long)cut_off);
    printf("  failures  %llu lost, %llu acknowledged twice, %llu changed\n",
           (unsigned long long)lost, (unsigned long long)twice, (unsigned long long)wrong);
    return lost == 0 && twice == 0 && wrong == 0 && acked + cut_off == input.count &&
           cut_off <= (uint64_t)r->consumer_kills * ROW && r->broker_kills >= 5 &&
           r->consumer_kills >= 5;
}

int main(int argc, char **argv)
{
    struct run r = { 0 };
    if (argc > 2) {
        fprintf(stderr, "usage: demo [FILE]\n");
        return 2;
    }
    harness_begin("demo", 900);
    if (argc == 2) {
        input_append(argv[1]);
        input.what = argv[1];
    } else {
        input_default();
    }
    input_split();
    shared = harness_shared(sizeof *shared);
    work = harness_dir();
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    r.lane = harness_open(&broker);
    struct pawl_queue_options q = PAWL_QUEUE_OPTIONS_INIT;
    q.max_message_bytes = PAWL_MESSAGE_BYTES_MAX;
    q.max_failed = q.max_crashed = 0;          /* a line is not to blame for the deaths here */
    q.max_messages = input.count / 10 + BATCH; /* so that sending goes on all the while */
    harness_check_rc(pawl_queue_create(r.lane, QUEUE, &q), PAWL_OK);
    struct pawl_broker_info info = { .size = sizeof info };
    harness_check_rc(pawl_info(r.lane, &info), PAWL_OK);
    printf("  input     %llu lines of %s\n"
           "  path      durable queue, 1 producer, %d consumers, pawld %s with %s io\n",
           (unsigned long long)input.count, input.what, CONSUMERS, info.version, info.io);
    drive(&r);
    bool passed = verdict(&r);
    pawl_close(r.lane);
    harness_broker_stop(&broker);
    printf("  verdict   %s\n",
           passed ? "PASSED: what was acknowledged is what went in, line for line" : "FAILED");
    return passed ? 0 : 1;
}

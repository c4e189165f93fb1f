/* SPDX-License-Identifier: MIT */
/* A full disk refuses sends by name and nothing else; space that comes back is used at once, all
 * without a restart; and a broker starts on a full disk (G1, G10; hazards L3; B-L04, B-W18). On a
 * tmpfs and on an ext4, each small and of the test's own. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/harness.h"
#include "lib/space.h"

#define MIB (1u << 20)
#define MESSAGES_MAX 200000

struct sent {
    uint64_t id;
    struct pawl_token token;
    bool acked;
};
static struct sent *sent;
static uint32_t sent_count;

static int send_one(struct pawl *lane, uint32_t bytes)
{
    static uint8_t body[65536];
    struct pawl_sent s;
    memset(body, (int)sent_count, bytes);
    memcpy(body, &sent_count, sizeof sent_count);
    int rc = pawl_send(lane, "q", body, bytes, NULL, &s);
    if (rc != PAWL_OK)
        return rc;
    harness_check(sent_count < MESSAGES_MAX);
    sent[sent_count++] = (struct sent){ .id = s.id };
    return rc;
}

/* Until the first refusal, which must be E_FULL and name what is full. */
static void send_until_full(struct pawl *lane, uint32_t bytes)
{
    int rc;
    while ((rc = send_one(lane, bytes)) == PAWL_OK)
        ;
    if (rc != PAWL_E_FULL || pawl_last_outcome(lane) != PAWL_OUTCOME_NOT_APPLIED)
        harness_fail("full, it says %s: %s", pawl_strname(rc), pawl_last_text(lane));
    if (strstr(pawl_last_text(lane), "disk") == NULL && strstr(pawl_last_text(lane), "log") == NULL)
        harness_fail("it does not say what is full: '%s'", pawl_last_text(lane));
}

static void receive_all(struct pawl *lane, uint32_t from)
{
    struct pawl_receive_options options = PAWL_RECEIVE_OPTIONS_INIT;
    const char *queue = "q";
    options.wait_ns = 10 * PAWL_NS_S;
    for (uint32_t i = from; i < sent_count;) {
        struct pawl_message m[64];
        uint32_t number, n = 0;
        harness_check_rc(pawl_receive_batch(lane, &queue, 1, &options, m, 64, &n), PAWL_OK);
        for (uint32_t k = 0; k < n; k++, i++) {
            memcpy(&number, m[k].body, sizeof number);
            harness_check(number == i && m[k].id == sent[i].id); /* G9 */
            sent[i].token = m[k].token;
        }
    }
}

static void ack_in_random_order(struct pawl *lane, struct pawl_prng *prng, uint32_t from,
                                uint32_t to)
{
    uint32_t n = to - from;
    uint32_t *order = malloc(n * sizeof *order);
    harness_check(order != NULL);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = (uint32_t)pawl_prng_below(prng, i + 1);
        order[i] = order[k];
        order[k] = from + i;
    }
    for (uint32_t i = 0; i < n; i++) {
        harness_check_rc(pawl_ack(lane, &sent[order[i]].token, 0), PAWL_OK);
        sent[order[i]].acked = true;
    }
    free(order);
}

static void on(const char *what, const char *dir, struct pawl_prng *prng)
{
    struct harness_broker b;
    char instance[300];
    sent_count = 0;
    snprintf(instance, sizeof instance, "%s/d", dir);
    harness_broker_init(&b, instance);
    harness_broker_arg(&b, "--max-log");
    harness_broker_arg(&b, "1G"); /* more than there is: the disk is what ends */
    harness_broker_start(&b);
    struct pawl *lane = harness_open(&b);
    struct pawl_queue_options q = PAWL_QUEUE_OPTIONS_INIT;
    q.lease_ns = PAWL_LEASE_NS_MAX;
    q.max_inflight = MESSAGES_MAX;
    harness_check_rc(pawl_queue_create(lane, "q", &q), PAWL_OK);

    harness_step("%s: until it is full", what);
    send_until_full(lane, 1000);
    uint32_t first = sent_count;
    harness_check(first > 1000);
    space_fill(dir); /* the last bytes too: nothing may grow any more */
    harness_check_rc(send_one(lane, 1000), PAWL_E_FULL);

    harness_step("%s: all else goes on", what);
    struct pawl_record record = { .size = sizeof record };
    harness_check_rc(pawl_query_one(lane, "q", sent[0].id, &record), PAWL_OK);
    receive_all(lane, 0);
    harness_check_rc(pawl_renew(lane, &sent[0].token, 3600 * PAWL_NS_S), PAWL_OK);
    harness_check_rc(pawl_nack(lane, &sent[0].token, 3600 * PAWL_NS_S, "later"), PAWL_OK);
    harness_check_rc(pawl_cancel(lane, "q", sent[0].id), PAWL_OK);
    sent[0].acked = true;
    uint32_t half = first / 2;
    ack_in_random_order(lane, prng, 1, half);

    harness_step("%s: acked space is used again", what);
    while (send_one(lane, 1000) == PAWL_E_FULL)
        harness_pause(); /* copying forward takes its turns */
    uint32_t second = sent_count;
    harness_check(second > first);

    harness_step("%s: killed and started on a full disk", what);
    space_fill(dir);
    harness_broker_restart(&b);
    harness_check(harness_stat(lane, "q").leased == first - half);
    ack_in_random_order(lane, prng, half, half + 100);
    half += 100;

    harness_step("%s: space comes back", what);
    space_free(dir);
    while (send_one(lane, 1000) == PAWL_E_FULL)
        harness_pause();
    for (int i = 0; i < 100; i++) {
        int rc = send_one(lane, 1000);
        harness_check(rc == PAWL_OK || rc == PAWL_E_FULL);
    }
    receive_all(lane, first);
    ack_in_random_order(lane, prng, half, sent_count);
    struct pawl_queue_stat s = harness_stat(lane, "q");
    harness_check(s.ready == 0 && s.leased == 0 && s.scheduled == 0 && s.dead == 0);
    harness_broker_restart(&b);
    s = harness_stat(lane, "q");
    harness_check(s.ready == 0 && s.leased == 0 && s.scheduled == 0 && s.dead == 0);
    pawl_close(lane);
    harness_broker_stop(&b);
    printf("%s: %u messages of 1,000 bytes until it was full, %u in all\n", what, first,
           sent_count);
}

int main(void)
{
    harness_begin("full_test", 240);
    space_private();
    struct pawl_prng prng = harness_prng(1);
    sent = calloc(MESSAGES_MAX, sizeof *sent);
    harness_check(sent != NULL);
    const char *tmpfs = harness_dir();
    space_tmpfs(tmpfs, 24 * MIB);
    on("tmpfs", tmpfs, &prng);
    const char *ext4 = harness_dir();
    char image[300];
    snprintf(image, sizeof image, "%s/image", harness_dir());
    space_ext4(ext4, image, 24 * MIB);
    on("ext4", ext4, &prng);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* Library and broker of different make find out at attach and name both sides (hazards M20, M21).
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/raw.h"

static struct harness_broker broker;

static struct pawl_attach_welcome answer(const struct pawl_attach_hello *hello, size_t bytes)
{
    struct pawl_attach_welcome w;
    int fd = raw_connect(&broker);
    char byte;
    harness_check(fd >= 0);
    harness_check(raw_welcome(fd, hello, bytes, &w));
    if (w.result != PAWL_OK)
        harness_check(recv(fd, &byte, 1, 0) == 0); /* and it is closed */
    close(fd);
    return w;
}

static void must_name(const struct pawl_attach_welcome *w, const char *what)
{
    if (w->result != PAWL_E_ABI || memchr(w->text, '\0', sizeof w->text) == NULL ||
        strstr(w->text, what) == NULL)
        harness_fail("%s: '%.255s' does not name %s", pawl_strname(w->result), w->text, what);
}

int main(void)
{
    char text[40];
    harness_begin("abi_test", 30);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);

    harness_step("right");
    struct pawl_attach_hello hello = raw_hello();
    struct pawl_attach_welcome w = answer(&hello, sizeof hello);
    harness_check_rc(w.result, PAWL_OK);
    harness_check(w.magic == PAWL_ABI_MAGIC && w.version == PAWL_ABI_VERSION);
    harness_check(w.fingerprint == pawl_layout_fingerprint() && w.session != 0);
    harness_check(strcmp(w.broker_version, PAWL_VERSION) == 0);

    harness_step("version");
    hello = raw_hello();
    hello.version = 4711;
    w = answer(&hello, sizeof hello);
    must_name(&w, "4711");
    snprintf(text, sizeof text, "%u", PAWL_ABI_VERSION);
    must_name(&w, text);
    harness_check(w.version == PAWL_ABI_VERSION);

    harness_step("fingerprint");
    hello = raw_hello();
    hello.fingerprint ^= 1;
    w = answer(&hello, sizeof hello);
    snprintf(text, sizeof text, "%llx", (unsigned long long)hello.fingerprint);
    must_name(&w, text);
    snprintf(text, sizeof text, "%llx", (unsigned long long)pawl_layout_fingerprint());
    must_name(&w, text);

    harness_step("magic");
    hello = raw_hello();
    hello.magic = 0x1122334455667788ull;
    w = answer(&hello, sizeof hello);
    harness_check_rc(w.result, PAWL_E_ABI);

    harness_step("size");
    hello = raw_hello();
    w = answer(&hello, sizeof hello - 8);
    harness_check_rc(w.result, PAWL_E_ABI);

    harness_step("constants before the descriptor");
    struct raw_lane lane;
    int fd = raw_attach(&broker, &lane);
    const struct pawl_comp_shm *comp = lane.comp.header;
    harness_check(comp->magic == PAWL_ABI_MAGIC && comp->version == PAWL_ABI_VERSION);
    harness_check(comp->fingerprint == pawl_layout_fingerprint());
    harness_check(comp->sub_bytes == lane.sub.data_bytes);
    harness_check(comp->comp_bytes == lane.comp.data_bytes);
    /* P9: a fresh region holds nothing of another client. */
    for (uint64_t i = 0; i < lane.sub.data_bytes; i++)
        harness_check(lane.sub.data[i] == 0);
    for (uint64_t i = 0; i < lane.comp.data_bytes; i++)
        harness_check(lane.comp.data[i] == 0);
    raw_lane_close(&lane);
    close(fd);
    harness_broker_stop(&broker);
    return 0;
}

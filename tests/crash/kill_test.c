/* SPDX-License-Identifier: MIT */
/* Real SIGKILLs of the real broker and of real clients under load, with exact accounting
 * (lib/load.h). Short in `make check`; PAWL_KILLS and PAWL_CLIENT_KILLS set the long cut. G1, G2,
 * G3, G6. */
#include "lib/load.h"

int main(void)
{
    uint64_t broker_kills = harness_number("PAWL_KILLS", 16);
    uint64_t client_kills = harness_number("PAWL_CLIENT_KILLS", 32);
    struct harness_broker b;
    struct load_report r;
    harness_begin("kill_test", 120 + (unsigned)(broker_kills + client_kills));
    harness_broker_init(&b, NULL);
    harness_broker_start(&b);
    /* In rounds, so that a round fits the numbers of lib/load and each begins with an old log. */
    for (uint64_t round = 1; broker_kills + client_kills > 0; round++) {
        char queue[32];
        struct load_options o = { .queue = queue,
                                  .mode = PAWL_DURABLE,
                                  .producers = 2,
                                  .consumers = 3,
                                  .freezes = 1,
                                  .step = 400,
                                  .body_max = 2000,
                                  .lease_ns = 1 * PAWL_NS_S,
                                  .number = round };
        o.broker_kills = (uint32_t)(broker_kills < 16 ? broker_kills : 16);
        o.client_kills = (uint32_t)(client_kills < 54 ? client_kills : 54);
        broker_kills -= o.broker_kills;
        client_kills -= o.client_kills;
        snprintf(queue, sizeof queue, "load-%llu", (unsigned long long)round);
        load_run(&b, &o, &r);
        load_print(queue, &r);
    }
    harness_broker_stop(&b);
    return 0;
}

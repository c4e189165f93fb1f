/* SPDX-License-Identifier: MIT */
#include "signals.h"

#include <signal.h>

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

void cli_stop_on_signals(void)
{
    /* without SA_RESTART: a wait in poll or read ends, and the loop looks */
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool cli_stopped(void) { return stopped != 0; }

/* SPDX-License-Identifier: MIT */
/* Names, texts and attributes of the closed list of results; broker, library and tools share it. */
#include "pawl.h"

#include <stddef.h>

static const struct row {
    int value;
    enum pawl_outcome outcome;
    enum pawl_advice advice;
    const char *name, *text;
} rows[] = {
#define PAWL_X(name, value, outcome, advice, text) \
    { (value), PAWL_OUTCOME_##outcome, PAWL_ADVICE_##advice, "PAWL_" #name, text },
    PAWL_RESULTS(PAWL_X)
#undef PAWL_X
};

static const struct row *find(int result)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].value == result)
            return &rows[i];
    return NULL;
}

const char *pawl_strname(int result)
{
    const struct row *r = find(result);
    return r ? r->name : "PAWL_UNKNOWN_RESULT";
}

const char *pawl_strerror(int result)
{
    const struct row *r = find(result);
    return r ? r->text : "not a result of this library";
}

enum pawl_outcome pawl_outcome_class(int result)
{
    const struct row *r = find(result);
    return r ? r->outcome : PAWL_OUTCOME_UNKNOWN;
}

enum pawl_advice pawl_advice(int result)
{
    const struct row *r = find(result);
    return r ? r->advice : PAWL_ADVICE_RESOLVE;
}

const char *pawl_state_name(uint32_t state)
{
    static const char *const names[] = { "NONE",  "SCHEDULED", "READY",     "LEASED", "DEAD",
                                         "ACKED", "EXPIRED",   "CANCELLED", "PURGED" };
    return state < sizeof names / sizeof names[0] ? names[state] : "UNKNOWN";
}

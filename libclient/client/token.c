/* SPDX-License-Identifier: MIT */
/* Tokens as text: three numbers of 16 hexadecimal digits, message, grant, random. */
#include <string.h>

#include "client/text.h"
#include "pawl.h"

static const char digits[] = "0123456789abcdef";

void pawl_token_format(const struct pawl_token *token, char text[PAWL_TOKEN_TEXT_BYTES])
{
    const uint64_t parts[3] = { token->message, token->grant, token->random };
    for (int i = 0; i < 48; i++)
        text[i] = digits[parts[i / 16] >> (60 - 4 * (i % 16)) & 15];
    text[48] = '\0';
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static const char no_token[] = "a token is 48 hexadecimal digits, as pawl_token_format() and "
                               "`pawl receive --json` write it";

int pawl_token_parse(const char *text, struct pawl_token *out)
{
    uint64_t parts[3] = { 0, 0, 0 };
    if (!text || !out) {
        pawl_thread_text("text and out are needed");
        return PAWL_E_INVALID;
    }
    for (int i = 0; i < 48; i++) {
        int d = digit_value(text[i]);
        if (d < 0) { /* the NUL of a short text, too */
            pawl_thread_text(no_token);
            return PAWL_E_INVALID;
        }
        parts[i / 16] = parts[i / 16] << 4 | (unsigned)d;
    }
    if (text[48] != '\0') {
        pawl_thread_text(no_token);
        return PAWL_E_INVALID;
    }
    *out = (struct pawl_token){ .message = parts[0], .grant = parts[1], .random = parts[2] };
    return PAWL_OK;
}

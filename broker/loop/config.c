/* SPDX-License-Identifier: MIT */
#include "loop/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- numbers --------------------------------------------------------------------------------- */

/* Digits; *end behind them. False: none, or too large. */
static bool digits(const char *text, const char **end, uint64_t *out)
{
    uint64_t n = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(n, 10u, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n))
            return false;
    *end = p;
    *out = n;
    return p != text;
}

bool pawl_config_size(const char *text, uint64_t *out)
{
    static const char units[] = "kMGT";
    const char *p;
    uint64_t n;
    if (!digits(text, &p, &n))
        return false;
    unsigned shift = 0;
    if (*p != '\0' && *p != 'B') {
        const char *u = strchr(units, *p == 'K' ? 'k' : *p);
        if (!u)
            return false;
        shift = 10u * (unsigned)(u - units + 1);
        p++;
        if (*p == 'i' && p[1] == 'B')
            p++;
    }
    if (*p == 'B')
        p++;
    if (*p != '\0' || (shift > 0 && n >> (64 - shift) != 0))
        return false;
    *out = n << shift;
    return true;
}

bool pawl_config_duration(const char *text, uint64_t *out)
{
    static const struct unit {
        const char *name;
        uint64_t ns;
    } units[] = {
        { "ns", 1 },          { "us", 1000 },         { "ms", 1000000 },      { "s", 1000000000 },
        { "m", 60000000000 }, { "h", 3600000000000 }, { "d", 86400000000000 }
    };
    const char *p;
    uint64_t n;
    if (!digits(text, &p, &n))
        return false;
    if (*p == '\0' && n == 0) {
        *out = 0;
        return true;
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(p, units[i].name) == 0)
            return !__builtin_mul_overflow(n, units[i].ns, out);
    return false;
}

/* --- options --------------------------------------------------------------------------------- */

enum kind { SIZE, DURATION, COUNT, PATH_DIR, PATH_SOCKET, IO };

#define AT(field) offsetof(struct pawld_options, field)

static const struct option_row {
    const char *name;
    enum kind kind;
    size_t at;
    uint64_t min, max; /* inclusive */
} rows[] = {
    { "dir", PATH_DIR, 0, 0, 0 },
    { "socket", PATH_SOCKET, 0, 0, 0 },
    { "io", IO, AT(io), 0, 0 },
    { "spin", DURATION, AT(spin_ns), 0, 1000000000 },
    { "memory", SIZE, AT(memory_bytes), 64ull << 20, 1ull << 50 },
    { "max-log", SIZE, AT(max_log_bytes), 4ull << 20, 1ull << 50 },
    { "segment-size", SIZE, AT(segment_bytes), 1ull << 20, 1ull << 30 },
    { "block-size", SIZE, AT(block_bytes), 64ull << 10, 1ull << 20 },
    { "blocks-in-flight", COUNT, AT(blocks_in_flight), 1, 8 },
    { "relaxed-window", DURATION, AT(relaxed_window_ns), 0, 10000000000 },
    { "session-grace", DURATION, AT(session_grace_ns), 0, 3600000000000 },
    { "max-sessions", COUNT, AT(sessions_max), 1, 65536 },
    { "max-queues", COUNT, AT(queues_max), 1, 65536 },
};

static int set_path(char *out, const char *value, const char *name, char *why, size_t bytes)
{
    size_t n = strlen(value);
    if (n == 0 || n >= PAWL_CONFIG_PATH_BYTES) {
        snprintf(why, bytes, "%s: a path of 1 to %d bytes is needed", name,
                 PAWL_CONFIG_PATH_BYTES - 1);
        return -1;
    }
    memcpy(out, value, n + 1);
    return 0;
}

static int set_io(struct pawl_config *config, const char *value, char *why, size_t bytes)
{
    static const char *const names[] = { "auto", "uring", "posix" };
    for (uint32_t i = 0; i < 3; i++) {
        if (strcmp(value, names[i]) == 0) {
            config->options.io = i;
            return 0;
        }
    }
    snprintf(why, bytes, "io: auto, uring or posix, not \"%s\"", value);
    return -1;
}

static int set_number(struct pawl_config *config, const struct option_row *row, const char *value,
                      char *why, size_t bytes)
{
    uint64_t n = 0;
    const char *end;
    bool valid = row->kind == SIZE       ? pawl_config_size(value, &n)
                 : row->kind == DURATION ? pawl_config_duration(value, &n)
                                         : digits(value, &end, &n) && *end == '\0';
    if (!valid) {
        snprintf(why, bytes, "%s: \"%s\" is not a %s", row->name, value,
                 row->kind == SIZE       ? "size such as 256MiB"
                 : row->kind == DURATION ? "duration such as 10ms"
                                         : "number");
        return -1;
    }
    if (n < row->min || n > row->max) {
        snprintf(why, bytes, "%s: %s is out of range, which is %llu to %llu%s", row->name, value,
                 (unsigned long long)row->min, (unsigned long long)row->max,
                 row->kind == SIZE       ? " bytes"
                 : row->kind == DURATION ? " ns"
                                         : "");
        return -1;
    }
    char *field = (char *)&config->options + row->at;
    if (row->kind == COUNT) {
        uint32_t count = (uint32_t)n;
        memcpy(field, &count, sizeof count);
    } else {
        /* 0 in the struct means the default; who says 0 here means none. */
        if (n == 0 && row->at != AT(spin_ns))
            n = 1;
        memcpy(field, &n, sizeof n);
    }
    return 0;
}

void pawl_config_init(struct pawl_config *config)
{
    memset(config, 0, sizeof *config);
    config->options = (struct pawld_options)PAWLD_OPTIONS_INIT;
}

int pawl_config_set(struct pawl_config *config, const char *name, const char *value, char *why,
                    size_t bytes)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(name, rows[i].name) != 0)
            continue;
        switch (rows[i].kind) {
        case PATH_DIR:
            return set_path(config->dir, value, name, why, bytes);
        case PATH_SOCKET:
            return set_path(config->socket, value, name, why, bytes);
        case IO:
            return set_io(config, value, why, bytes);
        default:
            return set_number(config, &rows[i], value, why, bytes);
        }
    }
    snprintf(why, bytes, "there is no option \"%s\"", name);
    return -1;
}

/* --- file ------------------------------------------------------------------------------------ */

static char *trim(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    size_t n = strlen(s);
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        s[--n] = '\0';
    return s;
}

static int take_line(struct pawl_config *config, char *line, char *why, size_t bytes)
{
    char *s = trim(line);
    if (*s == '\0' || *s == '#')
        return 0;
    char *equals = strchr(s, '=');
    if (!equals) {
        snprintf(why, bytes, "\"name = value\" is needed");
        return -1;
    }
    *equals = '\0';
    return pawl_config_set(config, trim(s), trim(equals + 1), why, bytes);
}

int pawl_config_file(struct pawl_config *config, const char *path, char *why, size_t bytes)
{
    FILE *f = fopen(path, "re");
    if (!f) {
        snprintf(why, bytes, "%s: %s", path, strerror(errno));
        return -1;
    }
    char line[PAWL_CONFIG_PATH_BYTES + 128], reason[256];
    int rc = 0;
    for (unsigned number = 1; rc == 0 && fgets(line, sizeof line, f); number++) {
        if (!strchr(line, '\n') && !feof(f)) {
            snprintf(why, bytes, "%s:%u: the line is too long", path, number);
            rc = -1;
        } else if (take_line(config, line, reason, sizeof reason) != 0) {
            snprintf(why, bytes, "%s:%u: %s", path, number, reason);
            rc = -1;
        }
    }
    if (rc == 0 && ferror(f)) {
        snprintf(why, bytes, "%s: cannot be read", path);
        rc = -1;
    }
    (void)fclose(f);
    return rc;
}

/* --- defaults -------------------------------------------------------------------------------- */

static int default_dir(struct pawl_config *config)
{
    const char *s = getenv("PAWL_DIR");
    int n;
    if (s)
        n = snprintf(config->dir, sizeof config->dir, "%s", s);
    else if (geteuid() == 0)
        n = snprintf(config->dir, sizeof config->dir, "/var/lib/pawl");
    else {
        config->dir_of_home = true;
        if ((s = getenv("XDG_STATE_HOME")) && *s)
            n = snprintf(config->dir, sizeof config->dir, "%s/pawl", s);
        else if ((s = getenv("HOME")) && *s)
            n = snprintf(config->dir, sizeof config->dir, "%s/.local/state/pawl", s);
        else
            return -1;
    }
    return n > 0 && (size_t)n < sizeof config->dir ? 0 : -1;
}

int pawl_config_finish(struct pawl_config *config, char *why, size_t bytes)
{
    bool dir_given = config->dir[0] != '\0';
    const char *dir = dir_given ? NULL : getenv("PAWL_DIR");
    /* "" is a script's mistake: the default in its place would be another broker's directory. */
    if (dir && !*dir) {
        snprintf(why, bytes, "$PAWL_DIR is set and empty: unset it, or let it name the directory");
        return -1;
    }
    if (!dir_given && default_dir(config) != 0) {
        snprintf(why, bytes, "no directory: give --dir, or set $PAWL_DIR or $HOME");
        return -1;
    }
    /* As the library does: a directory that was named brings its own socket with it. */
    const char *socket = dir_given ? NULL : getenv("PAWL_SOCKET");
    if (config->socket[0] == '\0' && socket &&
        set_path(config->socket, socket, "$PAWL_SOCKET", why, bytes) != 0)
        return -1;
    config->options.dir = config->dir;
    config->options.socket = config->socket[0] != '\0' ? config->socket : NULL;
    return 0;
}

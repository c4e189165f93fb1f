/* SPDX-License-Identifier: MIT */
#include "units.h"

#include <stdio.h>
#include <string.h>

#define NS_S 1000000000ull

static const struct unit {
    const char *name;
    uint64_t ns;
} units[] = {
    { "d", 86400 * NS_S }, { "h", 3600 * NS_S }, { "ms", 1000000 }, { "m", 60 * NS_S },
    { "us", 1000 },        { "ns", 1 },          { "s", NS_S },
};

static bool digit(char c) { return c >= '0' && c <= '9'; }

/* Digits with an optional fraction, times `scale`; moves *at behind them. A fraction finer than the
 * scale allows is refused, not rounded: what the user wrote is what is done. */
static bool scaled(const char *from, const char *to, uint64_t scale, uint64_t *out)
{
    uint64_t whole = 0;
    const char *p = from;
    for (; p < to && digit(*p); p++)
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole))
            return false;
    if (p == from || __builtin_mul_overflow(whole, scale, &whole))
        return false;
    if (p == to) {
        *out = whole;
        return true;
    }
    if (*p != '.' || p + 1 == to)
        return false;
    unsigned __int128 part = 0;
    unsigned __int128 base = 1;
    for (p++; p < to; p++) {
        if (!digit(*p) || base > 1000000000000000ull)
            return false;
        part = part * 10 + (unsigned)(*p - '0');
        base *= 10;
    }
    part *= scale;
    if (part % base != 0)
        return false;
    return !__builtin_add_overflow(whole, (uint64_t)(part / base), out);
}

static const char *number_end(const char *p)
{
    while (digit(*p) || *p == '.')
        p++;
    return p;
}

bool cli_duration_parse(const char *text, uint64_t *ns)
{
    uint64_t sum = 0;
    if (strcmp(text, "0") == 0) {
        *ns = 0;
        return true;
    }
    if (*text == '\0')
        return false;
    for (const char *p = text; *p != '\0';) {
        const char *end = number_end(p);
        const struct unit *unit = NULL;
        /* "ms" stands before "m" and "us", "ns" before "s" in the table */
        for (size_t i = 0; i < sizeof units / sizeof units[0] && !unit; i++)
            if (strncmp(end, units[i].name, strlen(units[i].name)) == 0)
                unit = &units[i];
        uint64_t part;
        if (!unit || !scaled(p, end, unit->ns, &part) || __builtin_add_overflow(sum, part, &sum))
            return false;
        p = end + strlen(unit->name);
    }
    *ns = sum;
    return true;
}

bool cli_size_parse(const char *text, uint64_t *bytes)
{
    static const char letters[] = "kMGTP";
    const char *end = number_end(text);
    const char *rest = end;
    uint64_t scale = 1;
    const char *letter = *rest ? strchr(letters, *rest == 'K' ? 'k' : *rest) : NULL;
    if (letter) {
        scale = 1ull << (10 * (unsigned)(letter - letters + 1));
        rest++;
        if (*rest == 'i' && rest[1] == 'B')
            rest++;
    }
    if (*rest == 'B')
        rest++;
    return *rest == '\0' && scaled(text, end, scale, bytes);
}

bool cli_number_parse(const char *text, uint64_t *number)
{
    uint64_t value = 0;
    const char *p = text;
    unsigned base = 10;
    if (p[0] == '0' && (p[1] == 'x' || p[1] == 'X')) {
        base = 16;
        p += 2;
    }
    if (*p == '\0')
        return false;
    for (; *p; p++) {
        unsigned d = digit(*p)                ? (unsigned)(*p - '0')
                     : *p >= 'a' && *p <= 'f' ? (unsigned)(*p - 'a' + 10)
                     : *p >= 'A' && *p <= 'F' ? (unsigned)(*p - 'A' + 10)
                                              : 99;
        if (d >= base || __builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, d, &value))
            return false;
    }
    *number = value;
    return true;
}

bool cli_perm_parse(const char *text, uint32_t *perm)
{
    uint32_t value = 0;
    if (*text == '\0' || strlen(text) > 4)
        return false;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '7')
            return false;
        value = value * 8 + (uint32_t)(*p - '0');
    }
    if (value > 0777)
        return false;
    *perm = value;
    return true;
}

/* --- times ----------------------------------------------------------------------------------- */

/* Days from 1970-01-01 in the Gregorian calendar: the year is turned to begin in March, so that the
 * leap day comes last. */
static int64_t days_from_date(int64_t year, unsigned month, unsigned day)
{
    if (month <= 2)
        year--;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    unsigned year_of_era = (unsigned)(year - era * 400);
    unsigned day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    unsigned day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + (int64_t)day_of_era - 719468;
}

static void date_from_days(int64_t days, int64_t *year, unsigned *month, unsigned *day)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    unsigned day_of_era = (unsigned)(days - era * 146097);
    unsigned year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    unsigned day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    unsigned m = (5 * day_of_year + 2) / 153;
    *day = day_of_year - (153 * m + 2) / 5 + 1;
    *month = m < 10 ? m + 3 : m - 9;
    *year = (int64_t)year_of_era + era * 400 + (*month <= 2 ? 1 : 0);
}

/* Exactly `count` digits. */
static bool field(const char **at, unsigned count, unsigned max, unsigned *out)
{
    unsigned value = 0;
    for (unsigned i = 0; i < count; i++) {
        if (!digit((*at)[i]))
            return false;
        value = value * 10 + (unsigned)((*at)[i] - '0');
    }
    *at += count;
    *out = value;
    return value <= max;
}

static bool literal(const char **at, const char *any)
{
    if (**at == '\0' || !strchr(any, **at))
        return false;
    (*at)++;
    return true;
}

static unsigned days_of_month(unsigned year, unsigned month)
{
    static const uint8_t days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (month == 2 && leap ? 1 : 0);
}

/* ".25" -> 250,000,000; nothing is nothing. At most nine digits. */
static bool fraction(const char **at, uint64_t *ns)
{
    *ns = 0;
    if (**at != '.')
        return true;
    const char *p = *at + 1;
    uint64_t scale = NS_S;
    while (digit(*p) && scale > 1) {
        scale /= 10;
        *ns += (uint64_t)(*p++ - '0') * scale;
    }
    if (p == *at + 1)
        return false;
    *at = p;
    return true;
}

static bool offset(const char **at, int64_t *seconds)
{
    unsigned hours, minutes;
    *seconds = 0;
    if (literal(at, "Zz"))
        return true;
    int sign = **at == '-' ? -1 : 1;
    if (!literal(at, "+-") || !field(at, 2, 23, &hours) || !literal(at, ":") ||
        !field(at, 2, 59, &minutes))
        return false;
#ifdef PAWL_BUG_CLI_TIME_ZONE
    sign = -sign;
#endif
    *seconds = sign * (int64_t)(hours * 3600 + minutes * 60);
    return true;
}

bool cli_time_parse(const char *text, uint64_t *wall_ns, uint64_t *delay_ns)
{
    *wall_ns = *delay_ns = 0;
    if (text[0] == '+')
        return cli_duration_parse(text + 1, delay_ns);
    const char *p = text;
    unsigned year, month, day, hour, minute, second;
    uint64_t ns;
    int64_t east;
    if (!field(&p, 4, 2262, &year) || !literal(&p, "-") || !field(&p, 2, 12, &month) ||
        !literal(&p, "-") || !field(&p, 2, 31, &day) || !literal(&p, "Tt ") ||
        !field(&p, 2, 23, &hour) || !literal(&p, ":") || !field(&p, 2, 59, &minute) ||
        !literal(&p, ":") || !field(&p, 2, 60, &second) || !fraction(&p, &ns) ||
        !offset(&p, &east) || *p != '\0')
        return false;
    if (year < 1970 || month < 1 || day < 1 || day > days_of_month(year, month))
        return false;
    int64_t seconds =
        days_from_date(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - east;
    if (seconds < 0 || seconds > INT64_MAX / (int64_t)NS_S - 1)
        return false;
    *wall_ns = (uint64_t)seconds * NS_S + ns;
    /* 0 says "no time" to the broker; the first nanosecond of 1970 is as much in the past */
    if (*wall_ns == 0)
        *wall_ns = 1;
    return true;
}

/* --- showing --------------------------------------------------------------------------------- */

const char *cli_duration_format(uint64_t ns, char text[CLI_UNIT_TEXT_BYTES])
{
    static const struct unit exact[] = { { "d", 86400 * NS_S }, { "h", 3600 * NS_S },
                                         { "m", 60 * NS_S },    { "s", NS_S },
                                         { "ms", 1000000 },     { "us", 1000 } };
    if (ns == 0)
        return strcpy(text, "0");
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++)
        if (ns % exact[i].ns == 0) {
            snprintf(text, CLI_UNIT_TEXT_BYTES, "%llu%s", (unsigned long long)(ns / exact[i].ns),
                     exact[i].name);
            return text;
        }
    snprintf(text, CLI_UNIT_TEXT_BYTES, "%lluns", (unsigned long long)ns);
    return text;
}

/* At most three digits and one decimal, rounded down. */
static const char *decimal(uint64_t value, uint64_t unit, const char *name,
                           char text[CLI_UNIT_TEXT_BYTES])
{
    uint64_t tenths = (uint64_t)((unsigned __int128)value * 10 / unit);
    if (tenths % 10 == 0 || tenths >= 1000)
        snprintf(text, CLI_UNIT_TEXT_BYTES, "%llu%s", (unsigned long long)(tenths / 10), name);
    else
        snprintf(text, CLI_UNIT_TEXT_BYTES, "%llu.%llu%s", (unsigned long long)(tenths / 10),
                 (unsigned long long)(tenths % 10), name);
    return text;
}

const char *cli_duration_human(uint64_t ns, char text[CLI_UNIT_TEXT_BYTES])
{
    static const struct unit steps[] = {
        { "d", 86400 * NS_S }, { "h", 3600 * NS_S }, { "m", 60 * NS_S }, { "s", NS_S }
    };
    if (ns < 1000)
        return cli_duration_format(ns, text);
    if (ns < 1000000)
        return decimal(ns, 1000, "us", text);
    if (ns < NS_S)
        return decimal(ns, 1000000, "ms", text);
    if (ns < 60 * NS_S)
        return decimal(ns, NS_S, "s", text);
    for (size_t i = 0; i + 1 < sizeof steps / sizeof steps[0]; i++) {
        if (ns < steps[i].ns)
            continue;
        uint64_t first = ns / steps[i].ns;
        uint64_t second = ns % steps[i].ns / steps[i + 1].ns;
        if (second == 0)
            snprintf(text, CLI_UNIT_TEXT_BYTES, "%llu%s", (unsigned long long)first, steps[i].name);
        else
            snprintf(text, CLI_UNIT_TEXT_BYTES, "%llu%s%llu%s", (unsigned long long)first,
                     steps[i].name, (unsigned long long)second, steps[i + 1].name);
        break;
    }
    return text;
}

const char *cli_size_human(uint64_t bytes, char text[CLI_UNIT_TEXT_BYTES])
{
    static const char *const names[] = { " B", " KiB", " MiB", " GiB", " TiB", " PiB" };
    size_t i = 0;
    while (i + 1 < sizeof names / sizeof names[0] && bytes >> (10 * (i + 1)) != 0)
        i++;
    return decimal(bytes, 1ull << (10 * i), names[i], text);
}

const char *cli_number_human(uint64_t number, char text[CLI_UNIT_TEXT_BYTES])
{
    char plain[CLI_UNIT_TEXT_BYTES];
    int have = snprintf(plain, sizeof plain, "%llu", (unsigned long long)number);
    int out = 0;
    for (int i = 0; i < have; i++) {
        if (i > 0 && (have - i) % 3 == 0)
            text[out++] = ',';
        text[out++] = plain[i];
    }
    text[out] = '\0';
    return text;
}

const char *cli_time_format(uint64_t wall_ns, char text[CLI_UNIT_TEXT_BYTES])
{
    int64_t year;
    unsigned month, day;
    if (wall_ns == 0)
        return strcpy(text, "-");
    uint64_t seconds = wall_ns / NS_S;
    date_from_days((int64_t)(seconds / 86400), &year, &month, &day);
    unsigned rest = (unsigned)(seconds % 86400);
    snprintf(text, CLI_UNIT_TEXT_BYTES, "%04lld-%02u-%02uT%02u:%02u:%02u.%03uZ", (long long)year,
             month, day, rest / 3600, rest / 60 % 60, rest % 60,
             (unsigned)(wall_ns % NS_S / 1000000));
    return text;
}

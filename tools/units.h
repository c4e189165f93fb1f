/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TOOLS_UNITS_H
#define PAWL_TOOLS_UNITS_H

/* Text to numbers and back, as the command line takes and shows them. Pure: no clock, no locale.
 * Every parser refuses what it does not understand to the last byte, and what does not fit. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLI_UNIT_TEXT_BYTES 48

/* "250ms", "10s", "1h30m", "1.5s", "2d"; units ns us ms s m h d; a bare "0" needs none. */
bool cli_duration_parse(const char *text, uint64_t *ns);
/* "64k", "8M", "1G", "1.5G", "4096", also with a closing "B" or "iB"; powers of 1,024. */
bool cli_size_parse(const char *text, uint64_t *bytes);
/* Decimal, or hexadecimal after 0x. No sign, no blanks. */
bool cli_number_parse(const char *text, uint64_t *number);
/* Octal permission bits, 0..0777. */
bool cli_perm_parse(const char *text, uint32_t *perm);
/* RFC 3339 ("2027-01-31T08:00:00Z", "2027-01-31 08:00:00.250+02:00") -> *wall_ns, *delay_ns 0; or a
 * "+5m" -> *delay_ns, *wall_ns 0. Times before 1970 and after 2262 are refused. */
bool cli_time_parse(const char *text, uint64_t *wall_ns, uint64_t *delay_ns);

/* Exact, in the largest unit that divides it; cli_duration_parse() takes it back. */
const char *cli_duration_format(uint64_t ns, char text[CLI_UNIT_TEXT_BYTES]);
/* Two leading units, rounded down: "3m12s", "1.5ms". */
const char *cli_duration_human(uint64_t ns, char text[CLI_UNIT_TEXT_BYTES]);
/* "1.5 MiB"; "812 B". */
const char *cli_size_human(uint64_t bytes, char text[CLI_UNIT_TEXT_BYTES]);
/* "1,234,567". */
const char *cli_number_human(uint64_t number, char text[CLI_UNIT_TEXT_BYTES]);
/* UTC, milliseconds: "2027-01-31T08:00:00.250Z"; 0: "-". */
const char *cli_time_format(uint64_t wall_ns, char text[CLI_UNIT_TEXT_BYTES]);

#endif

/* SPDX-License-Identifier: MIT */
/* log list, verify, repair: the segments of a log, with or without a broker on it. Reading takes no
 * lock and writes nothing; repair holds the lock of the directory. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "args.h"
#include "base/clock.h"
#include "logdir.h"
#include "output.h"
#include "session/directory.h"
#include "units.h"

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* An empty name would lead to the root directory. */
static int place_check(const struct cli *cli)
{
    if (cli->argc == 0)
        return cli_place_check(cli);
    return *cli->argv[0] ? CLI_GO : cli_misused(cli, "DIR is empty: name the broker's directory");
}

/* The log of an instance, or the log itself. */
static void log_path(const struct cli *cli, char *path, size_t bytes)
{
    const char *dir = cli->argc > 0 ? cli->argv[0] : cli_dir(cli);
    snprintf(path, bytes, "%s/log", dir);
    if (!is_directory(path))
        snprintf(path, bytes, "%s", dir);
}

int cli_logdir_open(struct cli_logdir *l, const struct cli *cli)
{
    char text[PAWL_LOG_TEXT_BYTES] = "";
    *l = (struct cli_logdir){ .dir = -1 };
    int rc = place_check(cli);
    if (rc != CLI_GO)
        return rc;
    log_path(cli, l->path, sizeof l->path);
    l->dir = open(l->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l->dir < 0)
        return cli_failed(cli, "%s: %s", l->path, strerror(errno));
    l->io = pawl_io_posix_create(text);
    if (!l->io)
        return cli_failed(cli, "%s", text);
    rc = pawl_inspect_open(l->io, l->dir, &l->inspect, text);
    if (rc != PAWL_LOG_OK)
        return cli_failed(cli, "%s: %s", l->path, text);
    return CLI_GO;
}

void cli_logdir_close(struct cli_logdir *l)
{
    if (l->inspect)
        pawl_inspect_close(l->inspect);
    if (l->io)
        l->io->ops->destroy(l->io);
    if (l->dir >= 0)
        close(l->dir);
}

static const char *use_name(enum pawl_inspect_use use)
{
    static const char *const names[] = { "live", "free", "ready", "blank", "twice" };
    return (size_t)use < sizeof names / sizeof names[0] ? names[use] : "unknown";
}

static bool has_segment(const struct pawl_inspect_file *f)
{
    return f->use == PAWL_INSPECT_LIVE || f->use == PAWL_INSPECT_FREE ||
           f->use == PAWL_INSPECT_TWICE;
}

static json_t *file_json(const struct pawl_inspect_file *f, bool verified)
{
    json_t *j = json_pack("{s:s,s:s,s:s}", "file", f->name, "use", use_name(f->use), "begins_with",
                          f->begins_with);
    cli_json_number(j, "bytes", f->bytes);
    if (has_segment(f)) {
        cli_json_number(j, "segment", f->segment);
        cli_json_number(j, "position", f->position);
    }
    if (verified && f->use == PAWL_INSPECT_LIVE) {
        cli_json_number(j, "blocks", f->blocks);
        cli_json_number(j, "records", f->records);
        cli_json_number(j, "used_bytes", f->used_bytes);
        cli_json_number(j, "epoch_first", f->epoch_first);
        cli_json_number(j, "epoch_last", f->epoch_last);
    }
    return j;
}

static void files_table(const struct cli *cli, const struct cli_logdir *l, bool verified)
{
    static const char *const heads[] = { "FILE",    "USE",      ">SEGMENT", ">POSITION", ">BYTES",
                                         ">BLOCKS", ">RECORDS", ">USED",    ">EPOCHS" };
    struct cli_table t;
    const struct pawl_inspect_file *f;
    cli_table_init(&t, cli, heads, verified ? 9 : 5);
    for (uint32_t i = 0; (f = pawl_inspect_file(l->inspect, i)) != NULL; i++) {
        cli_table_add(&t, "%s", f->name);
        cli_table_add(&t, "%s", use_name(f->use));
        cli_table_add(&t, has_segment(f) ? "%llu" : "-", (unsigned long long)f->segment);
        cli_table_add(&t, has_segment(f) ? "%llu" : "-", (unsigned long long)f->position);
        cli_table_size(&t, cli, f->bytes);
        if (!verified)
            continue;
        cli_table_number(&t, cli, f->blocks);
        cli_table_number(&t, cli, f->records);
        cli_table_size(&t, cli, f->used_bytes);
        if (f->use != PAWL_INSPECT_LIVE)
            cli_table_add(&t, "-");
        else if (f->epoch_first == f->epoch_last)
            cli_table_add(&t, "%llu", (unsigned long long)f->epoch_first);
        else
            cli_table_add(&t, "%llu-%llu", (unsigned long long)f->epoch_first,
                          (unsigned long long)f->epoch_last);
    }
    cli_table_flush(&t);
    cli_table_fini(&t);
}

static void print_head(const struct cli *cli, const struct cli_logdir *l)
{
    const struct pawl_inspect_state *s = pawl_inspect_state(l->inspect);
    char size[CLI_UNIT_TEXT_BYTES], id[33];
    for (size_t i = 0; i < sizeof s->log_id; i++)
        snprintf(id + 2 * i, 3, "%02x", s->log_id[i]);
    cli_say(cli, "%s: log %s, format %u, segments of %s, known durable up to %llu, epoch %llu\n",
            l->path, id, s->version, cli_size_human(s->segment_bytes, size),
            (unsigned long long)s->head_position, (unsigned long long)s->head_epoch);
}

static void print_files(const struct cli *cli, const struct cli_logdir *l, bool verified)
{
    const struct pawl_inspect_file *f;
    if (!cli->json) {
        files_table(cli, l, verified);
        return;
    }
    for (uint32_t i = 0; (f = pawl_inspect_file(l->inspect, i)) != NULL; i++)
        cli_json_print(file_json(f, verified));
}

int cli_log_list(struct cli *cli)
{
    struct cli_logdir l;
    int rc = cli_args(cli, NULL, 0, 0, 1);
    if (rc != CLI_GO)
        return rc;
    rc = cli_logdir_open(&l, cli);
    if (rc == CLI_GO) {
        print_head(cli, &l);
        print_files(cli, &l, false);
        rc = CLI_DONE;
    }
    cli_logdir_close(&l);
    return rc;
}

/* --- verify ---------------------------------------------------------------------------------- */

static json_t *verdict_json(const struct pawl_inspect_state *s, int rc, const char *text)
{
    json_t *j = json_pack("{s:s,s:s}", "verdict",
                          rc == PAWL_LOG_OK       ? "whole"
                          : rc == PAWL_LOG_DAMAGE ? "damaged"
                                                  : "unreadable",
                          "text", text);
    cli_json_number(j, "oldest", s->oldest);
    cli_json_number(j, "tail", s->tail);
    cli_json_number(j, "epoch", s->epoch);
    cli_json_number(j, "blocks", s->blocks);
    cli_json_number(j, "records", s->records);
    cli_json_number(j, "bytes", s->bytes);
    json_object_set_new(j, "clean", json_boolean(s->clean));
    cli_json_number(j, "torn_bytes", s->cut_bytes);
    cli_json_time(j, "last_written", s->wall_ns);
    if (rc == PAWL_LOG_DAMAGE) {
        json_object_set_new(j, "damage_file", json_string(s->damage_file));
        cli_json_number(j, "damage_offset", s->damage_offset);
        cli_json_number(j, "damage_position", s->damage_position);
        cli_json_number(j, "next_valid", s->next_valid);
    }
    return j;
}

static int damaged(const struct cli *cli, const struct cli_logdir *l, const char *text)
{
    const struct pawl_inspect_state *s = pawl_inspect_state(l->inspect);
    cli_failed(cli, "%s: %s", l->path, text);
    if (*s->damage_file)
        fprintf(stderr, "pawl: in %s at offset %llu, which is position %llu\n", s->damage_file,
                (unsigned long long)s->damage_offset, (unsigned long long)s->damage_position);
    if (s->next_valid != UINT64_MAX)
        fprintf(stderr, "pawl: behind it good blocks begin again at position %llu\n",
                (unsigned long long)s->next_valid);
    fputs("pawl: a broker refuses to start on it; a copy or `pawl log repair` are the ways out\n",
          stderr);
    return CLI_REFUSED;
}

int cli_logdir_verify(const struct cli_logdir *l, const struct cli *cli)
{
    char text[PAWL_LOG_TEXT_BYTES] = "";
    int rc = pawl_inspect_verify(l->inspect, text);
    if (rc == PAWL_LOG_OK)
        return CLI_GO;
    return rc == PAWL_LOG_DAMAGE ? damaged(cli, l, text) : cli_failed(cli, "%s: %s", l->path, text);
}

static int verify(const struct cli *cli, const struct cli_logdir *l)
{
    const struct pawl_inspect_state *s = pawl_inspect_state(l->inspect);
    char text[PAWL_LOG_TEXT_BYTES] = "", size[CLI_UNIT_TEXT_BYTES], time[CLI_UNIT_TEXT_BYTES];
    int rc = pawl_inspect_verify(l->inspect, text);
    print_head(cli, l);
    print_files(cli, l, true);
    if (cli->json)
        cli_json_print(verdict_json(s, rc, text));
    fflush(stdout);
    if (rc == PAWL_LOG_DAMAGE)
        return damaged(cli, l, text);
    if (rc != PAWL_LOG_OK)
        return cli_failed(cli, "%s: %s", l->path, text);
    cli_say(cli,
            "\nwhole: %llu records in %llu blocks, %s, up to position %llu of epoch %llu, last "
            "written %s",
            (unsigned long long)s->records, (unsigned long long)s->blocks,
            cli_size_human(s->bytes, size), (unsigned long long)s->tail,
            (unsigned long long)s->epoch, cli_time_format(s->wall_ns, time));
    if (s->cut_bytes)
        cli_say(cli,
                "behind it %llu bytes of a block that was never acknowledged: the next start cuts "
                "them%s",
                (unsigned long long)s->cut_bytes, *text ? ", or they are being written" : "");
    else
        cli_say(cli, "%s",
                s->clean ? "it ends with a clean stop"
                         : "it ends without a clean stop: a broker is running, or was killed");
    return CLI_DONE;
}

int cli_log_verify(struct cli *cli)
{
    struct cli_logdir l;
    int rc = cli_args(cli, NULL, 0, 0, 1);
    if (rc != CLI_GO)
        return rc;
    rc = cli_logdir_open(&l, cli);
    if (rc == CLI_GO)
        rc = verify(cli, &l);
    cli_logdir_close(&l);
    return rc;
}

/* --- repair ---------------------------------------------------------------------------------- */

static int repair(const struct cli *cli, struct pawl_directory *directory, const char *path)
{
    struct pawl_repair_result result = { 0 };
    char text[PAWL_LOG_TEXT_BYTES] = "";
    struct pawl_io *io = pawl_io_posix_create(text);
    if (!io)
        return cli_failed(cli, "%s", text);
    int rc = pawl_log_repair(io, directory->log_fd, pawl_clock_wall(), &result, text);
    io->ops->destroy(io);
    if (rc != PAWL_LOG_OK)
        return cli_failed(cli, "%s: %s", path, text);
    if (cli->json) {
        json_t *j = json_pack("{s:b}", "changed", result.changed);
        cli_json_number(j, "tail", result.tail);
        cli_json_number(j, "lost_blocks", result.blocks);
        cli_json_number(j, "lost_records", result.records);
        cli_json_number(j, "lost_bytes", result.bytes);
        cli_json_number(j, "files_kept", result.files);
        json_object_set_new(j, "report", json_string(result.report));
        cli_json_print(j);
        return CLI_DONE;
    }
    if (!result.changed) {
        cli_say(cli, "%s: nothing is damaged, nothing was changed", path);
        return CLI_DONE;
    }
    cli_say(cli,
            "%s: cut at position %llu; given up are %llu readable records in %llu blocks, %llu "
            "bytes",
            path, (unsigned long long)result.tail, (unsigned long long)result.records,
            (unsigned long long)result.blocks, (unsigned long long)result.bytes);
    cli_say(cli, "%llu files are kept as lost-*, the report is log/%s",
            (unsigned long long)result.files, result.report);
    return CLI_DONE;
}

/* A log directory that was named itself belongs to the instance above it, where the lock is. */
static void instance_path(const struct cli *cli, char *path, size_t bytes)
{
    char log[PATH_MAX + 8];
    snprintf(log, sizeof log, "%s/log", cli->argv[0]);
    snprintf(path, bytes, is_directory(log) ? "%s" : "%s/..", cli->argv[0]);
}

int cli_log_repair(struct cli *cli)
{
    bool accept = false;
    char path[PATH_MAX + 8], log[PATH_MAX + 16], why[PAWL_LOG_TEXT_BYTES];
    const struct cli_option options[] = {
        { "accept-loss", CLI_FLAG, &accept, NULL, "what stands behind the damage may go", NULL },
    };
    int rc = cli_args(cli, options, 1, 1, 1);
    if (rc != CLI_GO)
        return rc;
    if (!accept)
        return cli_misused(cli, "--accept-loss is missing: what stands behind the damage is lost, "
                                "acknowledged or not; pawl log verify shows where that is");
    rc = place_check(cli);
    if (rc != CLI_GO)
        return rc;
    instance_path(cli, path, sizeof path);
    snprintf(log, sizeof log, "%s/log", path);
    if (!is_directory(log)) /* opening would make it */
        return cli_failed(cli, "%s: %s", log, strerror(errno));
    struct pawl_directory directory;
    if (pawl_directory_open(path, &directory, why, sizeof why) != 0)
        return cli_failed(cli, "%s", why);
    rc = repair(cli, &directory, path);
    pawl_directory_close(&directory);
    return rc;
}

/* SPDX-License-Identifier: MIT */
/* The directory, its lock and the socket: who may be there, and who is not let in. P1-P4, U12. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/unit.h"
#include "session/directory.h"
#include "session/listener.h"

static char root[64], dir[128], why[512];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int setup(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/pawl-unit-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    snprintf(dir, sizeof dir, "%s/a", root);
    if (mkdir(dir, 0750) != 0)
        return -1;
    snprintf(dir, sizeof dir, "%s/a/b", root);
    why[0] = '\0';
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static unsigned mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

static const char *in_dir(const char *name)
{
    static char text[256];
    snprintf(text, sizeof text, "%s/%s", dir, name);
    return text;
}

static void open_dir(struct pawl_directory *d)
{
    if (pawl_directory_open(dir, d, why, sizeof why) != 0)
        fail_msg("%s", why);
}

static void a_directory_is_made_with_its_rights(void **state)
{
    (void)state;
    struct pawl_directory d;
    open_dir(&d);
    assert_int_equal(mode_of(dir) & 0027, 0);
    assert_int_equal(mode_of(in_dir("log")), 0700);
    assert_int_equal(mode_of(in_dir("lock")), 0600);
    char text[32] = "", pid[32];
    snprintf(pid, sizeof pid, "%d\n", (int)getpid());
    assert_true(pread(d.lock_fd, text, sizeof text - 1, 0) > 0);
    assert_string_equal(text, pid);
    pawl_directory_close(&d);
    open_dir(&d); /* again, now that all is there */
    pawl_directory_close(&d);
}

static void a_missing_parent_is_named_and_not_made(void **state)
{
    (void)state;
    struct pawl_directory d;
    char missing[128], want[160];
    snprintf(missing, sizeof missing, "%s/typo", root);
    snprintf(dir, sizeof dir, "%s/typo//c/d/", root);
    assert_int_equal(pawl_directory_open(dir, &d, why, sizeof why), -1);
    snprintf(want, sizeof want, "there is no %s:", missing);
    assert_non_null(strstr(why, want));
    assert_int_equal(access(missing, F_OK), -1);
    /* the default place is another matter: nobody typed it */
    assert_int_equal(pawl_directory_make_parents(dir, why, sizeof why), 0);
    assert_int_equal(mode_of(missing) & 0077, 0);
    snprintf(missing, sizeof missing, "%s/typo/c/d", root);
    assert_int_equal(access(missing, F_OK), -1);
    open_dir(&d);
    pawl_directory_close(&d);
    /* a file in the way */
    snprintf(dir, sizeof dir, "%s/typo/c/d/lock/e", root);
    assert_int_equal(pawl_directory_open(dir, &d, why, sizeof why), -1);
    assert_non_null(strstr(why, "Not a directory"));
}

static void a_second_broker_is_told_the_pid_of_the_first(void **state)
{
    (void)state;
    struct pawl_directory d, second;
    open_dir(&d);
    assert_int_equal(pawl_directory_open(dir, &second, why, sizeof why), -1);
    char pid[32];
    snprintf(pid, sizeof pid, "pid %d", (int)getpid());
    assert_non_null(strstr(why, pid));
    assert_int_equal(second.fd, -1);
    pawl_directory_close(&d);
    open_dir(&second);
    pawl_directory_close(&second);
}

static void a_lock_that_lingers_a_moment_is_waited_for(void **state)
{
    (void)state;
    struct pawl_directory d;
    open_dir(&d);
    pawl_directory_close(&d);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(in_dir("lock"), O_RDWR);
        if (fd < 0 || flock(fd, LOCK_EX) != 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        usleep(150000); /* well within the second that is tried */
        _exit(0);
    }
    char c;
    assert_int_equal(read(ready[0], &c, 1), 1);
    open_dir(&d);
    pawl_directory_close(&d);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

static void a_directory_that_others_may_write_is_refused(void **state)
{
    (void)state;
    struct pawl_directory d;
    open_dir(&d);
    pawl_directory_close(&d);
    static const unsigned modes[] = { 0770, 0702, 0777 };
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(chmod(dir, modes[i]), 0);
        assert_int_equal(pawl_directory_open(dir, &d, why, sizeof why), -1);
        assert_non_null(strstr(why, "chmod go-w"));
    }
    assert_int_equal(chmod(dir, 0750), 0);
    assert_int_equal(chmod(in_dir("log"), 0777), 0);
    assert_int_equal(pawl_directory_open(dir, &d, why, sizeof why), -1);
}

static void a_directory_of_another_owner_is_refused(void **state)
{
    (void)state;
    struct pawl_directory d;
    if (geteuid() != 0)
        skip();
    open_dir(&d);
    pawl_directory_close(&d);
    assert_int_equal(chown(dir, 4242, 4242), 0);
    assert_int_equal(pawl_directory_open(dir, &d, why, sizeof why), -1);
    assert_non_null(strstr(why, "4242"));
    assert_int_equal(chown(dir, 0, 0), 0);
}

/* Each name that the directory code opens, replaced by each thing that should not be there. */
static void planted_names_are_not_followed(void **state)
{
    (void)state;
    struct pawl_directory d;
    open_dir(&d);
    pawl_directory_close(&d);
    char victim[128];
    snprintf(victim, sizeof victim, "%s/victim", root);
    int fd = open(victim, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(fd, "precious", 8), 8);
    (void)close(fd);
    for (int what = 0; what < 4; what++) {
        const char *lock = in_dir("lock");
        assert_int_equal(remove(lock), 0);
        if (what == 0)
            assert_int_equal(symlink(victim, lock), 0);
        else if (what == 1)
            assert_int_equal(mkfifo(lock, 0600), 0);
        else if (what == 2)
            assert_int_equal(link(victim, lock), 0);
        else
            assert_int_equal(mkdir(lock, 0700), 0);
        assert_int_equal(pawl_directory_open(dir, &d, why, sizeof why), -1);
    }
    char text[16] = "";
    fd = open(victim, O_RDONLY);
    assert_int_equal(read(fd, text, 15), 8);
    assert_string_equal(text, "precious");
    (void)close(fd);
    assert_int_equal(remove(in_dir("lock")), 0);
    assert_int_equal(rmdir(in_dir("log")), 0);
    assert_int_equal(symlink(root, in_dir("log")), 0);
    assert_int_equal(pawl_directory_open(dir, &d, why, sizeof why), -1);
}

/* --- socket ---------------------------------------------------------------------------------- */

static const char *socket_path(void)
{
    static char path[96];
    snprintf(path, sizeof path, "%s/s", root);
    return path;
}

static int knock(const char *path)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    memcpy(a.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc = connect(fd, (struct sockaddr *)&a, sizeof a) == 0 ? 0 : -errno;
    (void)close(fd);
    return rc;
}

static void the_socket_has_its_mode_whatever_the_umask(void **state)
{
    (void)state;
    static const mode_t masks[] = { 0, 022, 077, 0777 };
    for (unsigned i = 0; i < 4; i++) {
        struct pawl_listener l;
        mode_t old = umask(masks[i]);
        int rc = pawl_listener_open(socket_path(), &l, why, sizeof why);
        mode_t after = umask(old);
        if (rc != 0)
            fail_msg("%s", why);
        assert_int_equal(after, masks[i]); /* it is the program's, not ours */
        assert_int_equal(mode_of(socket_path()), 0660);
        assert_int_equal(knock(socket_path()), 0);
        pawl_listener_close(&l, 1);
        assert_int_equal(knock(socket_path()), -ENOENT);
    }
}

static void a_stale_socket_is_replaced_and_a_living_one_is_not(void **state)
{
    (void)state;
    struct pawl_listener l, second;
    assert_int_equal(pawl_listener_open(socket_path(), &l, why, sizeof why), 0);
    assert_int_equal(pawl_listener_open(socket_path(), &second, why, sizeof why), -1);
    char pid[32];
    snprintf(pid, sizeof pid, "pid %d", (int)getpid());
    assert_non_null(strstr(why, pid));
    pawl_listener_close(&l, 0); /* as after kill -9 */
    assert_int_equal(knock(socket_path()), -ECONNREFUSED);
    assert_int_equal(pawl_listener_open(socket_path(), &l, why, sizeof why), 0);
    assert_int_equal(knock(socket_path()), 0);
    pawl_listener_close(&l, 1);
}

static void what_is_not_a_socket_is_left_alone(void **state)
{
    (void)state;
    struct pawl_listener l;
    int fd = open(socket_path(), O_CREAT | O_WRONLY, 0600);
    (void)close(fd);
    assert_int_equal(pawl_listener_open(socket_path(), &l, why, sizeof why), -1);
    assert_int_equal(mode_of(socket_path()), 0600);
    assert_int_equal(remove(socket_path()), 0);
    assert_int_equal(symlink("/nowhere", socket_path()), 0);
    assert_int_equal(pawl_listener_open(socket_path(), &l, why, sizeof why), -1);
    assert_int_equal(l.fd, -1);
}

static void a_name_taken_by_another_is_not_unlinked(void **state)
{
    (void)state;
    struct pawl_listener l, other;
    assert_int_equal(pawl_listener_open(socket_path(), &l, why, sizeof why), 0);
    assert_int_equal(unlink(socket_path()), 0);
    assert_int_equal(pawl_listener_open(socket_path(), &other, why, sizeof why), 0);
    pawl_listener_close(&l, 1);
    assert_int_equal(knock(socket_path()), 0);
    pawl_listener_close(&other, 1);
}

static void a_path_may_have_107_bytes(void **state)
{
    (void)state;
    struct pawl_listener l;
    char path[PAWL_SOCKET_PATH_BYTES_MAX + 2];
    int n = snprintf(path, sizeof path, "%s/", root);
    memset(path + n, 'x', sizeof path - (size_t)n);
    path[PAWL_SOCKET_PATH_BYTES_MAX] = '\0';
    if (pawl_listener_open(path, &l, why, sizeof why) != 0)
        fail_msg("%s", why);
    assert_int_equal(knock(path), 0);
    pawl_listener_close(&l, 1);
    path[PAWL_SOCKET_PATH_BYTES_MAX] = 'x';
    path[PAWL_SOCKET_PATH_BYTES_MAX + 1] = '\0';
    assert_int_equal(pawl_listener_open(path, &l, why, sizeof why), -1);
    assert_non_null(strstr(why, "107"));
    assert_int_equal(pawl_listener_open("", &l, why, sizeof why), -1);
}

/* Of many that start at once on a stale name exactly one serves, and it keeps the name. */
static void of_many_at_once_one_gets_the_name(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct pawl_listener l;
        assert_int_equal(pawl_listener_open(socket_path(), &l, why, sizeof why), 0);
        pawl_listener_close(&l, 0);
        int go[2], won[2];
        assert_int_equal(pipe(go), 0);
        assert_int_equal(pipe(won), 0);
        pid_t pids[4];
        for (int i = 0; i < 4; i++) {
            pids[i] = fork();
            if (pids[i] == 0) {
                char c;
                (void)close(go[1]);
                (void)!read(go[0], &c, 1); /* until the end of the pipe: all together */
                if (pawl_listener_open(socket_path(), &l, why, sizeof why) != 0)
                    _exit(1);
                if (write(won[1], "w", 1) != 1)
                    _exit(2);
                pause();
                _exit(3);
            }
        }
        (void)close(go[0]);
        (void)close(go[1]);
        (void)close(won[1]);
        char c;
        assert_int_equal(read(won[0], &c, 1), 1);
        int losers = 0;
        for (int status; losers < 3; losers++) {
            pid_t pid = wait(&status);
            assert_true(pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 1);
            for (int i = 0; i < 4; i++)
                if (pids[i] == pid)
                    pids[i] = 0;
        }
        assert_int_equal(knock(socket_path()), 0);
        for (int i = 0; i < 4; i++)
            if (pids[i] != 0)
                (void)kill(pids[i], SIGKILL);
        (void)wait(NULL);
        (void)close(won[0]);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_directory_is_made_with_its_rights),
        TEST(a_missing_parent_is_named_and_not_made),
        TEST(a_second_broker_is_told_the_pid_of_the_first),
        TEST(a_lock_that_lingers_a_moment_is_waited_for),
        TEST(a_directory_that_others_may_write_is_refused),
        TEST(a_directory_of_another_owner_is_refused),
        TEST(planted_names_are_not_followed),
        TEST(the_socket_has_its_mode_whatever_the_umask),
        TEST(a_stale_socket_is_replaced_and_a_living_one_is_not),
        TEST(what_is_not_a_socket_is_left_alone),
        TEST(a_name_taken_by_another_is_not_unlinked),
        TEST(a_path_may_have_107_bytes),
        TEST(of_many_at_once_one_gets_the_name),
    };
    alarm(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

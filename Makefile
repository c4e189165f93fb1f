# pawl: the only build file. `make help` lists the targets.
#
# Sources are found by folder, so a new file needs no line here:
#   libclient/{base,abi,client}/*.c          -> libpawl      (base and abi also go into libpawld)
#   broker/{core,log,io,session,loop}/*.c    -> libpawld     broker/pawld.c -> pawld
#   tools/*.c -> pawl      bench/*.c -> pawl-bench      tests/lib/*.c -> linked into every test
#   tests/{unit,crash,integration,sim}/*_test.c -> one program each (cmocka or plain), exit 0 passed, 77 skipped
#   tests/fuzz/*_fuzz.c    -> one program each: replays its corpus; with FLAVOUR=fuzz a libFuzzer target
#   tests/sim/sim_*.c, tests/crash/crash_*.c  -> linked into the tests of their folder
#   tests/scenarios/*.c, */examples/*.c       -> one program each
#   tests/*.sh             -> scripts of `make check`, all but run.sh, demo.sh and bugs_run.sh

ifeq ($(origin CC),default)
CC = gcc
endif
ifeq ($(origin CXX),default)
CXX = g++
endif
AR ?= ar
PKG_CONFIG ?= pkg-config
INSTALL ?= install
CLANG_FORMAT ?= $(shell command -v clang-format-14 || echo clang-format)
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
DOCDIR ?= $(PREFIX)/share/doc/pawl
UNITDIR ?= $(PREFIX)/lib/systemd/system
COMPLETIONDIR ?= $(PREFIX)/share/bash-completion/completions
DESTDIR ?=
FLAVOUR ?= release
BUILD ?= build/$(FLAVOUR)
EXTRA ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

WARN = -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings \
       -Wundef -Wvla -Wno-unused-parameter
ifeq ($(WERROR),1)
WARN += -Werror
endif

OPT.release = -O2 -g
OPT.debug = -Og -g3 -DPAWL_VERIFY
OPT.asan = -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -DPAWL_VERIFY
OPT.tsan = -O1 -g -fsanitize=thread -fno-omit-frame-pointer
OPT.cov = -O0 -g --coverage
OPT.fuzz = -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -DPAWL_FUZZ
LD.asan = -fsanitize=address,undefined
LD.tsan = -fsanitize=thread
LD.cov = --coverage
LD.fuzz = -fsanitize=address,undefined

CPPFLAGS_ALL = -D_GNU_SOURCE -Ilibclient/include -Ilibclient -Ibroker/include -Ibroker -Itests $(CPPFLAGS)
CFLAGS_ALL = -std=gnu11 -fPIC -fvisibility=hidden -fno-strict-aliasing $(WARN) $(OPT.$(FLAVOUR)) $(CFLAGS) $(EXTRA)
LDFLAGS_ALL = $(LD.$(FLAVOUR)) $(LDFLAGS)
LIBS_CLIENT = -lpthread
LIBS_BROKER = -luring -lpthread

# The version stands in pawl.h alone. The soname changes with the first number that breaks the ABI.
VERSION := $(shell sed -n 's/^\#define PAWL_VERSION "\(.*\)"/\1/p' libclient/include/pawl.h)
SONUMBER = $(word 1,$(subst ., ,$(VERSION)))

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
SRC_BASE = $(wildcard libclient/base/*.c libclient/abi/*.c)
SRC_CLIENT = $(wildcard libclient/client/*.c)
SRC_BROKER = $(wildcard broker/core/*.c broker/log/*.c broker/io/*.c broker/session/*.c broker/loop/*.c)
SRC_TOOLS = $(wildcard tools/*.c)
SRC_BENCH = $(wildcard bench/*.c)
SRC_TESTLIB = $(wildcard tests/lib/*.c)
SRC_SIM = $(wildcard tests/sim/sim_*.c)
SRC_CRASH = $(wildcard tests/crash/crash_*.c)

TESTS_UNIT = $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/*_test.c))
TESTS_SIM = $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/sim/*_test.c))
TESTS_CRASH = $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/crash/*_test.c))
TESTS_INTEGRATION = $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/integration/*_test.c))
TESTS_FUZZ = $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/fuzz/*_fuzz.c))
TESTS_SHELL = $(wildcard tests/integration/*_test.sh)
TESTS_SCRIPT = $(filter-out tests/run.sh tests/demo.sh tests/bugs_run.sh,$(wildcard tests/*.sh))
SCENARIOS = $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/scenarios/*.c))
SRC_EXAMPLES = $(wildcard libclient/examples/*.c broker/examples/*.c)
# Some keep data of their own in SQLite. Without it they are left out, and `make examples` says so.
SRC_SQLITE = $(if $(SRC_EXAMPLES),$(shell grep -l '^\#include <sqlite3.h>' $(SRC_EXAMPLES)))
LIBS_SQLITE := $(shell $(PKG_CONFIG) --libs sqlite3 2>/dev/null)
NO_SQLITE = $(if $(LIBS_SQLITE),,$(SRC_SQLITE))
EXAMPLES = $(patsubst %.c,$(BUILD)/%,$(filter-out $(NO_SQLITE),$(SRC_EXAMPLES)))
PAWLD = $(if $(wildcard broker/pawld.c),$(BUILD)/pawld)
PROGRAMS = $(PAWLD) $(if $(SRC_TOOLS),$(BUILD)/pawl) \
           $(if $(SRC_BENCH),$(BUILD)/pawl-bench)
# Shared libraries are not made of sanitizer builds: their run-time belongs to the program.
SHARED = $(if $(filter release debug cov,$(FLAVOUR)),$(BUILD)/libpawl.so $(BUILD)/libpawld.so)

.PHONY: all lib tests tests-unit examples deps need install uninstall installcheck demo check check-sim check-crash \
        check-explore check-hops check-fuzz check-asan check-tsan check-bugs bench bench-peers format format-check clean help
.SECONDARY:
.DEFAULT_GOAL := all

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 18
	@echo '  variables: CC FLAVOUR=release|debug|asan|tsan|cov|fuzz BUILD PREFIX DESTDIR WERROR=1 JOBS FILE (demo)'

# --- build -----------------------------------------------------------------------------------------

all: $(BUILD)/libpawl.a $(BUILD)/libpawld.a $(SHARED) $(PROGRAMS) ## libraries, pawld, pawl, pawl-bench
lib: $(BUILD)/libpawl.a $(SHARED)
tests-unit: $(TESTS_UNIT)
tests: $(TESTS_UNIT) $(TESTS_SIM) $(TESTS_CRASH) $(TESTS_FUZZ) $(TESTS_INTEGRATION) $(SCENARIOS) $(EXAMPLES) ## build every test program
examples: $(EXAMPLES)
	@$(if $(NO_SQLITE),echo "left out for want of SQLite (make deps): $(NO_SQLITE)")

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -MMD -MP -c $< -o $@

$(BUILD)/libpawl.a: $(call obj,$(SRC_BASE) $(SRC_CLIENT))
	@mkdir -p $(@D)
	@rm -f $@
	$(AR) rcs $@ $^
$(BUILD)/libpawld.a: $(call obj,$(SRC_BASE) $(SRC_BROKER))
	@mkdir -p $(@D)
	@rm -f $@
	$(AR) rcs $@ $^
$(BUILD)/libpawl.so: $(call obj,$(SRC_BASE) $(SRC_CLIENT)) libclient/libpawl.map
	@mkdir -p $(@D)
	$(CC) -shared -Wl,-soname,libpawl.so.$(SONUMBER) -Wl,--version-script=libclient/libpawl.map -Wl,-z,defs \
	    $(LDFLAGS_ALL) $(filter %.o,$^) $(LIBS_CLIENT) -o $@.$(VERSION)
	@ln -sf $(@F).$(VERSION) $@.$(SONUMBER)
	@ln -sf $(@F).$(SONUMBER) $@
$(BUILD)/libpawld.so: $(call obj,$(SRC_BASE) $(SRC_BROKER)) broker/libpawld.map
	@mkdir -p $(@D)
	$(CC) -shared -Wl,-soname,libpawld.so.$(SONUMBER) -Wl,--version-script=broker/libpawld.map -Wl,-z,defs \
	    $(LDFLAGS_ALL) $(filter %.o,$^) $(LIBS_BROKER) -o $@.$(VERSION)
	@ln -sf $(@F).$(VERSION) $@.$(SONUMBER)
	@ln -sf $(@F).$(SONUMBER) $@
$(BUILD)/pawld: $(call obj,broker/pawld.c) $(BUILD)/libpawld.a
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -o $@
$(BUILD)/pawl: $(call obj,$(SRC_TOOLS)) $(BUILD)/libpawl.a $(BUILD)/libpawld.a
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -ljansson -o $@
$(BUILD)/pawl-bench: $(call obj,$(SRC_BENCH)) $(BUILD)/libpawl.a $(BUILD)/libpawld.a
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -ljansson -lm -o $@

# An archive: a test takes only what it uses of tests/lib.
TEST_LIBS = $(BUILD)/libpawltest.a $(BUILD)/libpawl.a $(BUILD)/libpawld.a
$(BUILD)/libpawltest.a: $(call obj,$(SRC_TESTLIB))
	@mkdir -p $(@D)
	@rm -f $@
	$(AR) rcs $@ $^
$(BUILD)/tests/unit/%: $(BUILD)/obj/tests/unit/%.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -lcmocka -lm -o $@
$(BUILD)/tests/unit/tool_output_test: LIBS_BROKER += -ljansson
$(BUILD)/tests/unit/bench_report_test: $(call obj,bench/report.c bench/plot.c)
$(BUILD)/tests/integration/%: $(BUILD)/obj/tests/integration/%.o $(TEST_LIBS) | $(PAWLD)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -lcmocka -lm -o $@
$(BUILD)/tests/integration/cli_promise_test: | $(BUILD)/pawl
$(BUILD)/tests/scenarios/%: $(BUILD)/obj/tests/scenarios/%.o $(TEST_LIBS) | $(PAWLD)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -o $@
$(BUILD)/tests/sim/%: $(BUILD)/obj/tests/sim/%.o $(call obj,$(SRC_SIM)) $(TEST_LIBS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -lcmocka -lm -o $@
$(BUILD)/tests/crash/%: $(BUILD)/obj/tests/crash/%.o $(call obj,$(SRC_CRASH)) $(TEST_LIBS) | $(PAWLD)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -lcmocka -lm -o $@
$(BUILD)/tests/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) $(if $(filter fuzz,$(FLAVOUR)),-fsanitize=fuzzer) $^ $(LIBS_BROKER) -lcmocka -lm -o $@
$(BUILD)/libclient/examples/%: $(BUILD)/obj/libclient/examples/%.o $(BUILD)/libpawl.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_CLIENT) -o $@
$(patsubst %.c,$(BUILD)/%,$(SRC_SQLITE)): LIBS_CLIENT += $(LIBS_SQLITE)
$(BUILD)/broker/examples/%: $(BUILD)/obj/broker/examples/%.o $(BUILD)/libpawl.a $(BUILD)/libpawld.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -o $@

# --- what it needs ---------------------------------------------------------------------------------

# package = what proves that it is there: a command, or a header that the compiler finds
NEEDS = build-essential=gcc build-essential=make pkg-config=pkg-config liburing-dev=liburing.h libxxhash-dev=xxhash.h \
        libjansson-dev=jansson.h $(NEEDS_MORE)
NEEDS_TESTS = libcmocka-dev=cmocka.h python3=python3
NEEDS_EXAMPLES = libsqlite3-dev=sqlite3.h
NEEDS_CI = build-essential=g++ clang=clang clang-format=clang-format libclang-rt-14-dev=libclang_rt.asan-x86_64.a \
           e2fsprogs=mkfs.ext4 util-linux=unshare mount=losetup
HEADERS_FIRST = \#include <stdarg.h>\n\#include <stddef.h>\n\#include <setjmp.h>\n\#include <stdint.h>\n
missing = for n in $(NEEDS); do p=$${n%%=*}; w=$${n\#*=}; case $$w in \
    (*.h) printf '$(HEADERS_FIRST)\#include <%s>\n' $$w | cc -E -x c - >/dev/null 2>&1 ;; \
    (/*) test -e $$w ;; \
    (*.a) ls /usr/lib/llvm-*/lib/clang/*/lib/linux/$$w >/dev/null 2>&1 ;; \
    (*) command -v $$w >/dev/null 2>&1 || test -x /usr/sbin/$$w ;; esac || echo $$p; done | sort -u

deps: ## install what is missing (Debian, Ubuntu); CI=1: also what .ci/run needs
deps: NEEDS_MORE = $(if $(DEMO),,$(NEEDS_TESTS) $(NEEDS_EXAMPLES)) $(if $(CI),$(NEEDS_CI))
need: NEEDS_MORE = $(NEEDS_TESTS)
deps:
	@m=$$($(missing)); if [ -z "$$m" ]; then exit 0; fi; m=$$(echo $$m); echo "missing: $$m"; \
	if ! command -v apt-get >/dev/null; then echo "install the like of these with the package manager of this system"; exit 1; fi; \
	if [ "$$(id -u)" = 0 ]; then as=; elif command -v sudo >/dev/null; then as=sudo; else \
	    echo "as root: apt-get install $$m"; exit 1; fi; \
	$$as apt-get update -q && $$as env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$m

need:
	@m=$$($(missing)); if [ -n "$$m" ]; then echo "missing:" $$m "(make deps installs them)"; exit 1; fi

# --- install ---------------------------------------------------------------------------------------

MAN_PAGES = $(wildcard libclient/man/*.[1-9] broker/man/*.[1-9] tools/man/*.[1-9])
pc = sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@VERSION@|$(VERSION)|'
D = $(DESTDIR)

install: all ## libraries, headers, programs, man pages, pkg-config and systemd files under DESTDIR/PREFIX
	$(INSTALL) -d $(D)$(BINDIR) $(D)$(LIBDIR)/pkgconfig $(D)$(INCLUDEDIR) $(D)$(UNITDIR)
	$(INSTALL) -m 755 $(PROGRAMS) $(D)$(BINDIR)
	for l in libpawl libpawld; do \
	    $(INSTALL) -m 644 $(BUILD)/$$l.a $(D)$(LIBDIR)/ && \
	    $(INSTALL) -m 755 $(BUILD)/$$l.so.$(VERSION) $(D)$(LIBDIR)/ && \
	    ln -sf $$l.so.$(VERSION) $(D)$(LIBDIR)/$$l.so.$(SONUMBER) && \
	    ln -sf $$l.so.$(SONUMBER) $(D)$(LIBDIR)/$$l.so || exit 1; done
	$(INSTALL) -m 644 libclient/include/pawl.h broker/include/pawld.h $(D)$(INCLUDEDIR)
	$(pc) libclient/pawl.pc.in > $(D)$(LIBDIR)/pkgconfig/pawl.pc
	$(pc) broker/pawld.pc.in > $(D)$(LIBDIR)/pkgconfig/pawld.pc
	sed 's|@BINDIR@|$(BINDIR)|' broker/pawld.service.in > $(D)$(UNITDIR)/pawld.service
	for m in $(MAN_PAGES); do s=$(D)$(MANDIR)/man$${m##*.}; $(INSTALL) -d $$s && $(INSTALL) -m 644 $$m $$s || exit 1; done
	$(INSTALL) -d $(D)$(DOCDIR) && $(INSTALL) -m 644 libclient/EXACTLY_ONCE.md $(D)$(DOCDIR)
	$(INSTALL) -d $(D)$(COMPLETIONDIR) && $(INSTALL) -m 644 tools/pawl.bash $(D)$(COMPLETIONDIR)/pawl

uninstall: ## take all of that away again
	rm -f $(addprefix $(D)$(BINDIR)/,$(notdir $(PROGRAMS))) $(addprefix $(D)$(INCLUDEDIR)/,pawl.h pawld.h)
	rm -f $(foreach l,libpawl libpawld,$(addprefix $(D)$(LIBDIR)/$l,.a .so .so.$(SONUMBER) .so.$(VERSION)))
	rm -f $(D)$(DOCDIR)/EXACTLY_ONCE.md $(addprefix $(D)$(LIBDIR)/pkgconfig/,pawl.pc pawld.pc) $(D)$(UNITDIR)/pawld.service
	rm -f $(foreach m,$(MAN_PAGES),$(D)$(MANDIR)/man$(subst .,,$(suffix $m))/$(notdir $m)) $(D)$(COMPLETIONDIR)/pawl

installcheck: all ## install into a temporary place, build and run the first program there
	BUILD=$(BUILD) CC="$(CC)" CXX="$(CXX)" tests/install_check.sh

# --- run -------------------------------------------------------------------------------------------

demo: ## the main job on a real text (FILE=), with broker and consumers killed meanwhile
	@$(MAKE) --no-print-directory deps DEMO=1
	@$(MAKE) --no-print-directory -s -j$(JOBS) $(BUILD)/pawld $(BUILD)/tests/scenarios/demo
	@$(BUILD)/tests/scenarios/demo $(FILE)

RUN = BUILD=$(BUILD) FLAVOUR=$(FLAVOUR) CC="$(CC)" CXX="$(CXX)" JOBS=$(JOBS) tests/run.sh

check: need ## every test in its short form; `N passed, N failed, N skipped` at the end
	@$(MAKE) --no-print-directory -s -j$(JOBS) BUILD=$(BUILD) all tests
	@$(RUN) $(TESTS_CRASH) $(TESTS_SIM) $(SCENARIOS) $(TESTS_INTEGRATION) $(TESTS_SHELL) $(TESTS_UNIT) $(TESTS_FUZZ) $(TESTS_SCRIPT)

check-sim: need ## 20,000 seeds of the simulator
	@$(MAKE) --no-print-directory -s -j$(JOBS) $(TESTS_SIM)
	@PAWL_SIM_SEEDS=20000 TEST_TIMEOUT=7200 $(RUN) $(TESTS_SIM)

check-crash: need ## 300 kills of brokers, 1,000 of clients, 10,000 in a direct queue, 20,000 crash images, every bit flipped, 100,000 retried operations
	@$(MAKE) --no-print-directory -s -j$(JOBS) $(TESTS_CRASH) $(PROGRAMS)
	@PAWL_KILLS=300 PAWL_CLIENT_KILLS=1000 PAWL_DIRECT_KILLS=10000 PAWL_DIRECT_STOPS=2000 PAWL_DIRECT_BROKER_KILLS=100 PAWL_DIRECT_RESTARTS=100 PAWL_CRASH_IMAGES=20000 PAWL_CRASH_FULL=1 PAWL_COUNTER_SECONDS=60 PAWL_RETRIED=100000 TEST_TIMEOUT=7200 $(RUN) $(TESTS_CRASH)

# A build of its own: what is released holds nothing of it.
check-hops: need ## every operation, its client or broker killed at each hop of its way
	@$(MAKE) --no-print-directory -s -j$(JOBS) BUILD=build/hops EXTRA="$(EXTRA) -DPAWL_KILL_POINTS" build/hops/tests/crash/hops_test
	@BUILD=build/hops build/hops/tests/crash/hops_test

FUZZ_SECONDS ?= 60
check-fuzz: need ## each fuzz target for FUZZ_SECONDS (60) with libFuzzer
	@$(MAKE) --no-print-directory -s -j$(JOBS) FLAVOUR=fuzz CC=clang BUILD=build/fuzz tests-fuzz
	@FUZZ_SECONDS=$(FUZZ_SECONDS) BUILD=build/fuzz tests/fuzz/fuzz_run.sh
tests-fuzz: $(TESTS_FUZZ)

check-asan: need ## all tests under the address and undefined behaviour sanitizers
	@$(MAKE) --no-print-directory -s FLAVOUR=asan BUILD=build/asan check TESTS_SCRIPT=

# The thread sanitizer sees nothing between two processes: these have both sides in one.
THREADED = $(filter %thread_test %embed_test %lanes_test %loop_test %engine_test,$(TESTS_UNIT) $(TESTS_INTEGRATION))
check-tsan: need ## the tests with threads under the thread sanitizer
	@$(MAKE) --no-print-directory -s FLAVOUR=tsan BUILD=build/tsan run-tsan
run-tsan:
	@$(MAKE) --no-print-directory -s -j$(JOBS) $(THREADED)
	@$(RUN) $(THREADED)

EXPLORE_SECONDS ?= 14400
check-explore: need ## the explorer of direct queues, each case to its end or to 60 million states; an hour or more
	@$(MAKE) --no-print-directory -s -j$(JOBS) $(BUILD)/tests/unit/direct_explore_test
	@PAWL_EXPLORE=long TEST_TIMEOUT=$(EXPLORE_SECONDS) $(RUN) $(BUILD)/tests/unit/direct_explore_test

check-bugs: need ## every seeded bug must make its test fail
	@BUILD=$(BUILD) JOBS=$(JOBS) tests/bugs_run.sh

bench: need ## measure; the full set takes minutes
	@$(MAKE) --no-print-directory -s -j$(JOBS) $(PROGRAMS)
	@$(BUILD)/pawl-bench $(BENCH_ARGS)

# Other programs on the same work. Not part of `all`: it wants their servers and libraries.
NEEDS_PEERS = build-essential=g++ gnuplot-nox=gnuplot libzmq3-dev=zmq.h libnng-dev=nng/nng.h \
    libboost-dev=/usr/include/boost/version.hpp iceoryx=iox-roudi libiceoryx-binding-c-dev=/usr/include/iceoryx/. \
    redis-server=redis-server libhiredis-dev=hiredis/hiredis.h beanstalkd=beanstalkd \
    libsqlite3-dev=sqlite3.h nats-server=nats-server rabbitmq-server=rabbitmq-server \
    librabbitmq-dev=amqp.h postgresql=/usr/lib/postgresql libpq-dev=/usr/include/postgresql
SRC_PEERS = $(wildcard bench/peers/*.c)
PEERS_HARNESS = $(call obj,$(addprefix bench/,report.c plot.c host.c process.c guard.c device.c))
PEERS_LIBS = -lzmq -lnng -liceoryx_binding_c -liceoryx_posh -liceoryx_hoofs -lhiredis -lsqlite3 -lrabbitmq -lpq -lrt
PEERS_INCLUDE = $(addprefix -isystem ,$(lastword $(wildcard /usr/include/iceoryx/v*)) /usr/include/postgresql)
$(BUILD)/obj/bench/peers/%.o: CPPFLAGS_ALL += $(PEERS_INCLUDE)
$(BUILD)/obj/bench/peers/%.o: bench/peers/%.cpp
	@mkdir -p $(@D)
	$(CXX) $(CPPFLAGS_ALL) -std=c++17 -O2 -g -Wall -Wextra $(EXTRA) -MMD -MP -c $< -o $@
$(BUILD)/pawl-bench-peers: $(call obj,$(SRC_PEERS)) $(BUILD)/obj/bench/peers/hop_boost.o $(PEERS_HARNESS) \
        $(BUILD)/libpawl.a $(BUILD)/libpawld.a
	$(CXX) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -ljansson -lm $(PEERS_LIBS) -o $@

PEERS_ARGS ?= --markdown $(BUILD)/peers.md --plot $(BUILD)/peers.svg
bench-peers: ## pawl beside what people could use instead; installs them, ten to twenty minutes
	@$(MAKE) --no-print-directory -s deps NEEDS_TESTS= NEEDS_EXAMPLES="$(NEEDS_PEERS)"
	@$(MAKE) --no-print-directory -s -j$(JOBS) $(PROGRAMS) $(BUILD)/pawl-bench-peers
	@$(BUILD)/pawl-bench-peers $(PEERS_ARGS)

SOURCES = $(shell find libclient broker tools bench tests -name '*.[ch]' 2>/dev/null)
format-check: ## clang-format 14 agrees
	@$(CLANG_FORMAT) --dry-run -Werror $(SOURCES) && echo "format: $(words $(SOURCES)) files agree"
format:
	$(CLANG_FORMAT) -i $(SOURCES)

clean: ## remove build/
	rm -rf build

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

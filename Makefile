# pawl: the only build file. `make help` lists the targets.
#
# Sources are found by folder, so a new file needs no line here:
#   libclient/{base,abi,client}/*.c          -> libpawl      (base and abi also go into libpawld)
#   broker/{core,log,io,session,loop}/*.c    -> libpawld     broker/pawld.c -> pawld
#   tools/*.c -> pawl      bench/*.c -> pawl-bench      tests/lib/*.c -> linked into every test
#   tests/{unit,crash,integration,sim}/*_test.c -> one program each (cmocka or plain), exit 0 passed, 77 skipped
#   tests/fuzz/*_fuzz.c    -> one program each: replays its corpus; with FLAVOUR=fuzz a libFuzzer target
#   tests/sim/sim_*.c, tests/crash/crash_*.c  -> linked into the tests of their folder

CC ?= gcc
AR ?= ar
PKG_CONFIG ?= pkg-config
PREFIX ?= /usr/local
DESTDIR ?=
FLAVOUR ?= release
BUILD ?= build/$(FLAVOUR)
EXTRA ?=

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

.PHONY: all lib check clean help
.SECONDARY:
all: $(BUILD)/libpawl.a $(BUILD)/libpawld.a $(if $(wildcard broker/pawld.c),$(BUILD)/pawld) \
     $(if $(SRC_TOOLS),$(BUILD)/pawl) $(if $(SRC_BENCH),$(BUILD)/pawl-bench)

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
$(BUILD)/pawld: $(call obj,broker/pawld.c) $(BUILD)/libpawld.a
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -o $@
$(BUILD)/pawl: $(call obj,$(SRC_TOOLS)) $(BUILD)/libpawl.a $(BUILD)/libpawld.a
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -ljansson -o $@
$(BUILD)/pawl-bench: $(call obj,$(SRC_BENCH)) $(BUILD)/libpawl.a $(BUILD)/libpawld.a
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -ljansson -lm -o $@

TEST_LIBS = $(call obj,$(SRC_TESTLIB)) $(BUILD)/libpawl.a $(BUILD)/libpawld.a
$(BUILD)/tests/unit/%: $(BUILD)/obj/tests/unit/%.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -lcmocka -lm -o $@
$(BUILD)/tests/integration/%: $(BUILD)/obj/tests/integration/%.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -lcmocka -lm -o $@
$(BUILD)/tests/sim/%: $(BUILD)/obj/tests/sim/%.o $(call obj,$(SRC_SIM)) $(TEST_LIBS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -lcmocka -lm -o $@
$(BUILD)/tests/crash/%: $(BUILD)/obj/tests/crash/%.o $(call obj,$(SRC_CRASH)) $(TEST_LIBS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) $^ $(LIBS_BROKER) -lcmocka -lm -o $@
$(BUILD)/tests/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) $(if $(filter fuzz,$(FLAVOUR)),-fsanitize=fuzzer) $^ $(LIBS_BROKER) -lm -o $@

tests-unit: $(TESTS_UNIT)

clean:
	rm -rf build

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

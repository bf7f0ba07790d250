# make                      build the library and grade it, with and without Valgrind
# make SUBMISSION=file.c    grade a student's llm_memory.c the same way
# make quick                the tests of a change: no compiler of submissions, no Valgrind, no browser;
#                           what a package printed the last time, if nothing that it reads has changed
# make test                 at least one test of each package and each rule
# make test-long            more cases of these rules: other GPU kernels, C programs, pages, submissions; OpenAI's client
# make exhaustive           for hours: full matrices, soaks, every short sequence of calls, new random cases
# make test-tiers           the tests of keys and values in Redis, which it installs
# make llmgrade             build/llmgrade, which grades submissions in a sandbox
# make mutants              print which stage of llmgrade finds which wrong submission
# make repeat               grade every submission six times, with the same result
# make loaded               grade every third submission alone and beside 20 busy programs, with the same result
# make llmsim               build/llmsim, which simulates serving
# make llmserve             build/llmserve, which serves models on the CPU (build/llmserve demo needs no model)
# make kernels              compile the GPU kernels (.cu) to PTX, with clang-19
# make figures              the paper's experiments in build/figures, compared with the paper
# make bench                the speed tables of the README, and the time of llmgrade
# make lib                  build/libllm_memory.so and build/libllm_memory.a, nothing else
# make cache                build/libllm_cache.so and build/libllm_cache.a, the serving core for C
# make dropin DIR=path      make a homework folder use this library
# make install uninstall    PREFIX=/usr/local, LIBDIR=PREFIX/lib, DESTDIR=
# make vet                  gofmt, vet
# make check                the same, vet for arm64, staticcheck, import rules
# make race                 tests of what many threads call, with the race detector
# make invariants           tests of memory managers and schedulers that check themselves after every call
# make lab KIND=arm64       make, or COMMAND='...', on an emulated machine: no-rdtscp, nehalem or arm64 (.ci/lab)
# make clean

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
VERSION := 1.1.0
SONAME := libllm_memory.so.1
B := build

# The compiler and linker of the libraries and of the suite that grades them: make CC=clang.
# A submission is always compiled with gcc, as the course does.
ifeq ($(origin CC),default)
CC := gcc
endif
export CC
# Go's caches need a place.
export HOME := $(shell .ci/home)

# What .ci/tools looks for before a library is built: what the target that was named needs, so that
# a user who cannot install it sees everything at once.
NEEDS := build
all grade: NEEDS := build grade
test-long exhaustive: NEEDS := test

# What a program says by --version.
STAMP := -X=llmmemory/internal/terminal.version=$$(.ci/version $(VERSION))

# As in the handout.
COURSE_FLAGS := -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -ggdb

# Looked for by the recipes, which may have to install it first.
GO := GOTOOLCHAIN=$$(.ci/tools toolchain) $$(.ci/tools go)
# The libraries are linked without debug info, so it is not compiled.
# Go's linker finds capi/link in PATH: its options cannot quote every name of a folder.
BUILD := PATH="$$PWD/capi:$$PATH" CGO_ENABLED=1 $(GO) build -buildvcs=false -trimpath -gcflags=all=-dwarf=false

# The runtime as a guest: no preemption signals and no changes of GOMAXPROCS, no
# checks of pointers that C owns. Without debug info, whose DWARF 5 Valgrind
# before 3.20 cannot read.
RUNTIME := asyncpreemptoff=1,cgocheck=0,updatemaxprocs=0,containermaxprocs=0
LDFLAGS_GO := -s -w -X=runtime.godebugDefault=$(RUNTIME)
WRAPPED := --wrap=pthread_create --wrap=pthread_key_create --wrap=_cgo_wait_runtime_init_done --wrap=_cgo_release_context
WRAP := $(WRAPPED:%=-Wl,%)
SO_LINK := $(WRAP) -Wl,-soname,$(SONAME) -Wl,--version-script=capi/exports.map

# An archive's object begins with data. On arm64 GNU ld looks for an erratum of Cortex-A53 between the
# mapping symbols of a section, and crashes if there are some and none is at its beginning; Go's code has none.
FIRST := echo .long 0 | as --noexecstack -o first.o -

SOURCES := go.mod llm_memory.h capi/link capi/for-valgrind $(wildcard capi/*.go capi/*.c capi/*.h capi/*.map) \
  $(filter-out %_test.go,$(wildcard internal/homework/course/*.go internal/block/*.go internal/invariants/*.go)) \
  $(wildcard internal/homework/course/*.s internal/block/*.s)

# The serving core's library uses Go's heap and collector. The tag makes the runtime describe its
# stacks and objects to Valgrind; elsewhere that costs nothing. The library keeps its symbol table,
# because Valgrind's suppressions name functions.
CACHE_LDFLAGS := -w -X=runtime.godebugDefault=$(RUNTIME)
CACHE_BUILD := $(BUILD) -tags valgrind
CACHE_VERSION := 3.0.0
CACHE_SONAME := libllm_cache.so.3
# It stays in memory when a program closes it: capi/link removes -z nodelete where Go asks for it.
CACHE_LINK := -Wl,-z,nodelete,-soname,$(CACHE_SONAME) -Wl,--version-script=capi/cache/exports.map
CACHE_SOURCES := go.mod capi/link capi/for-valgrind $(wildcard capi/cache/*.go capi/cache/*.c capi/cache/*.h capi/cache/*.map) \
  $(filter-out %_test.go,$(wildcard internal/scheduling/blockhash/*.go internal/scheduling/vllm/v1/*/*.go internal/block/*.go internal/serving/attention/*.go internal/serving/kvstore/*.go internal/serving/parallel/*.go internal/serving/cuda/*.go internal/serving/cuda/kernels/*.go internal/invariants/*.go)) \
  $(wildcard internal/serving/attention/*.s internal/serving/kvstore/*.s internal/serving/cuda/kernels/*.ptx)

# What hangs is ended; a slow or busy machine is not. make check vets.
CHEAP := GOTOOLCHAIN=$$(.ci/tools toolchain) .ci/cheaply $$(.ci/tools go)
TEST := $(CHEAP) test -buildvcs=false -vet=off -timeout 6h
# With a Check that the tag calls, or with tests of what has one.
CHECKED := ./internal/scheduling/vllm/v0 ./internal/scheduling/vllm/v1/... ./internal/scheduling/paper ./internal/serving/kvstore/... ./internal/serving/engine

.PHONY: all lib cache kernels grade llmgrade llmsim llmserve llmserve-mpi quick test test-long test-tiers test-mpi race invariants mutants exhaustive repeat loaded figures bench dropin install uninstall vet check clean
.DELETE_ON_ERROR:

all: grade

lib: $(B)/libllm_memory.so $(B)/libllm_memory.a

$(B)/libllm_memory.so: $(SOURCES) Makefile
	@.ci/tools $(NEEDS)
	@mkdir -p $(B) && ln -sf libllm_memory.so $(B)/$(SONAME)
	@dir=$$(mktemp -d $(B)/so.XXXXXX) && trap 'rm -rf '$$dir EXIT && \
	  $(BUILD) -buildmode=c-shared -ldflags="$(LDFLAGS_GO) -extld=link -extldflags '$(SO_LINK)'" -o $$dir/libllm_memory.so ./capi && \
	  mv $$dir/libllm_memory.so $@

# After the other, because both may install tools. It is one object, so that only the
# public names are global and the runtime's constructor stays in front of ours. Both
# run before the constructors of the program, whose priorities begin at 101: these may call.
$(B)/libllm_memory.a: $(SOURCES) Makefile | $(B)/libllm_memory.so
	@.ci/tools $(NEEDS)
	@mkdir -p $(B)
	@root=$$PWD && dir=$$(mktemp -d $(B)/a.XXXXXX) && trap 'rm -rf '$$dir EXIT && \
	  $(BUILD) -buildmode=c-archive -ldflags="$(LDFLAGS_GO)" -o $$dir/members.a ./capi && \
	  sed -n '/global:/,/local:/s/^ *\([a-z_]*\);$$/\1/p' capi/exports.map >$$dir/names && \
	  ( cd $$dir && ar x members.a && $(FIRST) && ld -r -d $(WRAPPED) -o all.o first.o $$(ar t members.a | grep '\.o$$') && "$$root/capi/for-valgrind" all.o && \
	    objcopy --strip-debug --keep-global-symbols=names --rename-section .init_array=.init_array.00100 all.o llm_memory.o && ar rcs libllm_memory.a llm_memory.o ) && \
	  mv $$dir/libllm_memory.a $@

cache: $(B)/libllm_cache.so $(B)/libllm_cache.a

$(B)/libllm_cache.so: $(CACHE_SOURCES) Makefile
	@.ci/tools $(NEEDS)
	@mkdir -p $(B) && ln -sf libllm_cache.so $(B)/$(CACHE_SONAME)
	@dir=$$(mktemp -d $(B)/so.XXXXXX) && trap 'rm -rf '$$dir EXIT && \
	  $(CACHE_BUILD) -buildmode=c-shared -ldflags="$(CACHE_LDFLAGS) -extld=link -extldflags '$(CACHE_LINK)'" -o $$dir/libllm_cache.so ./capi/cache && \
	  mv $$dir/libllm_cache.so $@

$(B)/libllm_cache.a: $(CACHE_SOURCES) Makefile | $(B)/libllm_cache.so
	@.ci/tools $(NEEDS)
	@mkdir -p $(B)
	@root=$$PWD && dir=$$(mktemp -d $(B)/a.XXXXXX) && trap 'rm -rf '$$dir EXIT && \
	  $(CACHE_BUILD) -buildmode=c-archive -ldflags="$(CACHE_LDFLAGS)" -o $$dir/members.a ./capi/cache && \
	  sed -n '/global:/,/local:/s/^ *\([a-z_]*\);$$/\1/p' capi/cache/exports.map >$$dir/names && \
	  ( cd $$dir && ar x members.a && $(FIRST) && ld -r -d -o all.o first.o $$(ar t members.a | grep '\.o$$') && "$$root/capi/for-valgrind" all.o && \
	    objcopy --strip-debug --keep-global-symbols=names --rename-section .init_array=.init_array.00100 all.o llm_cache.o && ar rcs libllm_cache.a llm_cache.o ) && \
	  mv $$dir/libllm_cache.a $@

ifdef SUBMISSION
grade:
	@CC=gcc .ci/tools grade
	@grader/grade "$$SUBMISSION"
else
grade: lib
	@.ci/tools grade
	@grader/grade
endif

llmgrade:
	@.ci/tools build
	@mkdir -p $(B)
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -trimpath -ldflags="$(STAMP)" -o $(B)/llmgrade ./cmd/llmgrade

llmsim:
	@.ci/tools build
	@mkdir -p $(B)
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -trimpath -ldflags="$(STAMP)" -o $(B)/llmsim ./cmd/llmsim

llmserve:
	@.ci/tools build
	@mkdir -p $(B)
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -trimpath -ldflags="$(STAMP)" -o $(B)/llmserve ./cmd/llmserve

# With MPI, for one model on several machines. Another implementation's compiler can be given as MPICC.
MPICC ?= mpicc
llmserve-mpi:
	@.ci/tools build
	@command -v $(MPICC) >/dev/null || { echo "llmserve-mpi needs $(MPICC): apt-get install libopenmpi-dev openmpi-bin" >&2; exit 1; }
	@mkdir -p $(B)
	@CC=$(MPICC) CGO_ENABLED=1 $(GO) build -buildvcs=false -trimpath -tags mpi -ldflags="$(STAMP)" -o $(B)/llmserve-mpi ./cmd/llmserve

# The PTX is in the repository, so that building needs no clang.
kernels:
	@internal/serving/cuda/kernels/compile internal/serving/cuda/kernels

figures: llmsim
	@$(B)/llmsim figures --check -o $(B)/figures

quick:
	@.ci/tools build
	@$(TEST) -short ./...

# After the tools, which two libraries would install at the same time. One recipe makes both archives
# the same way, so make test leaves that of the cache to make test-long.
test:
	@.ci/tools test
	@$(MAKE) -s -j2 lib $(B)/libllm_cache.so
	@.ci/test

test-long: lib cache
	@.ci/tools test
	@LLM_TEST_LONG=1 .ci/test

exhaustive: lib cache
	@.ci/tools test
	@LLM_TEST_LONG=exhaustive .ci/test

# What needs a Redis server, which it installs if it is not there.
test-tiers:
	@.ci/tools test
	@command -v redis-server >/dev/null || { apt-get update -q && apt-get install -qy redis-server; }
	@LLM_TEST_LONG=1 $(TEST) -count=1 -v -run 'Redis|Tier|Outlive' ./internal/serving/kvoffload ./internal/serving/engine ./cmd/llmserve

# The tests that need Open MPI and Slurm; as root it installs what is missing.
test-mpi:
	@.ci/tools test
	@command -v mpirun slurmctld slurmd munged >/dev/null || \
	  { apt-get update -q && apt-get install -qy libopenmpi-dev openmpi-bin slurmctld slurmd slurm-client munge; }
	@CC=$(MPICC) CGO_ENABLED=1 $(CHEAP) vet -tags mpi ./internal/serving/model/mpi ./cmd/llmserve
	@CC=$(MPICC) CGO_ENABLED=1 $(TEST) -tags mpi -count=1 -v -run 'Rank|Processes' ./internal/serving/model/mpi ./cmd/llmserve

race:
	@.ci/tools build
	@LLM_TEST_LONG=1 CGO_ENABLED=1 $(TEST) -count=1 -race -short ./internal/serving/parallel
	@LLM_TEST_LONG=1 CGO_ENABLED=1 $(TEST) -count=1 -race -short -run 'Cancel|SharedPrompt|SeveralAnswers' ./internal/serving/engine
	@LLM_TEST_LONG=1 CGO_ENABLED=1 $(TEST) -count=1 -race -short -run 'Goroutines|StaysSound' ./internal/scheduling/vllm/v1/sched
	@LLM_TEST_LONG=1 CGO_ENABLED=1 $(TEST) -count=1 -race -short -run 'SameTime' ./internal/serving/model/chat/jinja

invariants:
	@.ci/tools build
	@LLM_TEST_LONG=1 $(TEST) -tags netgo,osusergo,invariants -short $(CHECKED)

mutants:
	@.ci/tools test
	@$(TEST) -count=1 ./internal/homework/grade -run TestNothingWrongPassesAndNothingRightFails -matrix

repeat:
	@.ci/tools test
	@$(TEST) -count=1 ./internal/homework/grade -run TestTheSameFileGetsTheSameResult -repeat 5

loaded:
	@.ci/tools test
	@$(TEST) -count=1 -v ./internal/homework/grade -run TestNoScoreDependsOnTheLoad -loaded 3

vet:
	@.ci/tools build
	@unformatted=$$("$$(dirname "$$(.ci/tools go)")/gofmt" -l .) && test -z "$$unformatted" || { echo "not gofmt'ed: $$unformatted"; exit 1; }
	@LLM_TEST_LONG=1 $(CHEAP) vet ./...

check: vet
	@LLM_TEST_LONG=1 GOARCH=arm64 CGO_ENABLED=0 $(CHEAP) vet ./...
	@LLM_TEST_LONG=1 $(CHEAP) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	@$(TEST) ./internal

# Go benchmarks stand beside the code; tables prints their medians.
BENCH := $(GO) test -buildvcs=false -run '^$$' -bench .
TABLES := $(GO) run -buildvcs=false ./internal/bench/tables

bench: $(B)/bench/bench $(B)/bench/cache llmserve
	@$(B)/bench/bench $(B)/bench/libllm_memory.so $(B)/bench/plain.so
	@echo
	@$(B)/bench/cache
	@$(BENCH) -count 5 ./internal/scheduling/vllm/v1/pool ./internal/scheduling/vllm/v1/kvcache ./internal/scheduling/vllm/v1/sched | $(TABLES)
	@$(BENCH) -benchtime 9x ./internal/serving/kvstore | $(TABLES)
	@echo
	@$(B)/llmserve bench demo --num-prompts 32 --max-concurrency 32 --input-len 32 --output-len 64
	@$(B)/llmserve bench demo --num-prompts 16 --prefix-len 2048 --input-len 16 --output-len 64
	@$(GO) test -buildvcs=false -run '^$$' -bench AgainstReading ./internal/serving/model | $(TABLES)
	@$(BENCH) -benchtime 3x ./cmd/llmgrade ./internal/simulation/sim | $(TABLES)

$(B)/bench/bench: internal/bench/bench.c testdata/submissions/correct/llm_memory.c $(SOURCES) Makefile
	@.ci/tools build
	@mkdir -p $(B)/bench
	@$(BUILD) -tags bench -buildmode=c-shared -ldflags="$(LDFLAGS_GO) -extldflags '$(WRAP)'" -o $(B)/bench/libllm_memory.so ./capi
	@$(CC) $(COURSE_FLAGS) -I. -fPIC -shared testdata/submissions/correct/llm_memory.c -o $(B)/bench/plain.so
	@$(CC) $(COURSE_FLAGS) -I. -Icapi internal/bench/bench.c -o $@

$(B)/bench/cache: internal/bench/cache.c $(B)/libllm_cache.so
	@mkdir -p $(B)/bench
	@$(CC) $(COURSE_FLAGS) -Icapi/cache internal/bench/cache.c -L$(B) -lllm_cache -Wl,-rpath,'$$ORIGIN/..' -o $@

dropin: lib
	@capi/dropin/setup "$$DIR"

install: lib cache
	@install -d "$(DESTDIR)$(INCLUDEDIR)" "$(DESTDIR)$(LIBDIR)/pkgconfig"
	@install -m 644 llm_memory.h capi/llm_memory_ext.h "$(DESTDIR)$(INCLUDEDIR)"
	@install -m 755 $(B)/libllm_memory.so "$(DESTDIR)$(LIBDIR)/libllm_memory.so.$(VERSION)"
	@ln -sf libllm_memory.so.$(VERSION) "$(DESTDIR)$(LIBDIR)/$(SONAME)"
	@ln -sf $(SONAME) "$(DESTDIR)$(LIBDIR)/libllm_memory.so"
	@install -m 644 $(B)/libllm_memory.a "$(DESTDIR)$(LIBDIR)"
	@sed -e "s|@prefix@|$(PREFIX)|" -e "s|@libdir@|$(LIBDIR)|" -e "s|@includedir@|$(INCLUDEDIR)|" \
	  -e 's|@version@|$(VERSION)|' capi/llm_memory.pc.in >"$(DESTDIR)$(LIBDIR)/pkgconfig/llm_memory.pc"
	@install -m 644 capi/cache/llm_cache.h capi/cache/llm_attention.h capi/cache/llm_cuda.h "$(DESTDIR)$(INCLUDEDIR)"
	@install -m 755 $(B)/libllm_cache.so "$(DESTDIR)$(LIBDIR)/libllm_cache.so.$(CACHE_VERSION)"
	@ln -sf libllm_cache.so.$(CACHE_VERSION) "$(DESTDIR)$(LIBDIR)/$(CACHE_SONAME)"
	@ln -sf $(CACHE_SONAME) "$(DESTDIR)$(LIBDIR)/libllm_cache.so"
	@install -m 644 $(B)/libllm_cache.a "$(DESTDIR)$(LIBDIR)"
	@sed -e "s|@prefix@|$(PREFIX)|" -e "s|@libdir@|$(LIBDIR)|" -e "s|@includedir@|$(INCLUDEDIR)|" \
	  -e 's|@version@|$(CACHE_VERSION)|' capi/cache/llm_cache.pc.in >"$(DESTDIR)$(LIBDIR)/pkgconfig/llm_cache.pc"
	@install -d "$(DESTDIR)$(PREFIX)/share/llm_memory"
	@sed "s|@installed@|$(LIBDIR)/$(SONAME)|" capi/dropin/llm_memory.c >"$(DESTDIR)$(PREFIX)/share/llm_memory/llm_memory.c"
	@install -m 644 valgrind/llm_cache.supp "$(DESTDIR)$(PREFIX)/share/llm_memory"
	@install -d "$(DESTDIR)$(PREFIX)/share/llm_memory/python"
	@install -m 644 capi/cache/python/llm_cache.py capi/cache/python/llm_attention.py "$(DESTDIR)$(PREFIX)/share/llm_memory/python"
	@echo "installed in $(DESTDIR)$(PREFIX); if programs do not find the library, run ldconfig"

uninstall:
	@rm -f "$(DESTDIR)$(INCLUDEDIR)/llm_memory.h" "$(DESTDIR)$(INCLUDEDIR)/llm_memory_ext.h"
	@rm -f "$(DESTDIR)$(LIBDIR)/libllm_memory.so" "$(DESTDIR)$(LIBDIR)/$(SONAME)" "$(DESTDIR)$(LIBDIR)/libllm_memory.so.$(VERSION)"
	@rm -f "$(DESTDIR)$(LIBDIR)/libllm_memory.a" "$(DESTDIR)$(LIBDIR)/pkgconfig/llm_memory.pc"
	@rm -f "$(DESTDIR)$(INCLUDEDIR)/llm_cache.h" "$(DESTDIR)$(INCLUDEDIR)/llm_attention.h" "$(DESTDIR)$(INCLUDEDIR)/llm_cuda.h" "$(DESTDIR)$(LIBDIR)/pkgconfig/llm_cache.pc" "$(DESTDIR)$(LIBDIR)"/libllm_cache.*
	@rm -f "$(DESTDIR)$(PREFIX)/share/llm_memory/llm_memory.c" "$(DESTDIR)$(PREFIX)/share/llm_memory/llm_cache.supp"
	@rm -f "$(DESTDIR)$(PREFIX)/share/llm_memory/python/llm_cache.py" "$(DESTDIR)$(PREFIX)/share/llm_memory/python/llm_attention.py"
	@-rmdir "$(DESTDIR)$(PREFIX)/share/llm_memory/python" "$(DESTDIR)$(PREFIX)/share/llm_memory" 2>/dev/null || true

lab:
	@.ci/lab "$(KIND)" $(if $(COMMAND),'$(subst ','\'',$(COMMAND))')

clean:
	@[ ! -e $(B)/home ] || chmod -R u+w $(B)/home # Go's modules
	@rm -rf $(B)

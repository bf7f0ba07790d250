package guest_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// declared returns the names of the functions that headers declare. A library must not add other names to a program.
func declared(t *testing.T, headers ...string) (names []string) {
	t.Helper()
	for _, header := range headers {
		for _, m := range regexp.MustCompile(`(?m)^\w.*?\b(\w+)\(`).FindAllStringSubmatch(read(t, root, header), -1) {
			names = append(names, m[1])
		}
	}
	require.Greater(t, len(names), 8)
	return names
}

func symbols(t *testing.T, args ...string) []string {
	t.Helper()
	need(t, "nm")
	var names []string
	for line := range strings.SplitSeq(succeed(t, t.TempDir(), nil, append([]string{"nm"}, args...)...).stdout, "\n") {
		if fields := strings.Fields(line); len(fields) == 3 {
			names = append(names, fields[2])
		}
	}
	return names
}

// Ensure that the libraries export only the names in their headers. The names in the shared libraries must have
// versions.
func TestTheLibrariesExportThePublicNames(t *testing.T) {
	t.Parallel()
	need(t, "readelf")
	for _, l := range []struct {
		name, soname string
		public       []string
		versions     map[string]string // of names; "" is that of the others
	}{
		{"libllm_memory", "libllm_memory.so.1", declared(t, "llm_memory.h", "capi/llm_memory_ext.h"), map[string]string{"": "LLM_MEMORY_1", "llm_last_error": "LLM_MEMORY_1.1"}},
		{"libllm_cache", "libllm_cache.so.3", declared(t, "capi/cache/llm_cache.h", "capi/cache/llm_attention.h", "capi/cache/llm_cuda.h"), map[string]string{"": "LLM_CACHE_3"}},
	} {
		want := slices.Collect(maps.Values(l.versions))
		for _, name := range l.public {
			want = append(want, name+"@@"+cmp.Or(l.versions[name], l.versions[""]))
		}
		require.ElementsMatch(t, want, symbols(t, "-D", "--defined-only", library(l.name+".so")))
		if slices.Contains(libraries, "build/"+l.name+".a") {
			require.ElementsMatch(t, l.public, symbols(t, "-g", "--defined-only", library(l.name+".a")))
		}
		require.Contains(t, succeed(t, t.TempDir(), nil, "readelf", "-d", library(l.name+".so")).stdout, "Library soname: ["+l.soname+"]")
	}
}

// In each way of linking, the code of the Go runtime is in one of the libraries.
func TestTheLibrariesHaveNoInstructionThatValgrindRefuses(t *testing.T) {
	t.Parallel()
	need(t, "objdump")
	// A library without these bytes has no such instruction.
	encoded := map[string]string{"amd64": "\x0f\x01\xf9"}[runtime.GOARCH]
	// One store below the stack pointer is allowed, in runtime.debugCallV2, which only a debugger calls.
	refused := map[string]*regexp.Regexp{
		"amd64": regexp.MustCompile(`\trdtscp`),
		"arm64": regexp.MustCompile(`(?m)\tst\w+\t.*\[sp, #-(\d|\d\d|1\d\d|2[0-7]\d)\]$`),
	}[runtime.GOARCH]
	for _, name := range libraries {
		if encoded != "" && !strings.Contains(read(t, root, name), encoded) {
			continue
		}
		if runtime.GOARCH == "arm64" && filepath.Ext(name) == ".a" {
			continue // the object in the archive begins with data (Makefile), so objdump takes Go's code for data
		}
		code := succeed(t, t.TempDir(), nil, "objdump", "-d", "--no-show-raw-insn", filepath.Join(root, name)).stdout
		require.True(t, strings.Contains(code, "Disassembly of section .text"), name)
		require.Empty(t, refused.FindString(code), name)
	}
}

// Ensure that the script capi/for-valgrind changes the instructions of an object file for arm64 as its comment says.
// The test runs on any processor.
func TestFunctionsOfArm64StoreNothingBelowTheStackPointer(t *testing.T) {
	t.Parallel()
	need(t, "gcc")
	need(t, "perl")
	const nop = 0xd503201f
	before := []uint32{
		0xf81e0ffe, 0xf81f83fd, 0xd10023fd, // str x30, [sp, #-32]!; stur x29, [sp, #-8]; sub x29, sp, #8
		0xf85f83fd, 0xf84207fe, // ldur x29, [sp, #-8]; ldr x30, [sp], #32
		0xd10403f4, 0xa93ffa9d, // sub x20, sp, #256; stp x29, x30, [x20, #-8]
		0x9100029f, 0xd10023fd, // mov sp, x20; sub x29, sp, #8
		0xa97ffbfd, 0x910403ff, // ldp x29, x30, [sp, #-8]; add sp, sp, #256
		0xf81f03ff, 0xd10043ff, 0xf9400344, // stur xzr, [sp, #-16]; sub sp, sp, #16; ldr x4, [x26]
		0xf81103fe, 0xd103c3ff, // stur x30, [sp, #-240]; sub sp, sp, #240
		0x9100001f, 0xaa1f03fd, 0xf81f0fff, // mov sp, x0; mov x29, xzr; str xzr, [sp, #-16]!
		0xd1008021, 0x927cec21, 0x9100003f, // sub x1, x1, #32; and x1, x1, #-16; mov sp, x1
		0xb81f83e0,             // stur w0, [sp, #-8]
		0xaa1d03e0, 0xd65f03c0, // mov x0, x29; ret
		0xa93ffa9d, // the first of two alone
	}
	after := []uint32{
		0xf81e0ffe, 0xf9000ffd, nop, // str x29, [sp, #24]
		nop, 0xf84207fe,
		0xd10403f4, 0x9100029f, 0xf90003fe, 0xf9007ffd, // mov sp, x20; str x30, [sp]; str x29, [sp, #248]
		0xf94003fe, 0x910403ff, // ldr x30, [sp]
		0xf9400344, 0xd10043ff, 0xf90003ff, // str xzr, [sp]
		0xd103c3ff, 0xf90003fe,
		0x9100001f, 0xf85f07e0, 0xf90003ff, // mov sp, x0; ldr x0, [sp], #-16; str xzr, [sp]
		0x9100003f, 0xf85e07e0, 0x910003e1, // mov sp, x1; ldr x0, [sp], #-32; mov x1, sp
		nop,
		0xd2800000, 0xd65f03c0, // mov x0, #0
		0xa93ffa9d,
	}
	// The same words stand in .data, which stays as it is.
	source, words := ".text\n", ""
	for _, w := range before {
		words += fmt.Sprintf(".4byte %#x\n", w)
	}
	source += words + ".data\n" + words
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.s"), []byte(source), 0o644))
	succeed(t, dir, nil, "gcc", "-c", "a.s", "-o", "a.o")
	object, err := os.ReadFile(filepath.Join(dir, "a.o"))
	require.NoError(t, err)
	binary.LittleEndian.PutUint16(object[18:], 183) // e_machine: EM_AARCH64
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.o"), object, 0o644))
	succeed(t, dir, nil, filepath.Join(root, "capi/for-valgrind"), "a.o")
	bytesOf := func(words []uint32) (b []byte) {
		for _, w := range words {
			b = binary.LittleEndian.AppendUint32(b, w)
		}
		return b
	}
	want := bytes.Replace(object, bytesOf(before), bytesOf(after), 1) // .text comes first
	got, err := os.ReadFile(filepath.Join(dir, "a.o"))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestProgramsRecordTheVersionedNameOfTheLibrary(t *testing.T) {
	t.Parallel()
	need(t, "readelf")
	r := succeed(t, t.TempDir(), nil, "readelf", "-d", shared.compile(t, "scenario"))
	require.Contains(t, r.stdout, "Shared library: [libllm_memory.so.1]")
}

func TestTheHeadersCompileByThemselvesAsCAndAsCPlusPlus(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	for _, c := range []struct{ compiler, standard, language string }{
		{"gcc", "c11", "c"}, {"gcc", "c17", "c"}, {"g++", "c++17", "c++"}, {"g++", "c++11", "c++"},
	} {
		need(t, c.compiler)
		for _, header := range []string{"llm_memory.h", "capi/llm_memory_ext.h", "capi/cache/llm_cuda.h"} { // the last includes llm_attention.h and llm_cache.h
			succeed(t, t.TempDir(), nil, c.compiler, "-std="+c.standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror",
				"-I"+root, "-x", c.language, "-fsyntax-only", filepath.Join(root, header))
		}
	}
}

// The sources are compiled as gnu11, because they use POSIX. This test uses -Werror. The build of the libraries does
// not, because later compilers may report more warnings.
func TestTheLibrariesOwnCHasNoWarnings(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	need(t, "gcc")
	for _, folder := range []string{"capi", filepath.Join("capi", "cache")} {
		dir := filepath.Join(root, folder)
		exporting, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		generated := t.TempDir() // has _cgo_export.h
		command := []string{"go", "tool", "cgo", "-objdir", generated, "--", "-I" + root, "-I."}
		for _, file := range exporting {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			if bytes.Contains(text, []byte("\n//export ")) {
				command = append(command, filepath.Base(file))
			}
		}
		succeed(t, dir, nil, command...)
		sources, err := filepath.Glob(filepath.Join(dir, "*.c"))
		require.NoError(t, err)
		require.NotEmpty(t, sources)
		for _, source := range sources {
			succeed(t, dir, nil, "gcc", "-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
				"-I"+root, "-I.", "-I"+generated, source)
		}
	}
}

func TestCPlusPlusProgramsLinkAndRun(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	need(t, "g++")
	for program, name := range map[string]string{"cplusplus.cpp": "llm_memory", "cache_cplusplus.cpp": "llm_cache"} {
		for _, link := range [][]string{{"-L" + library(""), "-l" + name, "-Wl,-rpath," + library("")}, {library("lib" + name + ".a")}} {
			prog := filepath.Join(t.TempDir(), "prog")
			command := []string{"g++", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
				"-I" + root, "-I" + filepath.Join(root, "capi"), "-I" + filepath.Join(root, "capi", "cache"), source(program), "-o", prog}
			succeed(t, t.TempDir(), nil, append(command, link...)...)
			succeed(t, t.TempDir(), nil, prog)
		}
	}
}

func TestTheLibraryFileIsSmallerThanTwoMegabytes(t *testing.T) {
	t.Parallel()
	maxSize := map[string]int64{"arm64": 9 << 18}[runtime.GOARCH] // where the archive has 2.13 million bytes
	for _, name := range []string{"libllm_memory.so", "libllm_memory.a"} {
		info, err := os.Stat(library(name))
		require.NoError(t, err)
		require.Less(t, info.Size(), max(maxSize, 2<<20), name)
	}
}

func TestTheLibraryTakesLittleMemoryAndDoesNotGrow(t *testing.T) {
	t.Parallel()
	succeed(t, t.TempDir(), nil, loaded.compile(t, "footprint"))
}

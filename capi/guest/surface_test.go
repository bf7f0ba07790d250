package guest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// public is every name that libllm_memory may add to a program.
var public = []string{
	"append_kv", "append_kv_batch", "append_kv_run", "create_sequence",
	"fork_sequence", "free_sequence", "llm_destroy", "llm_init", "llm_last_error",
}

// symbols returns the names that nm lists, without their addresses and kinds.
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

func TestTheSharedLibraryExportsThePublicNamesAndItsVersion(t *testing.T) {
	t.Parallel()
	want := []string{"LLM_MEMORY_1", "LLM_MEMORY_1.1"}
	for _, name := range public {
		version := "LLM_MEMORY_1"
		if name == "llm_last_error" {
			version = "LLM_MEMORY_1.1"
		}
		want = append(want, name+"@@"+version)
	}
	require.ElementsMatch(t, want, symbols(t, "-D", "--defined-only", library("libllm_memory.so")))
}

func TestTheArchiveDefinesThePublicNamesAndNoOthers(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, public, symbols(t, "-g", "--defined-only", library("libllm_memory.a")))
}

// Valgrind's CPUID lists RDTSCP on every host, but Valgrind executes it only on hosts that have it.
// Each way to link takes the runtime's code from one of these files.
func TestTheLibrariesHaveNoInstructionThatValgrindListsAndMayNotExecute(t *testing.T) {
	t.Parallel()
	need(t, "objdump")
	for _, name := range []string{"libllm_memory.so", "libllm_memory.a", "libllm_cache.so", "libllm_cache.a"} {
		code := succeed(t, t.TempDir(), nil, "objdump", "-d", "--no-show-raw-insn", library(name)).stdout
		require.True(t, strings.Contains(code, "Disassembly of section .text"), name)
		require.False(t, strings.Contains(code, "\trdtscp"), name)
	}
}

func TestProgramsRecordTheVersionedNameOfTheLibrary(t *testing.T) {
	t.Parallel()
	need(t, "readelf")
	r := succeed(t, t.TempDir(), nil, "readelf", "-d", library("libllm_memory.so"))
	require.Contains(t, r.stdout, "Library soname: [libllm_memory.so.1]")
	r = succeed(t, t.TempDir(), nil, "readelf", "-d", shared.compile(t, "scenario"))
	require.Contains(t, r.stdout, "Shared library: [libllm_memory.so.1]")
}

func TestTheHeadersCompileByThemselvesAsCAndAsCPlusPlus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ compiler, standard, language string }{
		{"gcc", "c11", "c"}, {"gcc", "c17", "c"}, {"g++", "c++17", "c++"}, {"g++", "c++11", "c++"},
	} {
		need(t, c.compiler)
		for _, header := range []string{"llm_memory.h", filepath.Join("capi", "llm_memory_ext.h")} {
			succeed(t, t.TempDir(), nil, c.compiler, "-std="+c.standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror",
				"-I"+root, "-x", c.language, "-fsyntax-only", filepath.Join(root, header))
		}
	}
}

func TestACPlusPlusProgramLinksAndRuns(t *testing.T) {
	t.Parallel()
	need(t, "g++")
	for name, link := range map[string][]string{
		"shared":  {"-L" + library(""), "-lllm_memory", "-Wl,-rpath," + library("")},
		"archive": {library("libllm_memory.a")},
	} {
		prog := filepath.Join(t.TempDir(), name)
		command := []string{"g++", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
			"-I" + root, "-I" + filepath.Join(root, "capi"), source("cplusplus.cpp"), "-o", prog}
		succeed(t, t.TempDir(), nil, append(command, link...)...)
		succeed(t, t.TempDir(), nil, prog)
	}
}

func TestTheLibraryFileIsSmallerThanTwoMegabytes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"libllm_memory.so", "libllm_memory.a"} {
		info, err := os.Stat(library(name))
		require.NoError(t, err)
		require.Less(t, info.Size(), int64(2<<20), name)
	}
}

func TestTheLibraryTakesLittleMemoryAndDoesNotGrow(t *testing.T) {
	t.Parallel()
	succeed(t, t.TempDir(), nil, loaded.compile(t, "footprint"))
}

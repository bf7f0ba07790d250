package ctree_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/ctree"
	"llmmemory/internal/testkit/level"
)

const root = "../../.."

// The mirrors, field by field, under the names that the header gives them.
var mirrors = map[string]ctree.Struct{
	"list_node": mirror(unsafe.Sizeof(course.Node{}), unsafe.Alignof(course.Node{}),
		field("prev", unsafe.Offsetof(course.Node{}.Prev), unsafe.Sizeof(course.Node{}.Prev)),
		field("next", unsafe.Offsetof(course.Node{}.Next), unsafe.Sizeof(course.Node{}.Next))),
	"Sequence": mirror(unsafe.Sizeof(course.Sequence{}), unsafe.Alignof(course.Sequence{}),
		field("seq_id", unsafe.Offsetof(course.Sequence{}.ID), unsafe.Sizeof(course.Sequence{}.ID)),
		field("block_table", unsafe.Offsetof(course.Sequence{}.BlockTable), unsafe.Sizeof(course.Sequence{}.BlockTable)),
		field("kv_count", unsafe.Offsetof(course.Sequence{}.KVCount), unsafe.Sizeof(course.Sequence{}.KVCount)),
		field("node", unsafe.Offsetof(course.Sequence{}.Node), unsafe.Sizeof(course.Sequence{}.Node))),
	"LLMEngine": mirror(unsafe.Sizeof(course.Engine{}), unsafe.Alignof(course.Engine{}),
		field("pool_base_ptr", unsafe.Offsetof(course.Engine{}.Pool), unsafe.Sizeof(course.Engine{}.Pool)),
		field("total_local_blocks", unsafe.Offsetof(course.Engine{}.Total), unsafe.Sizeof(course.Engine{}.Total)),
		field("free_local_blocks", unsafe.Offsetof(course.Engine{}.Free), unsafe.Sizeof(course.Engine{}.Free)),
		field("ref_count", unsafe.Offsetof(course.Engine{}.RefCount), unsafe.Sizeof(course.Engine{}.RefCount)),
		field("active_seqs", unsafe.Offsetof(course.Engine{}.Active), unsafe.Sizeof(course.Engine{}.Active))),
}

func field(name string, offset, size uintptr) ctree.Field {
	return ctree.Field{Name: name, Offset: int64(offset), Size: int64(size)}
}

func mirror(size, align uintptr, fields ...ctree.Field) ctree.Struct {
	return ctree.Struct{Fields: fields, Size: int64(size), Align: int(align)}
}

var constants = map[string]int64{
	"BLOCK_SIZE": course.BlockSize, "KV_SIZE": course.KVSize, "KV_PER_BLOCK": course.KVPerBlock,
	"L1_PT_SIZE": course.L1Size, "L2_PT_SIZE": course.L2Size, "MAX_LOGICAL_BLOCKS": course.MaxLogicalBlocks,
}

func header(t *testing.T, path string) *ctree.Header {
	t.Helper()
	h, err := ctree.ParseHeader(filepath.Join(root, path), root)
	require.NoError(t, err)
	return h
}

func TestTheHeaderHasTheLayoutOfTheHandout(t *testing.T) {
	h := header(t, "llm_memory.h")
	for name, offsets := range map[string][]int64{"Sequence": {0, 8, 16, 24}, "LLMEngine": {0, 8, 12, 16, 24}} {
		s, err := h.Struct(name)
		require.NoError(t, err)
		require.EqualValues(t, 40, s.Size)
		for i, f := range s.Fields {
			require.Equal(t, offsets[i], f.Offset, "%s.%s", name, f.Name)
		}
	}
}

func TestTheMirrorsEqualTheHeader(t *testing.T) {
	h := header(t, "llm_memory.h")
	for name, mirror := range mirrors {
		s, err := h.Struct(name)
		require.NoError(t, err)
		require.Equal(t, s, mirror, name)
	}
	for name, value := range constants {
		v, err := h.Constant(name)
		require.NoError(t, err)
		require.Equal(t, v, value, name)
	}
	require.EqualValues(t, course.L1Size*8, unsafe.Sizeof(course.L1Table{}), "int *block_table[L1_PT_SIZE]")
	require.EqualValues(t, course.L2Size*4, unsafe.Sizeof(course.L2Table{}), "int block_table[i][L2_PT_SIZE]")
}

// The C compiler answers through a program that it compiles.
func TestTheCompilerAgrees(t *testing.T) {
	var program, want strings.Builder
	program.WriteString("#include \"llm_memory.h\"\n#include <stdio.h>\nint main(void) {\n")
	for _, name := range slices.Sorted(maps.Keys(mirrors)) {
		m := mirrors[name]
		ctype := name
		if name == "list_node" {
			ctype = "struct list_node"
		}
		fmt.Fprintf(&program, "printf(\"%s %%zu %%zu\\n\", sizeof(%s), _Alignof(%s));\n", name, ctype, ctype)
		fmt.Fprintf(&want, "%s %d %d\n", name, m.Size, m.Align)
		for _, f := range m.Fields {
			fmt.Fprintf(&program, "printf(\"%s.%s %%zu %%zu\\n\", offsetof(%s, %s), sizeof(((%s *)0)->%s));\n",
				name, f.Name, ctype, f.Name, ctype, f.Name)
			fmt.Fprintf(&want, "%s.%s %d %d\n", name, f.Name, f.Offset, f.Size)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(constants)) {
		fmt.Fprintf(&program, "printf(\"%s %%d\\n\", %s);\n", name, name)
		fmt.Fprintf(&want, "%s %d\n", name, constants[name])
	}
	program.WriteString("return 0;\n}\n")

	dir := t.TempDir()
	source, binary := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	require.NoError(t, os.WriteFile(source, []byte(program.String()), 0o644))
	out, err := exec.Command("gcc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"+root, source, "-o", binary).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(binary).Output()
	require.NoError(t, err)
	require.Equal(t, want.String(), string(out))
}

func TestPrototypesAndExportedSymbolsAgree(t *testing.T) {
	level.SkipQuick(t)
	six := header(t, "llm_memory.h").Prototypes()
	require.Equal(t, map[string]string{
		"llm_init":        "function(pointer to void, size_t) returning pointer to LLMEngine",
		"create_sequence": "function(pointer to LLMEngine, int, int) returning pointer to Sequence",
		"fork_sequence":   "function(pointer to LLMEngine, int, int) returning pointer to Sequence",
		"append_kv":       "function(pointer to LLMEngine, int, int) returning int",
		"free_sequence":   "function(pointer to LLMEngine, int) returning int",
		"llm_destroy":     "function(pointer to LLMEngine) returning int",
	}, six)

	var declared []string
	for name := range six {
		declared = append(declared, name)
	}
	for name := range header(t, "capi/llm_memory_ext.h").Prototypes() {
		declared = append(declared, name)
	}
	slices.Sort(declared)
	require.Equal(t, declared, exported(t))
}

// exported returns the functions that the shared library defines for others.
func exported(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("make", "-s", "-C", root, "lib").CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command("nm", "-D", "--defined-only", root+"/build/libllm_memory.so").Output()
	require.NoError(t, err)
	var names []string
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); f[1] == "T" {
			name, _, _ := strings.Cut(f[2], "@")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func TestWhatAHeaderDoesNotDeclareIsAnError(t *testing.T) {
	h := header(t, "llm_memory.h")
	_, err := h.Struct("Block")
	require.ErrorIs(t, err, ctree.ErrUnknown)
	_, err = h.Constant("PAGE_SIZE")
	require.ErrorIs(t, err, ctree.ErrUnknown)
	_, err = ctree.ParseHeader(filepath.Join(t.TempDir(), "none.h"))
	require.ErrorIs(t, err, os.ErrNotExist)
	broken := filepath.Join(t.TempDir(), "broken.h")
	require.NoError(t, os.WriteFile(broken, []byte("struct {"), 0o644))
	_, err = ctree.ParseHeader(broken)
	require.ErrorContains(t, err, broken)
}

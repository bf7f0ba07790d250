package course

import (
	"maps"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/source"
)

const root = "../../.."

// prototypes are the handout's functions.
var prototypes = map[string]string{
	"llm_init":        "LLMEngine *llm_init(void *, size_t);",
	"create_sequence": "Sequence *create_sequence(LLMEngine *, int, int);",
	"fork_sequence":   "Sequence *fork_sequence(LLMEngine *, int, int);",
	"append_kv":       "int append_kv(LLMEngine *, int, int);",
	"free_sequence":   "int free_sequence(LLMEngine *, int);",
	"llm_destroy":     "int llm_destroy(LLMEngine *);",
}

// Ensure that the C compiler gives the structs of llm_memory.h the layout of the handout and of the Go structs.
func TestTheHeaderIsTheHandoutsAndGos(t *testing.T) {
	var s Sequence
	var e Engine
	require.Equal(t, []uintptr{0, 8, 16, 24, 40}, []uintptr{unsafe.Offsetof(s.ID), unsafe.Offsetof(s.BlockTable), unsafe.Offsetof(s.KVCount), unsafe.Offsetof(s.Node), unsafe.Sizeof(s)})
	require.Equal(t, []uintptr{0, 8, 12, 16, 24, 40}, []uintptr{unsafe.Offsetof(e.Pool), unsafe.Offsetof(e.Total), unsafe.Offsetof(e.Free), unsafe.Offsetof(e.RefCount), unsafe.Offsetof(e.Active), unsafe.Sizeof(e)})
	source.RequireC(t, root+"/llm_memory.h", root, map[string]int64{
		"offsetof(Sequence, seq_id)": 0, "offsetof(Sequence, block_table)": 8, "offsetof(Sequence, kv_count)": 16, "offsetof(Sequence, node)": 24, "sizeof(Sequence)": 40,
		"offsetof(LLMEngine, pool_base_ptr)": 0, "offsetof(LLMEngine, total_local_blocks)": 8, "offsetof(LLMEngine, free_local_blocks)": 12,
		"offsetof(LLMEngine, ref_count)": 16, "offsetof(LLMEngine, active_seqs)": 24, "sizeof(LLMEngine)": 40,
		"offsetof(struct list_node, prev)": int64(unsafe.Offsetof(Node{}.Prev)), "offsetof(struct list_node, next)": int64(unsafe.Offsetof(Node{}.Next)), "sizeof(struct list_node)": int64(unsafe.Sizeof(Node{})),
		"sizeof((Sequence *)0)->seq_id": 4, "sizeof((Sequence *)0)->kv_count": 4, "sizeof **((Sequence *)0)->block_table": 4, "sizeof *((LLMEngine *)0)->ref_count": 4,
		"BLOCK_SIZE": BlockSize, "KV_SIZE": KVSize, "KV_PER_BLOCK": KVPerBlock,
		"L1_PT_SIZE": L1Size, "L2_PT_SIZE": L2Size, "MAX_LOGICAL_BLOCKS": MaxLogicalBlocks,
	}, slices.Collect(maps.Values(prototypes))...)
}

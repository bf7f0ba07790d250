package grade

import (
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/grade/trace"
)

// Sentences of the handout that more than one place needs.
const (
	leaks     = "Memory leaks (e.g., un-freed inner L2 block tables) are strictly forbidden and must report 0 bytes lost."
	poolWrite = "You may ONLY write to the physical memory during an actual append_kv operation."
	allocates = "DO NOT allocate memory (malloc) or modify block tables if the operation will eventually fail due to Out-Of-Memory (OOM)."
	freeCount = "It must be decremented when a new block is assigned, and incremented when a block's ref_count drops to 0."
)

// sentences are those that a difference in a call breaks, where no trace was
// written for one sentence alone. "" is for every channel that is not named.
var sentences = map[trace.Kind]map[compare.Channel]string{
	trace.Init: {
		"":             "Allocate LLMEngine. Calculate total_local_blocks = pool_size / BLOCK_SIZE.",
		compare.Counts: "Allocate the ref_count array using calloc (initialized to 0).",
		compare.List:   "For an empty list, the dummy head's prev and next pointers MUST point to itself.",
		compare.Pool:   poolWrite,
		compare.Heap:   leaks,
	},
	trace.Create: {
		"":               "If required blocks exceed 256 OR exceed free_local_blocks, return NULL immediately.",
		compare.Engine:   freeCount,
		compare.Counts:   "Allocate a free physical block (First-Fit), map its ID into the L2 table, set its ref_count to 1, and decrement free_local_blocks.",
		compare.List:     "Set seq->kv_count = initial_kv_len, append the sequence to the tail of active_seqs (which is head->prev), and return it.",
		compare.Sequence: "Allocate a free physical block (First-Fit), map its ID into the L2 table, set its ref_count to 1, and decrement free_local_blocks.",
		compare.Pool:     "Do not write data or memset the physical blocks here!",
		compare.Heap:     allocates,
	},
	trace.Free: {
		"":             "Find and detach the target sequence from the list. Return -1 if not found.",
		compare.Engine: "If a block's count becomes 0, increment free_local_blocks.",
		compare.Counts: "For every mapped physical block (!= -1), decrement its ref_count.",
		compare.Pool:   poolWrite,
		compare.Heap:   "Free all allocated L2 arrays, the L1 array, and the sequence itself.",
	},
	trace.Fork: {
		"":               "Ensure the parent exists and new_seq_id is globally unique.",
		compare.Engine:   freeCount,
		compare.Counts:   "Increment the global ref_count for every valid physical block inherited by the child.",
		compare.List:     "Append the child sequence to the tail of active_seqs, and return it.",
		compare.Sequence: "For each non-NULL parent L2 table: allocate a child L2 table, initialize to -1, then exactly copy the mapped entries.",
		compare.Pool:     poolWrite,
		compare.Heap:     allocates,
	},
	trace.Append: {
		"":               "If a new block is required but free_local_blocks == 0, return -1 immediately without modifying any states.",
		compare.Engine:   freeCount,
		compare.Counts:   "Adjust reference counts, update the L2 mapping, and decrement free_local_blocks.",
		compare.Sequence: "Allocate a free block (First-Fit), map it, set ref to 1, and decrement free_local_blocks.",
		compare.Pool:     "Use memcpy to copy exactly 64 bytes from the old physical block to the new one.",
		compare.Heap:     allocates,
	},
	trace.Destroy: {
		"":           "Free the ref_count array and the engine structure.",
		compare.Pool: "DO NOT free pool_base_ptr (the testing framework owns it).",
		compare.Heap: "Safely traverse the list and destroy all remaining sequences.",
	},
}

// sentence is the one of the handout that a difference breaks.
func sentence(d *compare.Difference) string {
	kind := d.Op.Kind
	if kind == trace.Forks {
		kind = trace.Fork
	}
	of := sentences[kind]
	if s, found := of[d.Channel]; found {
		return s
	}
	return of[""]
}

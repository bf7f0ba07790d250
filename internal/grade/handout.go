package grade

import (
	"strings"

	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/compare"
)

// Sentences of the handout that more than one place needs.
const (
	leaks     = "Memory leaks (e.g., un-freed inner L2 block tables) are strictly forbidden and must report 0 bytes lost."
	poolWrite = "You may ONLY write to the physical memory during an actual append_kv operation."
	allocates = "DO NOT allocate memory (malloc) or modify block tables if the operation will eventually fail due to Out-Of-Memory (OOM)."
	freeCount = "It must be decremented when a new block is assigned, and incremented when a block's ref_count drops to 0."
)

const (
	whiteBox  = "Your code will be evaluated using White-Box testing."
	valgrind  = "Your code will be rigorously tested with Valgrind."
	mapsBlock = "Allocate a free physical block (First-Fit), map its ID into the L2 table, set its ref_count to 1, and decrement free_local_blocks."
	appends   = "Set seq->kv_count = initial_kv_len, append the sequence to the tail of active_seqs (which is head->prev), and return it."
	childTail = "Assign kv_count and new_seq_id. Append the child sequence to the tail of active_seqs, and return it."
	copies    = "For each non-NULL parent L2 table: allocate a child L2 table, initialize to -1, then exactly copy the mapped entries."
	stores    = "Use memcpy to copy exactly 64 bytes from the old physical block to the new one. [...] store kv_data at the correct offset."
)

// A clause says which sentence a difference breaks: the first one that fits, with
// the call, the channel, and a part of the field. What is empty fits everything.
type clause struct {
	kind     trace.Kind
	channel  compare.Channel
	field    string
	expected string
	sentence string
}

// clauses are for differences that no trace was written for alone.
var clauses = []clause{
	{trace.Init, compare.Returned, "", "", "Return NULL if pool_addr == NULL or pool_size < BLOCK_SIZE."},
	{trace.Init, compare.Engine, "free", "", "Initialize free_local_blocks = total_local_blocks."},
	{trace.Init, compare.Engine, "pool", "", "Store pool_addr."},
	{trace.Init, compare.Engine, "", "", "Allocate LLMEngine. Calculate total_local_blocks = pool_size / BLOCK_SIZE."},
	{trace.Init, compare.Counts, "", "", "Allocate the ref_count array using calloc (initialized to 0)."},
	{trace.Init, compare.List, "", "", "For an empty list, the dummy head's prev and next pointers MUST point to itself."},

	{trace.Create, compare.Returned, "", "NULL", "If required blocks exceed 256 OR exceed free_local_blocks, return NULL immediately."},
	{trace.Create, compare.Returned, "", "", appends},
	{trace.Create, compare.Sequence, "kv_count", "", appends},
	{trace.Create, compare.Sequence, "]", "-1", "If an L2 block table is needed, malloc it (an array of 16 ints) and initialize all 16 entries to -1."},
	{trace.Create, compare.Sequence, "]", "NULL", "Allocate Sequence and its L1 block table (an array of 16 pointers). Initialize all 16 pointers to NULL."},
	{trace.Create, compare.Sequence, "", "", mapsBlock},
	{trace.Create, compare.Counts, "", "", mapsBlock},
	{trace.Create, compare.List, "", "", appends},
	{trace.Create, compare.Pool, "", "", "Do not write data or memset the physical blocks here!"},

	{trace.Free, compare.Returned, "", "", "Find and detach the target sequence from the list. Return -1 if not found."},
	{trace.Free, compare.List, "", "", "Find and detach the target sequence from the list."},
	{trace.Free, compare.Engine, "", "", "If a block's count becomes 0, increment free_local_blocks."},
	{trace.Free, compare.Counts, "", "", "For every mapped physical block (!= -1), decrement its ref_count."},
	{trace.Free, compare.Heap, "", "", "Free all allocated L2 arrays, the L1 array, and the sequence itself."},

	{trace.Fork, compare.Returned, "", "", "Ensure the parent exists and new_seq_id is globally unique."},
	{trace.Fork, compare.Counts, "", "", "Increment the global ref_count for every valid physical block inherited by the child."},
	{trace.Fork, compare.List, "", "", childTail},
	{trace.Fork, compare.Sequence, "kv_count", "", childTail},
	{trace.Fork, compare.Sequence, "", "", copies},

	{trace.Append, compare.Returned, "", "-1", "Find the sequence. [...] Return -1 if logical_idx >= 256. [...] If a new block is required but free_local_blocks == 0, return -1 immediately without modifying any states."},
	{trace.Append, compare.Returned, "", "", "Increment kv_count and return 0."},
	{trace.Append, compare.Sequence, "kv_count", "", "Increment kv_count and return 0."},
	{trace.Append, compare.Sequence, "]", "NULL", "Allocate an L2 table if it is NULL."},
	{trace.Append, compare.Sequence, "", "", "Allocate a free block (First-Fit), map it, set ref to 1, and decrement free_local_blocks."},
	{trace.Append, compare.Counts, "", "", "Adjust reference counts, update the L2 mapping, and decrement free_local_blocks."},
	{trace.Append, compare.Pool, "", "", stores},

	{trace.Destroy, compare.Pool, "", "", "DO NOT free pool_base_ptr (the testing framework owns it)."},
	{trace.Destroy, compare.Heap, "", "", "Safely traverse the list and destroy all remaining sequences."},
	{trace.Destroy, compare.Returned, "", "", "Return 0."},
}

// sentence is the one of the handout that a difference breaks.
func sentence(d *compare.Difference) string {
	switch {
	case d.Channel == compare.Death:
		return valgrind
	case d.Field == compare.Allocates:
		return allocates
	}
	kind := d.Op.Kind
	if kind == trace.Forks {
		kind = trace.Fork
	}
	for _, c := range clauses {
		if c.kind == kind && c.channel == d.Channel && strings.Contains(d.Field, c.field) && (c.expected == "" || strings.Contains(d.Expected, c.expected)) {
			return c.sentence
		}
	}
	switch d.Channel {
	case compare.Engine:
		return freeCount
	case compare.Pool:
		return poolWrite
	case compare.Heap:
		return leaks
	}
	return whiteBox
}

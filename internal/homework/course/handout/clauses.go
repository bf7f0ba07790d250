package handout

// Elided joins sentences of the handout that are not adjacent.
const Elided = " [...] "

// How a submission is judged.
const (
	WhiteBox    = "Your code will be evaluated using White-Box testing."
	NoLeaks     = "Memory leaks (e.g., un-freed inner L2 block tables) are strictly forbidden and must report 0 bytes lost."
	ContainerOf = "To solve this, you must use the <stddef.h> macro offsetof(type, member)."
	NodeCast    = "If you simply cast (Sequence*)node, C will mistakenly treat 0x1018 as the start of the Sequence."
)

// Address translation.
const (
	Traversal = "38 / 16 = 2. Go to block_table[2]." + Elided + "38 % 16 = 6. Go to block_table[2][6]."
)

// Global constraints.
const (
	NullEngine        = "Any API receiving LLMEngine *engine MUST check if engine == NULL on its first line. If true, return NULL or -1."
	NoMallocIfRefused = "If any phase fails, return immediately. DO NOT allocate memory (malloc) or modify block tables if the operation will eventually fail due to Out-Of-Memory (OOM)."
	FirstFit          = "When you need a new physical block, you MUST use a for loop from 0 to total_local_blocks - 1 and pick the very first block where ref_count == 0."
	NoMemset          = "You are strictly forbidden to call memset or zero out a physical block when you allocate it during create_sequence."
	WriteOnlyOnAppend = "You may ONLY write to the physical memory during an actual append_kv operation."
	FreeCount         = "It must be decremented when a new block is assigned, and incremented when a block's ref_count drops to 0."
)

// Task 1: llm_init.
const (
	InitRefuses    = "Return NULL if pool_addr == NULL or pool_size < BLOCK_SIZE."
	InitTotal      = "Allocate LLMEngine. Calculate total_local_blocks = pool_size / BLOCK_SIZE."
	InitFree       = "Initialize free_local_blocks = total_local_blocks."
	InitStoresPool = "Store pool_addr."
	InitCounts     = "Allocate the ref_count array using calloc (initialized to 0)."
	InitList       = "For an empty list, the dummy head's prev and next pointers MUST point to itself."
)

// Task 2: create_sequence.
const (
	CreateRefuses  = "Return NULL if initial_kv_len <= 0 or if seq_id already exists."
	CreateCeiling  = "Calculate required blocks using ceiling division: (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK."
	CreateProbes   = "If required blocks exceed 256 OR exceed free_local_blocks, return NULL immediately."
	CreateL1       = "Allocate Sequence and its L1 block table (an array of 16 pointers). Initialize all 16 pointers to NULL."
	CreateL2       = "If an L2 block table is needed, malloc it (an array of 16 ints) and initialize all 16 entries to -1."
	CreateMaps     = "Allocate a free physical block (First-Fit), map its ID into the L2 table, set its ref_count to 1, and decrement free_local_blocks."
	CreateNoWrites = "Do not write data or memset the physical blocks here!"
	CreateLinks    = "Set seq->kv_count = initial_kv_len, append the sequence to the tail of active_seqs (which is head->prev), and return it."
)

// Task 2: free_sequence.
const (
	FreeDetaches = "Find and detach the target sequence from the list."
	FreeNotFound = "Return -1 if not found."
	FreeAllSlots = "You MUST loop through ALL 16 slots of the L1 table. DO NOT break the loop early if you encounter a NULL pointer. " +
		"A sequence might have blocks logically scattered, leaving empty slots in between."
	FreeReleases = "For every mapped physical block (!= -1), decrement its ref_count."
	FreeCounts   = "If a block's count becomes 0, increment free_local_blocks."
	FreeTables   = "Free all allocated L2 arrays, the L1 array, and the sequence itself."
	FreeReturns  = "Free all allocated L2 arrays, the L1 array, and the sequence itself. Return 0."
)

// Task 3: fork_sequence.
const (
	ForkSame   = "To save memory, it should point to the exact same physical blocks as its parent."
	ForkIDs    = "Ensure the parent exists and new_seq_id is globally unique."
	ForkL1     = "Allocate a new Sequence and a new L1 block table for the child."
	ForkCopies = "For each non-NULL parent L2 table: allocate a child L2 table, initialize to -1, then exactly copy the mapped entries."
	ForkShares = "Increment the global ref_count for every valid physical block inherited by the child."
	ForkLinks  = "Assign kv_count and new_seq_id. Append the child sequence to the tail of active_seqs, and return it."
)

// Task 4: append_kv.
const (
	AppendFinds      = "Find the sequence."
	AppendPosition   = "Calculate logical_idx and offset (as explained in the Address Translation section)."
	AppendFull       = "Return -1 if logical_idx >= 256."
	AppendUnmapped   = "Yes, if the L2 slot is -1 (unmapped)."
	AppendShared     = "Yes, if the L2 slot is mapped but ref_count > 1 (Requires CoW)."
	AppendExclusive  = "No, if the L2 slot is mapped and ref_count == 1 (Exclusive access)."
	AppendProbes     = "If a new block is required but free_local_blocks == 0, return -1 immediately without modifying any states."
	AppendL2         = "Allocate an L2 table if it is NULL."
	AppendMaps       = "Allocate a free block (First-Fit), map it, set ref to 1, and decrement free_local_blocks."
	AppendCopies     = "Use memcpy to copy exactly 64 bytes from the old physical block to the new one."
	AppendRecounts   = "Adjust reference counts, update the L2 mapping, and decrement free_local_blocks."
	AppendStores     = "Calculate the exact physical memory address of the target block, cast it to int*, and store kv_data at the correct offset."
	NotDirectly      = "it must not write it directly. If it does, Sequence B's memory is corrupted."
	AppendIncrements = "Increment kv_count and return 0."
)

// Task 5: llm_destroy.
const (
	DestroyAll       = "Safely traverse the list and destroy all remaining sequences."
	DestroyDummy     = "(Do NOT attempt to free the dummy head itself)."
	DestroyEngine    = "Free the ref_count array and the engine structure."
	DestroyKeepsPool = "DO NOT free pool_base_ptr (the testing framework owns it)."
	DestroyReturns   = "Return 0."
)

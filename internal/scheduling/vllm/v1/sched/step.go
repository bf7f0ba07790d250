package sched

// Kind is what the worker already has of a request.
type Kind uint8

const (
	KindRunning Kind = iota // it has the table except for the blocks of this row
	KindNew                 // it has nothing; the row has the whole table
	KindResumed             // its table is out of date; the row has the whole table
)

// A Step has what a worker needs to run the model once. The next Schedule with the same Step reuses its arrays.
type Step struct {
	Rows   []Row
	Drafts []int32 // of all rows, one after the other; -1 is padding

	// Blocks has block ids, row by row, and within a row group by group. For each row and group, BlockEnds has the end
	// of its ids in Blocks. BlockStarts has the index of the first of these ids in the request's block table.
	Blocks      []int32
	BlockEnds   []int
	BlockStarts []int

	// Slots has, for each group, the slots of the scheduled tokens, row by row: block × BlockSize + offset in the
	// block. The worker must not write the keys and values of a token with slot -1.
	Slots [][]int64

	Copies                []Copy  // to make before rows are computed
	NumCommonPrefixBlocks []int32 // blocks at the beginning of all tables, by group
	Preempted             []ID    // since the last step
	Finished              []ID    // since the last step
	NumScheduledTokens    int     // of all rows

	EncoderInputs       []EncoderInput // to encode before rows are computed
	FreedEncoderOutputs []string       // identifiers of items whose outputs the worker must drop before it encodes

	ZeroBlocks []int32 // with Config.ZeroNewBlocks: blocks to zero before copies and rows; a block can be listed twice
	Tails      []Tail  // to send, after the copies

	Loads   []Loading // to begin, for requests that wait
	Queries []Query   // requests that wait for SetMatch
}

// A Row is a scheduled request.
type Row struct {
	ID                 ID
	UserData           uint64
	Kind               Kind
	Samples            bool // the row computes the last known token, so Update needs a sampled token for it
	NumComputedTokens  int  // tokens before this step
	NumScheduledTokens int  // to compute now, drafts included
	NumDraftTokens     int
	NumExternalTokens  int // the last tokens of NumComputedTokens, to be loaded before the row is computed
}

// A Copy asks the worker to copy block Src to block Dst, for the request with this ID. Unless Config.AsVLLM is true,
// the request has a row in the step.
type Copy struct {
	Src, Dst int32
	Group    int
	ID       ID
	Index    int // index of Dst in the worker's table; -1: Dst is in no table, the step has the whole table, or ID was preempted
}

// A Tail is a block that the host can send (see kvcache.Tail). The block is kept until the blocks of its request are
// freed.
type Tail struct {
	ID        ID
	UserData  uint64
	Group     int
	Block     int32
	NumTokens int
}

// RowBlocks returns the block ids of a row in a group: all blocks of the request for KindNew and KindResumed,
// otherwise the blocks added in this step.
func (t *Step) RowBlocks(row, group int) []int32 {
	index := row*len(t.Slots) + group
	start := 0
	if index > 0 {
		start = t.BlockEnds[index-1]
	}
	return t.Blocks[start:t.BlockEnds[index]]
}

func (t *Step) reset(groups int) {
	t.Rows, t.Drafts, t.Blocks, t.BlockEnds = t.Rows[:0], t.Drafts[:0], t.Blocks[:0], t.BlockEnds[:0]
	t.BlockStarts = t.BlockStarts[:0]
	t.Copies, t.NumCommonPrefixBlocks = t.Copies[:0], t.NumCommonPrefixBlocks[:0]
	t.Preempted, t.Finished, t.NumScheduledTokens = t.Preempted[:0], t.Finished[:0], 0
	t.EncoderInputs, t.FreedEncoderOutputs = t.EncoderInputs[:0], t.FreedEncoderOutputs[:0]
	t.Loads, t.Queries = t.Loads[:0], t.Queries[:0]
	t.ZeroBlocks, t.Tails = t.ZeroBlocks[:0], t.Tails[:0]
	for len(t.Slots) < groups {
		t.Slots = append(t.Slots, nil)
	}
	t.Slots = t.Slots[:groups]
	for g := range t.Slots {
		t.Slots[g] = t.Slots[g][:0]
	}
}

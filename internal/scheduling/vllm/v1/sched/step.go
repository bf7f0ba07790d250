package sched

// Kind is what the worker already has of a request.
type Kind uint8

const (
	KindRunning Kind = iota // has its table except the new blocks
	KindNew                 // knows nothing; the row has the whole table
	KindResumed             // had lost its blocks; the row has the whole table
)

// A Step is what a worker needs to run the model once. Its arrays belong to the
// caller and are used again by the next Schedule with the same Step.
type Step struct {
	Rows   []Row
	Drafts []int32 // of all rows, one after the other; -1 is padding

	// Blocks are the block ids of all rows, row by row, and group by group in each row. BlockEnds has
	// the end of each of these parts, BlockStarts the slot of the request's table where the part goes.
	Blocks      []int32
	BlockEnds   []int
	BlockStarts []int

	// Slots says, for each group, where the keys and values of each scheduled
	// token go, in the order of rows: block × size + place in the block. It is
	// -1 where nothing may be written.
	Slots [][]int64

	Copies                []Copy  // to make before anything is written
	NumCommonPrefixBlocks []int32 // blocks that all requests share at the beginning, by group
	Preempted             []ID    // since the last step
	Finished              []ID    // since the last step
	NumScheduledTokens    int     // of all rows

	EncoderInputs       []EncoderInput // to encode, before the rows are computed
	FreedEncoderOutputs []string       // identifiers of items whose outputs are needed no more; to drop first

	// ZeroBlocks are blocks whose bytes must be zeroed before copies and rows, with
	// Config.ZeroNewBlocks; an id can come twice.
	ZeroBlocks []int32
	Tails      []Tail // for a connector that sends, once the copies are made

	Loads   []Loading // to begin, for requests that wait for keys and values from elsewhere
	Queries []Query   // requests that wait for SetMatch
}

// A Row is a scheduled request.
type Row struct {
	ID                 ID
	UserData           uint64
	Kind               Kind
	Samples            bool // the row ends at the last known token, so the update has at least one sampled token for it
	NumComputedTokens  int  // tokens before this step
	NumScheduledTokens int  // to compute now, drafts included
	NumDraftTokens     int
	NumExternalTokens  int // the last of NumComputedTokens: to be loaded from elsewhere before the row is computed
}

// A Copy is a pair of blocks whose bytes must be copied. Its request has a row in the step, except with Config.AsVLLM.
type Copy struct {
	Src, Dst int32
	Group    int
	ID       ID
	Index    int // slot of the table that the worker has, where Dst goes; -1: none, or the step has the whole table, or preempts ID (with Config.AsVLLM)
}

// A Tail is a block with the state at the last hash of a prompt, inside a block of a Mamba
// group (kvcache.Tail). It stays until the blocks of the request are free.
type Tail struct {
	ID        ID
	UserData  uint64
	Group     int
	Block     int32
	NumTokens int
}

// RowBlocks are the block ids of a row in a group: all of them for a new or
// resumed request, else those added in this step.
func (t *Step) RowBlocks(row, group int) []int32 {
	at := row*len(t.Slots) + group
	start := 0
	if at > 0 {
		start = t.BlockEnds[at-1]
	}
	return t.Blocks[start:t.BlockEnds[at]]
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

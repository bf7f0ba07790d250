package v0

// A Seq is a sequence of tokens and its block table. The zero Seq is a sequence
// that the manager does not know.
type Seq struct {
	// Len is how many tokens the sequence has. The table may lag behind: the next
	// Append adds the unseen tokens.
	Len int

	// Tokens are the ids of at least Len tokens. Only a manager that caches
	// prefixes reads them.
	Tokens []int32

	table []int32
	full  int // tokens recorded in the table
	known bool

	moved bool // the window has left entries behind

	// With prefix caching.
	access   float64 // last time, applied when the blocks are freed
	accessed bool
	computed []int32 // blocks known to be computed when the prompt was scheduled
	gap      bool    // a block in front of them was not
}

// Table is the block table, for reading until the next call for this sequence.
func (s *Seq) Table() []int32 { return s.table }

// Unseen is how many tokens the table does not know.
func (s *Seq) Unseen() int { return s.Len - s.full }

// reset makes it a sequence that the manager does not know and that has no
// table.
func (s *Seq) reset() { *s = Seq{computed: s.computed[:0]} }

// touched counts the blocks that the unseen tokens and lookahead more would
// write to, each as if it had to be a new one (vllm/v0/RULES.md §2).
func (s *Seq) touched(blockSize, lookahead int) int {
	space := blockSize - s.full%blockSize
	return 1 + ceil(s.Unseen()+lookahead-space, blockSize)
}

// fullBlocks counts the blocks without room (vllm/v0/RULES.md §4).
func (s *Seq) fullBlocks(blockSize int) int { return s.full / blockSize }

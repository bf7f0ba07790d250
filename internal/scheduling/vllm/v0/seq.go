package v0

// A Seq is a sequence of tokens and its block table. The zero Seq has no table.
type Seq struct {
	// Len is the number of tokens. The tokens that the block table does not have yet are called unseen; the next Append
	// adds them.
	Len int

	// Tokens has the ids of at least Len tokens. Only a manager that caches prefixes reads them.
	Tokens []int32

	table []int32
	full  int  // tokens recorded in the table
	known bool // the sequence has a table

	moved bool // entries were replaced with the null block

	// With prefix caching.
	access   float64 // time of the last access, applied when the blocks are freed
	accessed bool
	computed []int32 // blocks that computedOf has found
	gap      bool    // computedOf has skipped a block, so computed does not change any more
}

// Table returns the block table. The caller must not change it. It is valid until the next call for this sequence.
func (s *Seq) Table() []int32 { return s.table }

// Unseen returns the number of tokens that are not in the table.
func (s *Seq) Unseen() int { return s.Len - s.full }

// reset makes s a sequence without a table.
func (s *Seq) reset() { *s = Seq{computed: s.computed[:0]} }

// touched returns the number of blocks to which the unseen tokens of s, and lookahead more tokens after them, will be
// written (vllm/v0/RULES.md §2). As in vLLM, a partly filled last block counts even if there are no such tokens.
func (s *Seq) touched(blockSize, lookahead int) int {
	space := blockSize - s.full%blockSize
	return 1 + ceil(s.Unseen()+lookahead-space, blockSize)
}

func (s *Seq) fullBlocks(blockSize int) int { return s.full / blockSize }

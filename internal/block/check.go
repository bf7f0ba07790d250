package block

import (
	"errors"
	"iter"
	"strconv"
)

// ErrNotConserved is wrapped by every finding of Conserved.
var ErrNotConserved = errors.New("blocks not conserved")

// A violation is an error of Conserved. Its texts are built with strconv, because package fmt is large, and libllm_memory
// links this package.
type violation string

func (v violation) Error() string { return ErrNotConserved.Error() + ": " + string(v) }
func (v violation) Unwrap() error { return ErrNotConserved }

// Conserved checks two things: each count equals the number of table entries that name the block, and free is the
// number of blocks with the count 0. entries yields every mapped entry of every table. The error names an entry
// outside the pool, the first block whose count is wrong, or the wrong number of free blocks.
func Conserved(counts []int32, free int, entries iter.Seq[int32]) error {
	named := make([]int32, len(counts))
	for id := range entries {
		if uint(id) >= uint(len(counts)) {
			return violation("a table names block " + strconv.Itoa(int(id)) +
				" of a pool of " + strconv.Itoa(len(counts)))
		}
		named[id]++
	}
	unused := 0
	for id, count := range counts {
		if count != named[id] {
			return violation("block " + strconv.Itoa(id) + " has the count " + strconv.Itoa(int(count)) +
				", but " + strconv.Itoa(int(named[id])) + " table entries name it")
		}
		if count == 0 {
			unused++
		}
	}
	if free != unused {
		return violation("the free count is " + strconv.Itoa(free) + ", but " + strconv.Itoa(unused) +
			" of " + strconv.Itoa(len(counts)) + " blocks are free")
	}
	return nil
}

package block

import (
	"errors"
	"iter"
	"strconv"
)

// ErrNotConserved is wrapped by every finding of Conserved.
var ErrNotConserved = errors.New("blocks not conserved")

// A violation is spelled with strconv, because this package is linked into the
// C library and fmt would double that.
type violation string

func (v violation) Error() string { return ErrNotConserved.Error() + ": " + string(v) }
func (v violation) Unwrap() error { return ErrNotConserved }

// Conserved checks the law that holds between any two operations: each count
// equals the number of table entries that name the block, and free of the
// blocks have the count 0. entries yields every mapped entry of every table.
// The error names the first block, or the count, that breaks it.
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
		return violation(strconv.Itoa(free) + " blocks are said to be free, " + strconv.Itoa(unused) +
			" are, of " + strconv.Itoa(len(counts)))
	}
	return nil
}

//go:build amd64 && !purego

package matrix

import (
	"math"
	"sync"
)

// pairsAreFast reports whether products of pairs of BF16 are as fast here as those of single values, of which an
// instruction multiplies half as many: some processors execute VDPBF16PS at half the rate. Both have the same bits, so
// what is measured decides only how long a product takes. It is measured once, when the first matrix of W16A16 is made.
// Tests replace it.
var pairsAreFast = sync.OnceValue(func() bool {
	single := Matrix{Type: W16A16, Out: trialOutputs, In: trialInputs}
	pairs := single
	pairs.pairs = true
	return timesAsLong(24, pairs, single) <= 1
})

// fewestTiledRows returns the smallest number of rows for which products with 8-bit activations use tiles. Bits are the
// same with and without tiles, so what is measured decides only how long a product takes. It is measured once for a type
// and a block, when the first such matrix is made. Tests replace it.
var fewestTiledRows = func(t Type, block int) int {
	measured.Lock()
	defer measured.Unlock()
	key := [2]int{int(t), block}
	if _, ok := measured.rows[key]; !ok {
		measured.rows[key] = measureTiledRows(t, block)
	}
	return measured.rows[key]
}

var measured = struct {
	sync.Mutex
	rows map[[2]int]int // by type and block
}{rows: map[[2]int]int{}}

const trialInputs, trialOutputs = 1024, 2 * Panel

func measureTiledRows(t Type, block int) int {
	plain := Matrix{Type: t, Block: block, Out: trialOutputs, In: trialInputs}
	tiled := plain
	tiled.tiled = true
	return fewestRows(func(rows int) float64 { return timesAsLong(rows, tiled, plain) })
}

// fewestRows returns the smallest of the numbers 4, 8, 17, 33 and 65 for which timesAsLong is at most 1, or math.MaxInt
// if there is none. timesAsLong returns how many times as long a product of so many rows takes with tiles as without.
//
// A tile takes about as long for one row as for 16. Hence tiles gain least just above a multiple of 16 rows, at 17, 33
// and 65. If they are fast enough for one of the five numbers, fewestRows assumes that they are for all larger ones.
func fewestRows(timesAsLong func(rows int) float64) int {
	for _, rows := range []int{4, 8, 17, 33, 65} {
		if timesAsLong(rows) <= 1 {
			return rows
		}
	}
	return math.MaxInt
}

package ptx

import (
	"encoding/binary"
	"sync"
)

// halves has the value of each number of binary16.
var halves = sync.OnceValue(func() *[1 << 16]float64 {
	var table [1 << 16]float64
	for i := range table {
		table[i] = float64(fromHalf(uint16(i)))
	}
	return &table
})

func halfValue(h uint16) float64   { return halves()[h] }
func bfloatValue(h uint16) float64 { return float64(single(uint64(h) << 16)) }

// multiply is mma.m16n8k16: d = a b + c. The places of elements are those of "Matrix Fragments for mma.m16n8k16 with
// floating point type" in the PTX manual. With group = lane / 4 and inGroup = lane % 4, a lane has these elements:
//
//	a[i]	row: group for i = 0, 1, 4, 5, else group + 8; column: inGroup * 2 + i % 2, plus 8 for i >= 4
//	b[i]	row: inGroup * 2 + i % 2, plus 8 for i >= 2; column: group
//	c[i]	row: group, plus 8 for i >= 2; column: inGroup * 2 + i % 2
func multiply(value func(uint16) float64, d, a, b, c []int) operation {
	return func(w *warp, _ uint32) error {
		var rows [16][16]float64
		var columns [8][16]float64
		for lane := range 32 {
			group, inGroup := lane/4, lane%4
			for i := range 8 {
				row := group
				if i != 0 && i != 1 && i != 4 && i != 5 {
					row += 8
				}
				rows[row][inGroup*2+i%2+i/4*8] = value(uint16(w.registers[a[i/2]][lane] >> (16 * (i % 2))))
			}
			for i := range 4 {
				columns[group][inGroup*2+i%2+i/2*8] = value(uint16(w.registers[b[i/2]][lane] >> (16 * (i % 2))))
			}
		}
		var results [4]lanes
		for lane := range 32 {
			for i := range 4 {
				row, column := &rows[lane/4+i/2*8], &columns[lane%4*2+i%2]
				sum := 0.0
				for k := range row {
					sum += float64(row[k] * column[k])
				}
				results[i][lane] = bitsOf(float32(sum + float64(single(w.registers[c[i]][lane]))))
			}
		}
		for i, r := range d {
			w.registers[r] = results[i]
		}
		return nil
	}
}

// loadMatrices is ldmatrix: matrix i has its rows, of eight elements of 16 bits, at the addresses of lanes 8 i to 8 i + 7.
// A lane gets two elements of row lane / 4, or of column lane / 4 if transposed: element 2 (lane % 4) and the next one.
func loadMatrices(target []int, source operand, transposed bool) operation {
	return func(w *warp, _ uint32) error {
		var elements [4][8][8]uint16
		mask := uint32(1<<(8*len(target)) - 1)
		err := w.access(sharedSpace, mask, source, 16, func(lane int, row []byte) {
			for i := range 8 {
				elements[lane/8][lane%8][i] = binary.LittleEndian.Uint16(row[2*i:])
			}
		})
		if err != nil {
			return err
		}
		for i, r := range target {
			for lane := range 32 {
				row, column := lane/4, lane%4*2
				low, high := elements[i][row][column], elements[i][row][column+1]
				if transposed {
					low, high = elements[i][column][row], elements[i][column+1][row]
				}
				w.registers[r][lane] = uint64(low) | uint64(high)<<16
			}
		}
		return nil
	}
}

// shuffle is shfl.sync: lanes take the register of another lane. A lane whose source is outside of its segment keeps
// its own.
func shuffle(mode string, target, source, distance, limits int) operation {
	return func(w *warp, _ uint32) error {
		var result lanes
		values := w.registers[source]
		for lane := range 32 {
			b, c := int(w.registers[distance][lane]&31), int(w.registers[limits][lane])
			clamp, segments := c&31, c>>8&31
			first, last := lane&segments, lane&segments|clamp&^segments
			source, inside := 0, false
			switch mode {
			case "up":
				source = lane - b
				inside = source >= last
			case "down":
				source = lane + b
				inside = source <= last
			case "bfly":
				source = lane ^ b
				inside = source <= last
			case "idx":
				source = first | b&^segments
				inside = source <= last
			}
			if !inside {
				source = lane
			}
			result[lane] = values[source] & 0xffffffff
		}
		w.registers[target] = result
		return nil
	}
}

// vote is vote.sync.any: whether a predicate is true in any lane.
func vote(target, predicate int) operation {
	return func(w *warp, _ uint32) error {
		w.registers[target].fill(truth(w.lanesWith(predicate, false) != 0))
		return nil
	}
}

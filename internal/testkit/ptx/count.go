package ptx

import (
	"math/bits"
	"slices"
)

func trailing(mask uint32) int { return bits.TrailingZeros32(mask) & 31 }

// A counter counts what the runs of one instruction did, warp by warp.
type counter struct {
	executed int
	global   traffic
	shared   traffic
}

// A traffic counts the accesses to a kind of memory. The excess is the number of sectors of global memory, or of turns of
// the banks of shared memory, beyond the fewest for as many bytes.
type traffic struct {
	bytes, excess int
}

// moved counts an access of the lanes of a mask.
func (c *counter) moved(s space, mask uint32, addresses *lanes, size int) {
	n := bits.OnesCount32(mask)
	if n == 0 {
		return
	}
	switch s {
	case global, generic:
		c.global.bytes += n * size
		c.global.excess += max(0, sectors(mask, addresses, size)-(n*size+sectorBytes-1)/sectorBytes)
	case sharedSpace:
		c.shared.bytes += n * size
		c.shared.excess += excessTurns(mask, addresses, size)
	}
}

const sectorBytes, banks = 32, 32

// sectors returns how many sectors of global memory the lanes access.
func sectors(mask uint32, addresses *lanes, size int) int {
	seen := make(map[uint64]bool, 32)
	last := ^uint64(0)
	for lane, address := range addresses {
		if mask>>lane&1 == 0 {
			continue
		}
		if sector := address / sectorBytes; sector != last { // an aligned access of up to 16 bytes is in one sector
			seen[sector] = true
			last = sector
		}
	}
	return len(seen)
}

// excessTurns returns how many turns the banks of shared memory take beyond the fewest. In a turn they serve 32 lanes of
// up to 4 bytes, 16 of 8, or 8 of 16. Word n is in bank n % 32, and a bank gives one word in a turn.
func excessTurns(mask uint32, addresses *lanes, size int) int {
	excess, atOnce := 0, min(32, 128/size)
	for first := 0; first < 32; first += atOnce {
		var words [banks][32]uint64
		var used [banks]int
		most := 1
		for lane := first; lane < first+atOnce; lane++ {
			if mask>>lane&1 == 0 {
				continue
			}
			for word := addresses[lane] / 4; word*4 < addresses[lane]+uint64(size); word++ {
				bank := word % banks
				if n := used[bank]; !slices.Contains(words[bank][:n], word) {
					words[bank][n] = word
					used[bank]++
					most = max(most, n+1)
				}
			}
		}
		excess += most - 1
	}
	return excess
}

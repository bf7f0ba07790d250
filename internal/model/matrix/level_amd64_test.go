//go:build amd64 && !purego

package matrix

import "testing"

// levels are the instruction sets that this processor has.
func levels() []instructions {
	var all []instructions
	for l := portable; l <= best(); l++ {
		all = append(all, l)
	}
	return all
}

func setLevel(t testing.TB, l instructions) {
	was := isa
	isa = l
	t.Cleanup(func() { isa = was })
}

package traces

import (
	"math/rand/v2"

	"llmmemory/internal/homework/course/trace"
)

// Random returns n steps on two engines, which are so small that they often run out of blocks. If outside is set, some
// of the steps are writes from outside.
func Random(seed uint64, n int, outside bool) []trace.Op {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), outside: outside}
	for engine := range 2 {
		g.ops = append(g.ops, trace.Op{Kind: trace.Init, Engine: engine, A: int32(64*(1+g.IntN(80)) + g.IntN(64))})
	}
	for len(g.ops) < n-2 {
		g.add(g.IntN(2))
	}
	for engine := range 2 {
		g.ops = append(g.ops, trace.Op{Kind: trace.Destroy, Engine: engine})
	}
	return g.ops
}

type generator struct {
	*rand.Rand
	ops     []trace.Op
	outside bool
}

// add adds one step, or enough appends in a row to reach another block.
func (g *generator) add(engine int) {
	op := trace.Op{Engine: engine, A: g.id()}
	switch n := g.IntN(100); {
	case n < 22:
		op.Kind, op.B = trace.Create, g.length()
	case n < 38:
		op.Kind, op.B = trace.Fork, g.id()
	case n < 52:
		op.Kind = trace.Free
	case n < 60 && g.outside:
		op.Kind, op.B = trace.Hole, int32(g.IntN(40))
	case n < 66 && g.outside:
		op.Kind, op.B, op.C = trace.Move, int32(g.IntN(16)), int32(g.IntN(4))
	case n < 70 && g.outside:
		op.Kind, op.B = trace.Relocate, []int32{0, 1, 16, 17}[g.IntN(4)] // short sequences have no other tables
	case n < 72 && g.outside:
		op.Kind, op.B = trace.Rename, g.id()
	case n < 73 && g.outside:
		op.Kind = trace.Unlink
	default:
		op.Kind = trace.Append
		for range g.IntN(20) {
			op.B = int32(g.Uint32())
			g.ops = append(g.ops, op)
		}
		op.B = int32(g.Uint32())
	}
	g.ops = append(g.ops, op)
}

// Sequences use only a few ids, so that calls often use the same one. Rarely id returns an unusual id.
func (g *generator) id() int32 {
	if g.IntN(16) == 0 {
		return []int32{0, -1, -2147483648, 2147483647}[g.IntN(4)]
	}
	return int32(g.IntN(12)) - 2
}

func (g *generator) length() int32 {
	switch g.IntN(8) {
	case 0:
		return int32(g.IntN(3)) - 1
	case 1, 2:
		return int32(16*(1+g.IntN(40)) + g.IntN(3) - 1)
	case 3:
		return 256 + int32(g.IntN(3)) - 1
	default:
		return int32(1 + g.IntN(60))
	}
}

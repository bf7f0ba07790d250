package traces

import (
	"math/rand/v2"

	"llmmemory/internal/homework/course/trace"
)

// Random returns about n steps on two engines. The pools are small, so that calls often find no free block. If
// outsideWrites is set, some steps write to the engines' memory from outside the library.
func Random(seed uint64, n int, outsideWrites bool) []trace.Op {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), outsideWrites: outsideWrites}
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
	ops           []trace.Op
	outsideWrites bool
}

// add adds a random step for an engine. Where the step is an append_kv, it adds 1 to 20 such steps for one sequence, so
// that a sequence often reaches another block.
func (g *generator) add(engine int) {
	op := trace.Op{Engine: engine, A: g.id()}
	switch n := g.IntN(100); {
	case n < 22:
		op.Kind, op.B = trace.Create, g.length()
	case n < 38:
		op.Kind, op.B = trace.Fork, g.id()
	case n < 52:
		op.Kind = trace.Free
	case n < 60 && g.outsideWrites:
		op.Kind, op.B = trace.Hole, int32(g.IntN(40))
	case n < 66 && g.outsideWrites:
		op.Kind, op.B, op.C = trace.Move, int32(g.IntN(16)), int32(g.IntN(4))
	case n < 70 && g.outsideWrites:
		op.Kind, op.B = trace.Relocate, []int32{0, 1, 16, 17}[g.IntN(4)] // short sequences have no other tables
	case n < 72 && g.outsideWrites:
		op.Kind, op.B = trace.Rename, g.id()
	case n < 73 && g.outsideWrites:
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

// id returns the id of a sequence. It chooses from a few ids, so that calls often name the same sequence, and rarely
// returns an extreme value.
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

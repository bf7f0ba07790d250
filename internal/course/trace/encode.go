package trace

import (
	"encoding/binary"
	"math"
	"os"
)

// File is an open file in a folder with what Encode writes, ready to be read.
func File(dir string, traces [][]Op, defined bool) (*os.File, error) {
	f, err := os.CreateTemp(dir, "steps-")
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(Encode(traces, defined)); err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, err
	}
	return os.Open(f.Name())
}

// Encode writes traces for grader/process/watched.c (struct step there), each on engines
// of its own, without writes from outside, what follows them, and failing
// allocations. With defined, lengths near INT_MAX are left out, too: the
// handout's own ceiling division overflows there.
func Encode(traces [][]Op, defined bool) []byte {
	const (
		end  = uint32(Destroy) + 1
		over = end + 1
	)
	var to []byte
	step := func(call uint32, engine, a, b int32) {
		for _, n := range []uint32{call, uint32(engine), uint32(a), uint32(b)} {
			to = binary.NativeEndian.AppendUint32(to, n)
		}
	}
	for _, ops := range traces {
		for _, op := range ops {
			if op.Kind.Outside() {
				break // what follows it would not make sense without
			}
			if op.Fail > 0 || defined && op.Kind == Create && op.B > math.MaxInt32-15 {
				continue
			}
			if op.Kind == Forks { // a few, because this is slow there
				for i := range min(op.C, 40) {
					step(uint32(Fork), int32(op.Engine), op.A, op.B+i)
				}
				continue
			}
			step(uint32(op.Kind), int32(op.Engine), op.A, op.B)
		}
		step(end, 0, 0, 0)
	}
	step(over, 0, 0, 0)
	return to
}

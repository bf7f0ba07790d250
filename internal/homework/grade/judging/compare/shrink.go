package compare

import (
	"slices"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/trace"
)

// Shrink shortens a trace that shows a difference. It removes steps and makes numbers smaller as long as the trace
// ends in the same difference (Difference.Same). If the trace makes each engine before it uses the engine, so does
// the result. play returns the first difference of a trace. maxPlays limits roughly how often Shrink calls play; a
// limit of time would make the result depend on the machine.
func Shrink(ops []trace.Op, d *Difference, play func([]trace.Op) (*Difference, error), maxPlays int) ([]trace.Op, *Difference, error) {
	s := &shrinker{ops: slices.Clone(ops[:d.Step+1]), found: d, play: play, playsLeft: maxPlays, complete: complete(ops[:d.Step+1])}
	for shorter := true; shorter && s.err == nil; {
		shorter = s.simplify(func(o *trace.Op) *int32 {
			switch {
			case o.Kind == trace.Frees:
				return &o.B
			case o.Kind.Many():
				return &o.C // first, because many calls take long
			}
			return nil
		})
		for size := max(1, len(s.ops)/2); size >= 1; size /= 2 {
			shorter = s.leaveOut(size) || shorter
		}
		shorter = s.simplify(func(o *trace.Op) *int32 { return &o.A }) || shorter
		shorter = s.simplify(func(o *trace.Op) *int32 { return &o.B }) || shorter
		shorter = s.single() || shorter
		shorter = s.rename() || shorter
	}
	s.number()
	return s.ops, s.found, s.err
}

type shrinker struct {
	ops       []trace.Op
	found     *Difference
	play      func([]trace.Op) (*Difference, error)
	playsLeft int // times to play
	complete  bool
	err       error
}

func complete(ops []trace.Op) bool {
	var made [trace.Engines]bool
	for _, op := range ops {
		switch {
		case op.Engine == trace.None:
		case op.Kind == trace.Init:
			made[op.Engine] = made[op.Engine] || op.A >= 0 && op.Pool() >= course.BlockSize
		case !made[op.Engine]:
			return false
		case op.Kind == trace.Destroy:
			made[op.Engine] = false
		}
	}
	return true
}

func (s *shrinker) try(candidate []trace.Op) bool {
	if s.err != nil || s.playsLeft <= 0 || s.complete && !complete(candidate) {
		return false
	}
	s.playsLeft -= cost(candidate)
	d, err := s.play(candidate)
	if err != nil {
		s.err = err
		return false
	}
	if d == nil || !d.Same(s.found) {
		return false
	}
	s.ops, s.found = candidate[:d.Step+1], d
	return true
}

// cost estimates how much time a trace takes, as a multiple of the time of an ordinary trace.
func cost(ops []trace.Op) int {
	sum := 1
	for _, op := range ops {
		sum += op.Calls() / 500
	}
	return sum
}

func (s *shrinker) leaveOut(size int) bool {
	done := false
	for start := len(s.ops) - 1 - size; start >= 0; start -= size {
		if start+size >= len(s.ops) {
			continue
		}
		if s.try(slices.Concat(s.ops[:start], s.ops[start+size:])) {
			done = true
		}
	}
	return done
}

// simplify tries smaller values for one number of each step. field returns a pointer to the number, nil if the step
// has no such number. simplify reports whether any step became simpler.
func (s *shrinker) simplify(field func(*trace.Op) *int32) bool {
	done := false
	for i := 0; i < len(s.ops); i++ {
		now := field(&s.ops[i])
		if now == nil {
			continue
		}
		for _, smaller := range []int32{1, 2, 16, 64, *now / 2 / 64 * 64, *now / 2, *now - *now%64, min(*now-1, 64)} {
			if smaller < 1 || smaller >= *now {
				continue
			}
			candidate := slices.Clone(s.ops)
			*field(&candidate[i]) = smaller
			if s.try(candidate) {
				done = true
				break
			}
		}
	}
	return done
}

// single looks for steps of the kinds that make several calls (such as Appends). If the number of calls of such a step
// is 1, single tries the kind for a single call (Append) instead. It reports whether it has replaced a step.
func (s *shrinker) single() bool {
	done := false
	for i := 0; i < len(s.ops); i++ {
		one := s.ops[i]
		n := one.C
		if one.Kind == trace.Frees {
			n, one.B = one.B, 0
		}
		if !one.Kind.Many() || n != 1 {
			continue
		}
		one.Kind, one.C = one.Kind.Single(), 0
		candidate := slices.Clone(s.ops)
		candidate[i] = one
		done = s.try(candidate) || done
	}
	return done
}

const maxIDs = 4 // that a short trace needs

// rename replaces an id that is not between 1 and maxIDs by the smallest unused id. It takes the first such id with
// which the trace still shows the difference, and reports whether there is one.
func (s *shrinker) rename() bool {
	for i := range s.ops {
		for _, id := range ids(&s.ops[i]) {
			if *id >= 1 && *id <= maxIDs {
				continue
			}
			for smaller := int32(1); smaller <= maxIDs; smaller++ {
				if candidate := renamed(s.ops, *id, smaller); candidate != nil {
					if s.try(candidate) {
						return true
					}
					break
				}
			}
		}
	}
	return false
}

func (s *shrinker) number() {
	numbers := map[int32]int32{}
	candidate := slices.Clone(s.ops)
	for i := range candidate {
		if ranges(candidate[i].Kind) {
			return
		}
		for _, id := range ids(&candidate[i]) {
			if numbers[*id] == 0 {
				numbers[*id] = int32(len(numbers) + 1)
			}
			*id = numbers[*id]
		}
	}
	if !slices.Equal(candidate, s.ops) {
		s.try(candidate)
	}
}

func ranges(k trace.Kind) bool { return k == trace.Creates || k == trace.Forks || k == trace.Frees }

// renamed returns a copy of the steps in which the sequence id old is replaced. It returns nil if a step already uses
// the id replacement, or if a step names a range of ids.
func renamed(ops []trace.Op, old, replacement int32) []trace.Op {
	candidate := slices.Clone(ops)
	for i := range candidate {
		if ranges(candidate[i].Kind) {
			return nil
		}
		for _, id := range ids(&candidate[i]) {
			switch *id {
			case replacement:
				return nil
			case old:
				*id = replacement
			}
		}
	}
	return candidate
}

func ids(op *trace.Op) []*int32 {
	switch op.Kind {
	case trace.Init, trace.Destroy:
		return nil
	case trace.Fork, trace.Rename, trace.Share:
		return []*int32{&op.A, &op.B}
	}
	return []*int32{&op.A}
}

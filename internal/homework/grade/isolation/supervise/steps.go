package supervise

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"slices"

	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/course/trace"
)

// Steps are traces for grader/process/watched.c.
type Steps struct {
	Traces  [][]trace.Op
	Defined bool // without lengths near INT_MAX, for which the handout's own ceiling division overflows
	Own     bool // the submission has to free what a trace leaves
}

// file writes the steps to a new file in a folder, and opens the file for reading. Each trace begins with new engines.
// Calls with a failing allocation are omitted. If a step makes many calls, only the first maxOfMany are written. In a
// step that writes to the engine's memory, the process must make the changes that file has computed, because it does
// not know the correct state itself.
//
// file omits traces with a large pool. If Own is set, it also omits traces in which the grader would free or move an
// allocation, and traces that make a pool of more than 1 MiB.
func (s Steps) file(dir string) (*os.File, error) {
	var text stepText
	if err := s.each(&text, func(int, int, int) {}); err != nil {
		return nil, err
	}
	text.add(leave, 0)
	f, err := os.CreateTemp(dir, "steps-")
	if err != nil {
		return nil, err
	}
	_, err = f.Write(text)
	if err = cmp.Or(err, f.Close()); err == nil {
		var steps *os.File
		if steps, err = os.Open(f.Name()); err == nil {
			return steps, nil
		}
	}
	return nil, errors.Join(err, os.Remove(f.Name()))
}

const stepBytes = 24 // of struct step of watched.c

// last returns the homework function in which a program ended, or "" if it ended elsewhere. steps is the open file from
// which the program has read its steps. The program shares the file's offset with the grader, so the step just before
// the offset is the last one that the program read.
func last(steps *os.File) string {
	read, err := steps.Seek(0, io.SeekCurrent)
	if err != nil {
		return ""
	}
	var call [4]byte
	if _, err := steps.ReadAt(call[:], read-stepBytes); err != nil {
		return ""
	}
	if kind := binary.NativeEndian.Uint32(call[:]); kind <= uint32(trace.Destroy) {
		return trace.Kind(kind).Function()
	}
	return ""
}

// The kinds of steps that are not calls, as in watched.c. The kind of a step that changes memory is the constant change
// plus an oracle.ChangeKind.
const (
	end    = uint32(trace.Destroy) + 1
	leave  = end + 1
	change = leave + 1
)

const maxOfMany = 40 // calls of one step, because each is slow

// each appends the steps of the traces to all. It leaves out traces with a large pool. If s.Own is set, it also leaves
// out traces that make a pool of more than 1 MiB, and traces in which the grader must free or move an allocation. After
// each step of a trace it calls afterStep with the index of the trace, the index of the step in the trace, and the
// offset in all at which the step begins.
func (s Steps) each(all *stepText, afterStep func(i, step, offset int)) error {
	free := int32(0)
	if s.Own {
		free = 1
	}
	for i, ops := range s.Traces {
		if slices.ContainsFunc(ops, trace.Op.Large) || s.Own && (slices.ContainsFunc(ops, takesApart) || slices.ContainsFunc(ops, slowlyFilled)) {
			continue
		}
		all.add(end, 0, free)
		if err := all.play(ops, s.Defined, func(step, offset int) { afterStep(i, step, offset) }); err != nil {
			return err
		}
		all.add(end, 0, free)
	}
	return nil
}

// prefix returns the trace that a program was playing when it ended, up to the last step read by the program. It returns
// nil if the program was not playing a trace.
func (s Steps) prefix(steps *os.File) (ops []trace.Op, err error) {
	read, err := steps.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	var all stepText
	err = s.each(&all, func(i, step, offset int) {
		if int64(offset) < read && read <= int64(len(all)) {
			ops = s.Traces[i][:step+1]
		}
	})
	return ops, err
}

// stepText is a sequence of struct step of watched.c.
type stepText []byte

func (t *stepText) add(call uint32, engine int, numbers ...int32) {
	text := binary.NativeEndian.AppendUint32(*t, call)
	text = binary.NativeEndian.AppendUint32(text, uint32(engine))
	for i := range 4 {
		n := int32(0)
		if i < len(numbers) {
			n = numbers[i]
		}
		text = binary.NativeEndian.AppendUint32(text, uint32(n))
	}
	*t = text
}

// play appends the steps of one trace to the text, except calls with a failing allocation. defined is Steps.Defined.
// After each step, play calls afterStep with the index of the step and the offset in the text at which the step begins.
func (t *stepText) play(ops []trace.Op, defined bool, afterStep func(step, offset int)) error {
	w, err := oracle.New()
	if err != nil {
		return err
	}
	defer w.Close()
	for step, op := range ops {
		offset := len(*t)
		switch {
		case op.Given || op.Kind.Outside():
			for _, c := range w.Write(op) {
				t.add(change+uint32(c.Kind), c.Engine, c.A, c.B, c.C, c.N)
			}
		case op.Fail == 0:
			t.calls(w, op, defined)
		}
		afterStep(step, offset)
	}
	return nil
}

func (t *stepText) calls(w *oracle.World, op trace.Op, defined bool) {
	n := 0
	for single := range op.Each {
		if defined && single.Kind == trace.Create && single.B > math.MaxInt32-15 {
			continue
		}
		w.Play(single)
		t.add(uint32(single.Kind), single.Engine, single.A, single.B)
		if n++; n == maxOfMany {
			break
		}
	}
}

// slowlyFilled reports whether op makes a very large pool. Filling it could use up a submission's processor time,
// because the submission may search for each free block from the first block on.
func slowlyFilled(op trace.Op) bool { return op.Kind == trace.Init && op.A > 1<<20 }

// takesApart reports whether the grader must free or move an allocation for op. The grader cannot do so if the
// submission has put several structures into one allocation.
func takesApart(op trace.Op) bool { return op.Kind == trace.Relocate || op.Kind == trace.Unlink }

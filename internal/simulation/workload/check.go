package workload

import (
	"errors"
	"fmt"
	"io"
)

// A Summary describes a trace.
type Summary struct {
	Format   string
	Requests int
	Skipped  int     // rows without prompt or answer
	Hashed   int     // requests with hashes
	Span     float64 // s from the first arrival to the last

	Taken     int     // number of first requests that will be run
	TakenSpan float64 // s from the first of these to the last

	MeanPrompt, MeanOutput float64 // tokens
}

// Rate returns the mean rate, in requests/s, of the Taken requests, or 0 if all of them arrive at the same time.
func (s *Summary) Rate() float64 {
	if s.TakenSpan == 0 {
		return 0
	}
	return float64(s.Taken-1) / s.TakenSpan
}

// Check reads a whole trace and summarizes it, so that a bad row is found before a run starts. It returns the
// error of the first bad row, or an error if the trace has no requests. take is the number of requests from
// the start of the trace that will be run; 0 means all.
func Check(path string, take int) (Summary, error) {
	t, err := Open(path)
	if err != nil {
		return Summary{}, err
	}
	defer t.Close()
	return t.summarize(take)
}

func (t *Trace) summarize(take int) (Summary, error) {
	s := Summary{Format: t.Format()}
	var prompts, outputs int
	for {
		var r Request
		err := t.Next(&r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Summary{}, err
		}
		s.Requests++
		s.Span = r.Arrival
		if take == 0 || s.Requests <= take {
			s.Taken, s.TakenSpan = s.Requests, s.Span
		}
		prompts += r.Prompt
		outputs += r.Output
		if r.Hashes != nil {
			s.Hashed++
		}
	}
	s.Skipped = t.Skipped
	if s.Requests == 0 {
		skipped := ""
		if t.Skipped > 0 {
			skipped = fmt.Sprintf(", %d rows without prompt or answer skipped", t.Skipped)
		}
		return Summary{}, fmt.Errorf("%w: %s: no requests in it%s", ErrTrace, t.lines.name, skipped)
	}
	s.MeanPrompt = float64(prompts) / float64(s.Requests)
	s.MeanOutput = float64(outputs) / float64(s.Requests)
	return s, nil
}

package workload

import (
	"encoding/json"
	"fmt"
	"io"
)

// A Trace is a Source that reads a file row by row. It shifts arrivals so that the first request arrives at 0. Rows
// must be in the order of arrival.
type Trace struct {
	// Skipped is the number of rows so far that were skipped because they have 0 tokens of prompt or answer.
	// In BurstGPT, these are failed requests; for Azure's and Mooncake's traces their meaning is not
	// documented. In traces that users write, such a row is an error.
	Skipped int

	lines    lines
	closer   io.Closer
	parser   parser
	any      bool // a row was read
	last     float64
	lastText []byte  // the last row's time as it was written
	start    float64 // of the first request
	begun    bool
	err      error
	ids      []int64 // of the last row
}

// Open opens a trace; "-" is standard input. The file may be gzipped. Its first line determines the format.
// The error wraps ErrTrace if the file can be read but is not a trace.
func Open(path string) (*Trace, error) {
	f, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	t, err := read(f, path)
	if err != nil {
		f.Close()
		return nil, err
	}
	t.closer = f
	return t, nil
}

// read returns a trace that reads from r. Errors name it as name.
func read(r io.Reader, name string) (*Trace, error) {
	t := &Trace{}
	if err := t.lines.open(r, name); err != nil {
		return nil, err
	}
	line, err := t.lines.nextLine()
	if err == io.EOF {
		return nil, t.lines.errorf("the file is empty; wanted %s", wanted)
	}
	if err != nil {
		return nil, err
	}
	if t.parser, err = detect(line); err != nil {
		return nil, t.lines.errorf("%w", err)
	}
	if t.parser.json {
		t.lines.repeat = true // the first line is a row
	}
	return t, nil
}

// Format returns the name of the trace's format.
func (t *Trace) Format() string { return t.parser.name }

// Close closes a file that Open opened.
func (t *Trace) Close() error {
	if t.closer == nil {
		return nil
	}
	return t.closer.Close()
}

// Next implements Source. Errors wrap ErrTrace and name the file, line and column.
func (t *Trace) Next(r *Request) error {
	for t.err == nil {
		var line []byte
		if line, t.err = t.lines.nextLine(); t.err != nil {
			break
		}
		served, err := t.row(line, r)
		if err != nil {
			t.err = t.lines.errorf("%w", err)
			break
		}
		if served {
			return nil
		}
		t.Skipped++
	}
	return t.err
}

// row sets r to the request of a row. served is false if the row must be skipped.
func (t *Trace) row(line []byte, r *Request) (served bool, err error) {
	f, err := t.parser.split(line)
	if err != nil {
		return false, err
	}
	arrival, err := t.parser.seconds(f.values[0])
	if err != nil {
		return false, err
	}
	if t.any && arrival < t.last {
		return false, fmt.Errorf("column %q: %s is before the %s of the row above; rows must be in the order of arrival",
			t.parser.columns[0], f.values[0], t.lastText)
	}
	t.any, t.last, t.lastText = true, arrival, append(t.lastText[:0], f.values[0]...)

	r.Shared = 0
	if r.Prompt, err = t.parser.tokens(1, f.values[1]); err != nil {
		return false, err
	}
	if r.Output, err = t.parser.tokens(2, f.values[2]); err != nil {
		return false, err
	}
	if r.Hashes, err = t.hashes(f.hashes, r.Prompt); err != nil {
		return false, err
	}
	if r.Prompt == 0 || r.Output == 0 {
		return false, nil
	}
	if !t.begun {
		t.begun, t.start = true, arrival
	}
	r.Arrival = arrival - t.start
	return true, nil
}

// hashes reads the hash_ids of a row, if it has any.
func (t *Trace) hashes(text []byte, prompt int) ([]int64, error) {
	if len(text) == 0 {
		return nil, nil
	}
	t.ids = t.ids[:0]
	if err := json.Unmarshal(text, &t.ids); err != nil {
		return nil, bad("hash_ids", text, "is not a list of ids", "whole numbers")
	}
	if want := (prompt + hashTokens - 1) / hashTokens; len(t.ids) != want {
		return nil, fmt.Errorf("column %q has %d ids; wanted %d, one for each %d of the %d tokens of the prompt",
			"hash_ids", len(t.ids), want, hashTokens, prompt)
	}
	return t.ids, nil
}

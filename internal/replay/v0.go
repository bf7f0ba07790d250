package replay

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"llmmemory/internal/paper"
)

// The recordings of vLLM V0, of the paper's system and of Orca have another
// format than V1's (v0.md beside this file): what an operation
// was given and what it answered are fields of one object.

// An Old is a decoded recording in that format.
type Old struct {
	Name string
	Init Init
	Ops  []OldOp
}

// Init is the first line of a recording.
type Init struct {
	Op        string  `json:"op"`
	Flavour   string  `json:"flavour"` // "": V0; sosp23, orca-constant, orca-power2, orca-oracle
	Block     int     `json:"block_size"`
	GPU       int     `json:"num_gpu_blocks"`
	CPU       int     `json:"num_cpu_blocks"`
	Watermark float64 `json:"watermark"`
	Reserved  *int    `json:"watermark_blocks"` // null: not said
	Window    *int    `json:"sliding_window"`   // null: none
	WindowCap *int    `json:"max_block_sliding_window"`
	Caching   bool    `json:"enable_caching"`

	// Orca only.
	Blocks    int             `json:"num_blocks"`
	Largest   int             `json:"max_block"`
	FreeLists map[int][]int32 `json:"free_lists"`

	// Scheduler only.
	MaxTokens int     `json:"max_num_batched_tokens"` // 0: no scheduler
	MaxSeqs   int     `json:"max_num_seqs"`
	MaxLen    int     `json:"max_model_len"`
	Mode      *string `json:"preemption_mode"` // null: vLLM's choice
	Chunked   bool    `json:"chunked_prefill"`
}

// An OldOp is one operation with its answer.
type OldOp struct {
	Line   int                        `json:"-"`
	Fields map[string]json.RawMessage `json:"-"`

	Name      string          `json:"op"`
	Error     string          `json:"error"`
	Group     json.RawMessage `json:"group"` // a text or a number
	Seqs      []int           `json:"seqs"`
	Seq       int             `json:"seq"`
	Parent    int             `json:"parent"`
	Child     int             `json:"child"`
	N         int             `json:"n"`
	Tokens    []int32         `json:"tokens"`
	Lookahead int             `json:"lookahead"`
	Computed  int             `json:"computed"`
	Unseen    map[int]int     `json:"unseen"`
	Context   int             `json:"context_len"`
	Length    int             `json:"seq_len"`
	IsPrompt  bool            `json:"is_prompt"`
	Window    *int            `json:"sliding_window"`
	Now       float64         `json:"now"`
	ID        int             `json:"id"`
	Prompt    int             `json:"prompt"`
	Output    int             `json:"output"`
}

// given are the fields that an operation is given. They are compared only where
// a player knows them, too.
var given = map[string]bool{
	"op": true, "group": true, "seqs": true, "seq": true, "parent": true, "child": true,
	"n": true, "tokens": true, "lookahead": true, "computed": true, "unseen": true,
	"context_len": true, "seq_len": true, "is_prompt": true, "sliding_window": true,
	"now": true, "id": true, "prompt": true, "output": true,
}

// IsOld reports whether the recording in file has that format, from its first line.
func IsOld(file string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	r, err := unpacked(f)
	if err != nil {
		return false, nil // Load says why
	}
	line, err := bufio.NewReader(r).ReadBytes('\n')
	if err != nil && err != io.EOF {
		return false, nil
	}
	return isInit(line), nil
}

func isInit(line []byte) bool {
	var probe struct {
		Op string `json:"op"`
	}
	return json.Unmarshal(line, &probe) == nil && probe.Op == "init"
}

// LoadOld reads the recording in file, packed by gzip or not.
func LoadOld(file string) (*Old, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := readOld(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	t.Name = file
	return t, nil
}

// readOld decodes a recording. An error names the line.
func readOld(r io.Reader) (*Old, error) {
	t := &Old{}
	if err := eachLine(r, t.line); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Old) line(n int, b []byte) error {
	if n == 1 {
		if !isInit(b) {
			return errors.New(`the first line is no {"op":"init"}`)
		}
		return json.Unmarshal(b, &t.Init)
	}
	op := OldOp{Line: n}
	if err := json.Unmarshal(b, &op); err != nil {
		return err
	}
	if op.Name == "" {
		return errors.New("no operation is named")
	}
	if err := json.Unmarshal(b, &op.Fields); err != nil {
		return err
	}
	t.Ops = append(t.Ops, op)
	return nil
}

// tokens is how many an operation is given, as a number or one by one.
func (op *OldOp) tokens() int {
	if op.Tokens != nil {
		return len(op.Tokens)
	}
	return op.N
}

// wants returns the recorded fields of the answer: those that are no arguments, and those that r has.
func (op *OldOp) wants(r result) map[string]json.RawMessage {
	want := map[string]json.RawMessage{}
	for name, value := range op.Fields {
		if _, known := r[name]; known || !given[name] {
			want[name] = value
		}
	}
	return want
}

// An oldPlayer plays operations. play fills the result with everything the
// operation answers but the free blocks, which are common to all.
type oldPlayer interface {
	play(op *OldOp, r result) error
	free() any
	check() error
}

func newOldPlayer(c *Init) (oldPlayer, error) {
	switch c.Flavour {
	case "":
		if c.MaxTokens > 0 {
			return newV0Scheduler(c)
		}
		return newV0Manager(c)
	case "sosp23":
		return newSospManager(c)
	case "orca-oracle":
		return newOrca(c, paper.Oracle)
	case "orca-power2":
		return newOrca(c, paper.Pow2)
	case "orca-constant":
		return newOrca(c, paper.Max)
	}
	return nil, fmt.Errorf("there is no flavour %q: want none, sosp23, orca-oracle, orca-power2 or orca-constant", c.Flavour)
}

// VerifyOld plays t, compares every field and checks the whole state after
// every operation. It returns how many lines were compared: all, unless an
// operation failed, after which the state of vLLM is another one (v0.md). The
// error is a *Difference, or wraps ErrTrace if the recording asks for what
// cannot be.
func VerifyOld(t *Old) (compared int, err error) {
	p, err := newOldPlayer(&t.Init)
	if err != nil {
		return 0, fmt.Errorf("%w: line 1: %w", ErrTrace, err)
	}
	for i := range t.Ops {
		op := &t.Ops[i]
		r := result{}
		if err := safely(func() error { return p.play(op, r) }, op.describe); err != nil {
			return i + 1, fmt.Errorf("%w: line %d: %w", ErrTrace, op.Line, err)
		}
		if _, answered := r["free"]; !answered && op.Name != "add" {
			r["free"] = p.free()
		}
		if field, want, got, found := differs(op.wants(r), r); found {
			return i + 1, &Difference{
				Trace: t.Name, Line: op.Line, Op: op.describe(), Field: field,
				Want: shorten(want, 2000), Got: shorten(got, 2000),
			}
		}
		if err := p.check(); err != nil {
			return i + 1, fmt.Errorf("line %d: %w", op.Line, err)
		}
		if op.Error != "" {
			return i + 2, nil
		}
	}
	return len(t.Ops) + 1, nil
}

func (op *OldOp) describe() string {
	var b strings.Builder
	b.WriteString(op.Name)
	for name, value := range op.Fields {
		if given[name] && name != "op" {
			fmt.Fprintf(&b, " %s %s", name, shorten(string(value), 100))
		}
	}
	return b.String()
}

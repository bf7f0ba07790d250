package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrTrace is wrapped by every complaint about a recording itself.
var ErrTrace = errors.New("bad trace")

// A Trace is a decoded recording.
type Trace struct {
	Header Header
	Ops    []Op

	who map[string]int // ids in the order of appearance
}

// Header is the first line of a recording.
type Header struct {
	Type   string `json:"type"` // pool, manager or scheduler
	Name   string `json:"name"`
	Config Config `json:"config"`
}

// Config is how the recorded program was set up.
type Config struct {
	Hash           string  `json:"hash"`
	Caching        bool    `json:"caching"`
	Hashing        *bool   `json:"hashing"` // absent: true
	Events         bool    `json:"events"`
	Watermark      float64 `json:"watermark"`
	Eagle          bool    `json:"eagle"`
	Retention      *int    `json:"retention"` // null: dense
	MaxModelLen    int     `json:"max_model_len"`
	MaxInFlight    *int    `json:"max_in_flight_tokens"` // null: MaxModelLen
	NumBlocks      int     `json:"num_blocks"`
	Groups         []Group `json:"groups"`
	SchedulerBlock int     `json:"scheduler_block_size"`
	HashBlock      int     `json:"hash_block_size"`
	BlockSize      int     `json:"block_size"` // pool only

	// Scheduler only.
	Policy      string `json:"policy"`
	MaxSeqs     int    `json:"max_num_seqs"`
	MaxTokens   int    `json:"max_num_batched_tokens"`
	LongPrefill int    `json:"long_prefill"`
	Chunked     *bool  `json:"chunked"`          // absent: true
	ReserveFull *bool  `json:"reserve_full_isl"` // absent: true
	Spec        int    `json:"spec"`             // drafts for each request
	MambaMode   string `json:"mamba_mode"`
}

// Group is one group of layers.
type Group struct {
	Kind   string `json:"kind"` // full, swa, chunk or mamba
	Block  int    `json:"bs"`
	Window int    `json:"win"`
	Chunk  int    `json:"chunk"`
	Mode   string `json:"mode"`
}

// An Op is one operation, and what the recorded program answered.
type Op struct {
	Line   int                        `json:"-"`
	who    int                        // number of ID
	I      int                        `json:"i,omitempty"`
	Name   string                     `json:"op,omitempty"`
	Result map[string]json.RawMessage `json:"r,omitempty"`

	ID     string  `json:"id,omitempty"`
	Tokens []int32 `json:"tok,omitempty"`
	Salt   string  `json:"salt,omitempty"`
	LoRA   *lora   `json:"lora,omitempty"`
	Items  []item  `json:"mm,omitempty"`
	Skip   bool    `json:"skip,omitempty"`

	// alloc
	Computed    int   `json:"comp,omitempty"`
	New         int   `json:"nt,omitempty"` // tokens; also those of a partial entry
	Hit         int   `json:"nc,omitempty"` // tokens; also the cached blocks of pcache
	Use         bool  `json:"use,omitempty"`
	Lookahead   int   `json:"la,omitempty"`
	External    int   `json:"ext,omitempty"`
	Delay       bool  `json:"delay,omitempty"`
	Full        bool  `json:"full,omitempty"`
	Reserved    int   `json:"rsv,omitempty"`
	Scheduled   *bool `json:"sched,omitempty"` // absent: true
	InFlight    int   `json:"inf,omitempty"`
	RecordStats bool  `json:"rec,omitempty"`
	Table       bool  `json:"tbl,omitempty"`

	N      int      `json:"n,omitempty"`
	Block  int32    `json:"block,omitempty"`
	IDs    []int32  `json:"ids,omitempty"`
	NF     int      `json:"nf,omitempty"`
	Size   int      `json:"bs,omitempty"`
	Group  uint32   `json:"g,omitempty"`
	Mask   []bool   `json:"mask,omitempty"`
	Hash   int      `json:"h,omitempty"`
	Groups []uint32 `json:"gs,omitempty"`

	// step
	Add    []arrival          `json:"add,omitempty"`
	Abort  []string           `json:"abort,omitempty"`
	Reset  int                `json:"reset,omitempty"`
	Sample map[string][]int32 `json:"sample,omitempty"`
	Draft  map[string][]int32 `json:"draft,omitempty"`
}

type arrival struct {
	ID       string  `json:"id"`
	Tokens   []int32 `json:"tok"`
	Max      int     `json:"max"`
	Priority int     `json:"prio"`
	Arrival  float64 `json:"arr"`
}

type lora struct {
	Name string
	ID   int64
}

func (l *lora) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&l.Name, &l.ID})
}

type item struct {
	Identifier     string
	Offset, Length int
}

func (i *item) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&i.Identifier, &i.Offset, &i.Length})
}

// Load reads the recording in file, packed by gzip or not.
func Load(file string) (*Trace, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

// read decodes a recording. An error names the line.
func read(r io.Reader) (*Trace, error) {
	t := &Trace{who: map[string]int{}}
	if err := eachLine(r, t.line); err != nil {
		return nil, err
	}
	return t, nil
}

// eachLine calls decode with each line and its number, from 1. There must be at least one line.
func eachLine(r io.Reader, decode func(n int, line []byte) error) error {
	r, err := unpacked(r)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTrace, err)
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<28)
	n := 0
	for lines.Scan() {
		n++
		if err := decode(n, lines.Bytes()); err != nil {
			return fmt.Errorf("%w: line %d: %w", ErrTrace, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%w: after line %d: %w", ErrTrace, n, err)
	}
	if n == 0 {
		return fmt.Errorf("%w: it is empty", ErrTrace)
	}
	return nil
}

// unpacked reads through gzip, if r is packed by it.
func unpacked(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(r, 1<<16)
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return gzip.NewReader(buffered)
	}
	return buffered, nil
}

func (t *Trace) line(n int, b []byte) error {
	if n == 1 {
		if err := json.Unmarshal(b, &t.Header); err != nil {
			return err
		}
		return t.Header.check()
	}
	op := Op{Line: n}
	if err := json.Unmarshal(b, &op); err != nil {
		return err
	}
	if op.Name == "" {
		return errors.New("no operation is named")
	}
	if op.Result == nil {
		return fmt.Errorf("%s has no result", op.Name)
	}
	if _, ok := t.who[op.ID]; !ok {
		t.who[op.ID] = len(t.who)
	}
	op.who = t.who[op.ID]
	t.Ops = append(t.Ops, op)
	return nil
}

func (h *Header) check() error {
	switch h.Type {
	case "pool", "manager", "scheduler":
	default:
		return fmt.Errorf("the type is %q: want pool, manager or scheduler", h.Type)
	}
	return nil
}

func orTrue(b *bool) bool { return b == nil || *b }

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
	"path/filepath"
	"strings"
)

// ErrTrace is wrapped by errors about the recording itself.
var ErrTrace = errors.New("bad trace")

// A Trace is a decoded recording.
type Trace struct {
	Name string
	Ops  []Op
	v1   bool // a recording of vLLM V1 (format.md), not of V0, the paper's system or Orca (v0.md)

	header Header
	init   Init
}

// Header is the first line of a recording of V1.
type Header struct {
	Type   string `json:"type"` // pool, manager or scheduler
	Config Config `json:"config"`
}

// Config is the configuration of the recorded program.
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

	// Scheduler only.
	Policy      string `json:"policy"`
	MaxSeqs     int    `json:"max_num_seqs"`
	MaxTokens   int    `json:"max_num_batched_tokens"`
	LongPrefill int    `json:"long_prefill"`
	Chunked     *bool  `json:"chunked"`          // absent: true
	ReserveFull *bool  `json:"reserve_full_isl"` // absent: true
	Spec        int    `json:"spec"`             // draft tokens of each request
}

// Group is one group of layers.
type Group struct {
	Kind   string `json:"kind"` // full, swa, chunk or mamba
	Block  int    `json:"bs"`
	Window int    `json:"win"`
	Chunk  int    `json:"chunk"`
	Mode   string `json:"mode"`
}

// An Op is one operation with its recorded result.
type Op struct {
	Line   int                        `json:"-"`
	text   string                     // the line, shortened
	answer map[string]json.RawMessage // for V1, Result; otherwise all fields of the line

	Name   string                     `json:"op"`
	Result map[string]json.RawMessage `json:"r"`
	Error  string                     `json:"error"`

	ID     name    `json:"id"`
	N      int     `json:"n"`
	Tokens []int32 `json:"tok"`
	Salt   string  `json:"salt"`
	LoRA   *lora   `json:"lora"`
	Items  []item  `json:"mm"`
	Skip   bool    `json:"skip"`

	// alloc
	Computed    int   `json:"comp"`
	New         int   `json:"nt"` // tokens; in ppart, those of the partial block
	Hit         int   `json:"nc"` // tokens; in pcache, the number of blocks cached before
	Use         bool  `json:"use"`
	Lookahead   int   `json:"la"`
	External    int   `json:"ext"`
	Delay       bool  `json:"delay"`
	Full        bool  `json:"full"`
	Reserved    int   `json:"rsv"`
	Scheduled   *bool `json:"sched"` // absent: true
	InFlight    int   `json:"inf"`
	RecordStats bool  `json:"rec"`
	Table       bool  `json:"tbl"`

	Block  int32    `json:"block"`
	IDs    []int32  `json:"ids"`
	NF     int      `json:"nf"`
	Size   int      `json:"bs"`
	Group  uint32   `json:"g"`
	Mask   []bool   `json:"mask"`
	Hash   int      `json:"h"`
	Groups []uint32 `json:"gs"`

	// step
	Add    []arrival          `json:"add"`
	Abort  []string           `json:"abort"`
	Reset  int                `json:"reset"`
	Sample map[string][]int32 `json:"sample"`
	Draft  map[string][]int32 `json:"draft"`

	old
}

type old struct {
	GroupName      name        `json:"group"`
	Seqs           []int       `json:"seqs"`
	Seq            int         `json:"seq"`
	Parent         int         `json:"parent"`
	Child          int         `json:"child"`
	TokenIDs       []int32     `json:"tokens"`
	LookaheadSlots int         `json:"lookahead"`
	ComputedTokens int         `json:"computed"`
	Unseen         map[int]int `json:"unseen"`
	Context        int         `json:"context_len"`
	Length         int         `json:"seq_len"`
	IsPrompt       bool        `json:"is_prompt"`
	Window         *int        `json:"sliding_window"`
	Now            float64     `json:"now"`
	Prompt         int         `json:"prompt"`
	Output         int         `json:"output"`
}

type name string

func (n *name) UnmarshalJSON(b []byte) error {
	*n = name(bytes.Trim(b, `"`))
	return nil
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

// Load reads the recording in file, which may be compressed with gzip.
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
	t.Name, _, _ = strings.Cut(filepath.Base(file), ".jsonl")
	return t, nil
}

// read decodes a recording. An error names the line.
func read(r io.Reader) (*Trace, error) {
	r, err := unpacked(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTrace, err)
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<28)
	t := &Trace{}
	n := 0
	for lines.Scan() {
		n++
		if err := t.line(n, lines.Bytes()); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrTrace, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: after line %d: %w", ErrTrace, n, err)
	}
	if n == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrTrace)
	}
	return t, nil
}

func unpacked(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(r, 1<<16)
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return gzip.NewReader(buffered)
	}
	return buffered, nil
}

func (t *Trace) line(n int, b []byte) error {
	if n == 1 {
		if err := json.Unmarshal(b, &t.init); err != nil {
			return err
		}
		if t.v1 = t.init.Op != "init"; t.v1 {
			return json.Unmarshal(b, &t.header)
		}
		return nil
	}
	op := Op{Line: n, text: shorten(string(b), 400)}
	if err := json.Unmarshal(b, &op); err != nil {
		return err
	}
	op.answer = op.Result
	switch {
	case op.Name == "":
		return errors.New("no operation is named")
	case t.v1 && op.Result == nil:
		return fmt.Errorf("%s has no result", op.Name)
	case !t.v1:
		if err := json.Unmarshal(b, &op.answer); err != nil {
			return err
		}
	}
	t.Ops = append(t.Ops, op)
	return nil
}

func orTrue(b *bool) bool { return b == nil || *b }

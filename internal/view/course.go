package view

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unsafe"

	"llmmemory/internal/block"
	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/scheduling/device"
)

const (
	maxShown = 64  // records are shown for pools of up to this many blocks
	maxLive  = 256 // sequences at a time; every frame lists all of them
)

// Course plays a trace (package trace) on package course and records a frame for each step. The comment lines before a
// call and the comment behind it are shown with the call; a blank line ends them. A line "# title:" sets the title. An
// error in the trace wraps trace.ErrSyntax and contains the number of the line. It is also an error if the trace has a
// step that writes to the engine's memory without a call (see trace.Kind.Outside), or more than maxLive sequences at a
// time.
func Course(r io.Reader) (*Recording, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	calls, title, err := script(string(text))
	if err != nil {
		return nil, err
	}
	world, err := oracle.New()
	if err != nil {
		return nil, err
	}
	defer world.Close()
	p := player{world: world, recording: &Recording{
		Title: title, System: "course engine", BlockSize: course.KVPerBlock, Course: true,
		Note: "Each call of llm_memory.h, played on the reference engine. A block holds 16 records of 4 bytes.",
	}}
	for _, c := range calls {
		p.play(c)
		if n := len(p.last[max(0, c.Engine)].Sequences); n > maxLive {
			return nil, fmt.Errorf("%w: line %d: %d sequences at a time: a map shows at most %d", trace.ErrSyntax, c.line, n,
				maxLive)
		}
	}
	return p.recording, nil
}

// A call is a step of a trace with its comments.
type call struct {
	trace.Op
	line int
	said []string
}

func script(text string) (calls []call, title string, err error) {
	ops, err := trace.Parse(text)
	if err != nil {
		return nil, "", err
	}
	if len(ops) == 0 {
		return nil, "", fmt.Errorf("%w: line 1: it has no calls: begin with \"init e0 512\"", trace.ErrSyntax)
	}
	title = "A trace of the course's engine"
	var said []string
	for i, line := range strings.Split(text, "\n") {
		code, comment, _ := strings.Cut(line, "#")
		comment = strings.TrimSpace(comment)
		if text, found := strings.CutPrefix(comment, "title:"); found {
			title, comment = strings.TrimSpace(text), ""
		}
		if comment != "" {
			said = append(said, comment)
		}
		switch op := len(calls); {
		case strings.TrimSpace(line) == "":
			said = nil // a comment without a call
		case strings.TrimSpace(code) == "":
		case ops[op].Kind.Outside():
			return nil, "", fmt.Errorf("%w: line %d: %s is a write from outside, not a call: a map shows calls only",
				trace.ErrSyntax, i+1, ops[op].Kind)
		default:
			calls, said = append(calls, call{ops[op], i + 1, said}), nil
		}
	}
	return calls, title, nil
}

// A player makes a frame for each call.
type player struct {
	world     *oracle.World
	recording *Recording
	last      [trace.Engines]Frame
	appended  [trace.Engines]map[int]bool // positions in the pool that append_kv wrote, or copies of them
}

func (p *player) play(c call) {
	out := p.world.Play(c.Op)
	engine := max(0, c.Engine)
	f := look(p.world.Engines[engine])
	f.Engine, f.Call, f.Refused = engine, statement(c.Op), out.Refused()
	f.Records = records(p.world.Pools[engine], f.Blocks)
	before := &p.last[engine]
	f.Copies = copies(c.Op, before, &f)
	p.onlyAppended(engine, c.Op, before, &f)
	share(before, &f)
	f.Said = append([]string{outcome(c.Op, out, before, &f)}, c.said...)
	p.recording.NumGPUBlocks = max(p.recording.NumGPUBlocks, f.Blocks)
	p.recording.Frames = append(p.recording.Frames, f)
	p.last[engine] = f
}

// unwritten stands for a record that append_kv has not written. The script of the page has the same constant.
const unwritten = math.MinInt32

// onlyAppended hides the records that append_kv has not written.
func (p *player) onlyAppended(engine int, op trace.Op, before, f *Frame) {
	if f.Records == nil || op.Kind == trace.Init && !f.Refused {
		p.appended[engine] = map[int]bool{}
	}
	known := p.appended[engine]
	for _, c := range f.Copies {
		for k := range course.KVPerBlock {
			known[int(c.Dst)*course.KVPerBlock+k] = known[int(c.Src)*course.KVPerBlock+k]
		}
	}
	old, q := before.sequence(int(op.A), 0), f.sequence(int(op.A), 0)
	if op.Kind.Single() == trace.Append && old != nil && q != nil {
		for position := old.Tokens; position < q.Tokens; position++ {
			known[int(q.Table[position/course.KVPerBlock])*course.KVPerBlock+position%course.KVPerBlock] = true
		}
	}
	for i := range f.Records {
		if !known[i] {
			f.Records[i] = unwritten
		}
	}
}

func look(e *course.Engine) Frame {
	if e == nil {
		return Frame{}
	}
	f := Frame{Blocks: int(e.Total)}
	for s := range e.Sequences {
		q := Sequence{Request: int(s.ID), Tokens: int(s.KVCount)}
		for _, l2 := range s.BlockTable {
			if l2 == nil {
				q.Table = append(q.Table, slices.Repeat([]int32{block.None}, course.L2Size)...)
				continue
			}
			q.Table = append(q.Table, l2[:]...)
		}
		for len(q.Table) > 0 && q.Table[len(q.Table)-1] == block.None {
			q.Table = q.Table[:len(q.Table)-1]
		}
		f.Sequences = append(f.Sequences, q)
	}
	f.Counts = unexplained(unsafe.Slice(e.RefCount, e.Total), f.Sequences, false)
	return f
}

// records returns the records in a pool, or nil if the pool is too large to show them. pool includes the slack on both
// sides.
func records(pool []byte, blocks int) []int32 {
	if blocks == 0 || blocks > maxShown {
		return nil
	}
	all := make([]int32, blocks*course.KVPerBlock)
	for i := range all {
		all[i] = int32(binary.NativeEndian.Uint32(pool[oracle.Slack+i*course.KVSize:]))
	}
	return all
}

// share reuses the memory of tables that have not changed.
func share(before, after *Frame) {
	for i := range after.Sequences {
		q := &after.Sequences[i]
		if old := before.sequence(q.Request, 0); old != nil && slices.Equal(old.Table, q.Table) {
			q.Table = old.Table
		}
	}
}

func copies(op trace.Op, before, after *Frame) []device.Pair {
	if op.Kind.Single() != trace.Append {
		return nil
	}
	old, now := before.sequence(int(op.A), 0), after.sequence(int(op.A), 0)
	if old == nil || now == nil {
		return nil
	}
	var pairs []device.Pair
	for i := range old.Table {
		if i < len(now.Table) && old.Table[i] != block.None && old.Table[i] != now.Table[i] {
			pairs = append(pairs, device.Pair{Src: old.Table[i], Dst: now.Table[i]})
		}
	}
	return pairs
}

func statement(op trace.Op) string {
	e := fmt.Sprintf("e%d", op.Engine)
	if op.Engine == trace.None {
		e = "NULL"
	}
	switch op.Kind {
	case trace.Init:
		if op.A < 0 {
			return "llm_init(NULL, 640)"
		}
		return fmt.Sprintf("%s = llm_init(pool, %d)", e, op.A)
	case trace.Forks, trace.Appends:
		return fmt.Sprintf("%s(%s, %d, %d … %d)", op.Kind.Function(), e, op.A, op.B, op.B+op.C-1)
	case trace.Creates:
		return fmt.Sprintf("create_sequence(%s, %d … %d, %d)", e, op.A, op.A+op.C-1, op.B)
	case trace.Frees:
		return fmt.Sprintf("free_sequence(%s, %d … %d)", e, op.A, op.A+op.B-1)
	case trace.Destroy:
		return fmt.Sprintf("llm_destroy(%s)", e)
	case trace.Free:
		return fmt.Sprintf("free_sequence(%s, %d)", e, op.A)
	default:
		return fmt.Sprintf("%s(%s, %d, %d)", op.Kind.Function(), e, op.A, op.B)
	}
}

func outcome(op trace.Op, out oracle.Outcome, before, after *Frame) string {
	if out.Err != nil {
		reason := out.Err.Error()
		if errors.Is(out.Err, course.ErrNoBlocks) {
			reason += " (out of blocks)" // the handout's words
		}
		return fmt.Sprintf("Refused: %s. Nothing has changed.", reason)
	}
	q := after.sequence(int(op.A), 0)
	switch op.Kind {
	case trace.Init:
		return fmt.Sprintf("The engine has %s, all free.", plural(after.Blocks, "block", "blocks"))
	case trace.Create:
		return fmt.Sprintf("Sequence %d has %s → %s.", op.A, plural(int(op.B), "record", "records"), blocks(q.Table))
	case trace.Fork:
		if q == nil || len(q.Table) == 0 {
			return fmt.Sprintf("Sequence %d is a copy of the empty sequence %d.", op.B, op.A)
		}
		return fmt.Sprintf("Sequence %d shares %s with %d: every count goes up, no block is taken.", op.B, blocks(mapped(q.Table)), op.A)
	case trace.Forks:
		return fmt.Sprintf("%s of sequence %d, of %d: no block is taken.", plural(int(out.Made), "fork", "forks"), op.A, op.C)
	case trace.Creates:
		return fmt.Sprintf("%s, of %d, with %s each.", plural(int(out.Made), "new sequence", "new sequences"), op.C, plural(int(op.B), "record", "records"))
	case trace.Appends:
		return fmt.Sprintf("%s, of %d, are written to sequence %d.", plural(int(out.Made), "record", "records"), op.C, op.A)
	case trace.Frees:
		return fmt.Sprintf("%s, of %d, are gone.", plural(int(out.Made), "sequence", "sequences"), op.B)
	case trace.Append:
		return appended(q, before, after)
	case trace.Free:
		return freed(before.sequence(int(op.A), 0), after)
	default:
		return "Every sequence, every table and the engine are freed. The pool stays with its owner."
	}
}

func mapped(table []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(table), func(id int32) bool { return id == block.None })
}

func appended(q *Sequence, before, after *Frame) string {
	position := q.Tokens - 1
	logical, slot := position/course.KVPerBlock, position%course.KVPerBlock
	id := q.Table[logical]
	oldID := block.None
	if old := before.sequence(q.Request, 0); old != nil && logical < len(old.Table) {
		oldID = old.Table[logical]
	}
	switch {
	case len(after.Copies) > 0:
		return fmt.Sprintf("Sequence %d writes record %d into block %d, which is shared: copy-on-write %d → %d.", q.Request, position, oldID, oldID, id)
	case oldID == block.None:
		return fmt.Sprintf("Sequence %d writes record %d: block %d is the first free one, and now its logical block %d.", q.Request, position, id, logical)
	default:
		return fmt.Sprintf("Sequence %d writes record %d into block %d, slot %d: the block is its own.", q.Request, position, id, slot)
	}
}

// freed returns a sentence about a removed sequence. It lists the blocks that became free, and the blocks still in use.
func freed(q *Sequence, after *Frame) string {
	used := after.used(false)
	free, kept := mapped(q.Table), mapped(q.Table)
	free = slices.DeleteFunc(free, func(id int32) bool { return used[id] > 0 })
	kept = slices.DeleteFunc(kept, func(id int32) bool { return used[id] == 0 })
	var parts []string
	if len(free) > 0 {
		parts = append(parts, blocks(free)+" free again")
	}
	if len(kept) > 0 {
		parts = append(parts, blocks(kept)+" still in use by others")
	}
	if parts == nil {
		parts = []string{"it had no blocks"}
	}
	return fmt.Sprintf("Sequence %d is gone: %s.", q.Request, strings.Join(parts, ", "))
}

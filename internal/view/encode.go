package view

import (
	"encoding/json"
	"fmt"
	"slices"

	"llmmemory/internal/scheduling/device"
)

// A packedPage is the JSON in the page. script/frames.js decodes it. The names of a recording's sequences are listed
// once. Each frame is encoded as the difference from the frame before. A changed list is encoded as a splice: how many
// entries at its beginning are kept, how many at its end, and the new entries between them.
type packedPage struct {
	Scenes []packedScene `json:"scenes"`
	Live   *liveness     `json:"live,omitempty"`
}

type packedScene struct {
	Name   string    `json:"name,omitempty"`
	Title  string    `json:"title"`
	Note   string    `json:"note,omitempty"`
	Boards []*packed `json:"boards"`
}

type packed struct {
	System string   `json:"system,omitempty"`
	Note   string   `json:"note,omitempty"`
	Held   string   `json:"held,omitempty"`
	Block  int      `json:"block"`
	CPU    int      `json:"cpu"`
	Course bool     `json:"course,omitempty"`
	Names  [][2]int `json:"names"` // request and number
	Frames []delta  `json:"frames"`

	Live *liveness `json:"live,omitempty"`
}

// A delta is a frame, encoded as the difference from the frame before. A field about the state is absent if it is as
// in the frame before, except Counts, which each frame has whole. A field about the step is absent if it is empty.
type delta struct {
	Now     float64  `json:"t,omitempty"`
	Call    string   `json:"x,omitempty"`
	Said    []string `json:"s,omitempty"`
	Refused int      `json:"no,omitempty"`
	Engine  int      `json:"e,omitempty"`
	Blocks  *int     `json:"n,omitempty"`

	Grown   []int   `json:"g,omitempty"` // names of sequences with one token more
	Changed []entry `json:"c,omitempty"`
	Gone    []int   `json:"d,omitempty"`

	Waiting []int `json:"qw,omitempty"` // spliced
	Running []int `json:"qr,omitempty"`
	Swapped []int `json:"qs,omitempty"`
	Cached  []int `json:"ca,omitempty"`

	SwapOut []int `json:"so,omitempty"` // source, destination, source, ...
	SwapIn  []int `json:"si,omitempty"`
	Copies  []int `json:"cp,omitempty"`
	Hits    []int `json:"h,omitempty"`
	Counts  []int `json:"k,omitempty"` // device, block, count, device, ...
	Records []int `json:"m,omitempty"` // position in the pool, record, position, ...
}

// An entry is a new or changed sequence. It has the sequence's name, number of tokens and device, and the change of its
// table: how many block ids at the start of the old table are kept, how many at the end, and the new ids between them.
type entry []int

const maxBytes = 24 << 20 // of the JSON of a page

func encode(scenes []*Scene, live *liveness) ([]byte, error) {
	page, frames := packedPage{Live: live}, 0
	for _, s := range scenes {
		scene := packedScene{Name: s.Name, Title: s.Title, Note: s.Note}
		for _, r := range s.Recordings {
			scene.Boards = append(scene.Boards, pack(r))
			frames += len(r.Frames)
		}
		page.Scenes = append(page.Scenes, scene)
	}
	text, err := json.Marshal(page)
	if err != nil {
		return nil, err
	}
	if len(text) > maxBytes {
		return nil, fmt.Errorf("%w: %d frames are %d MB, a page holds %d: record fewer", ErrRecording, frames, len(text)>>20, maxBytes>>20)
	}
	return text, nil
}

// pack encodes each frame as its difference from the one before.
func pack(r *Recording) *packed {
	p := &packer{packed: packed{System: r.System, Note: r.Note, Held: r.Held, Block: r.BlockSize, CPU: r.NumCPUBlocks, Course: r.Course,
		Names: [][2]int{}, Frames: []delta{}}, names: map[[2]int]int{}}
	for i := range r.Frames {
		p.add(&r.Frames[i])
	}
	return &p.packed
}

// A packer encodes frames one after the other.
type packer struct {
	packed
	names  map[[2]int]int    // indexes in Names
	live   map[int]*Sequence // sequences of the last frame, by name
	before Frame             // the last frame
}

func (p *packer) name(s *Sequence) int {
	k := [2]int{s.Request, s.Number}
	n, known := p.names[k]
	if !known {
		n = len(p.Names)
		p.names[k] = n
		p.Names = append(p.Names, k)
	}
	return n
}

func (p *packer) add(after *Frame) {
	d := delta{Now: after.Now, Call: after.Call, Said: after.Said, Engine: after.Engine}
	if after.Refused {
		d.Refused = 1
	}
	if len(p.Frames) == 0 || after.Blocks != p.before.Blocks {
		d.Blocks = &after.Blocks
	}
	p.sequences(&d, after)
	before := &p.before
	d.Waiting, d.Running = splice(before.Waiting, after.Waiting), splice(before.Running, after.Running)
	d.Swapped, d.Cached = splice(before.Swapped, after.Swapped), splice(before.Cached, after.Cached)
	d.SwapOut, d.SwapIn, d.Copies = flat(after.SwapOut), flat(after.SwapIn), flat(after.Copies)
	d.Hits = ints(nil, after.Hits)
	for _, c := range after.Counts {
		d.Counts = append(d.Counts, deviceIndex(c.CPU), int(c.Block), int(c.Count))
	}
	d.Records = written(before.Records, after.Records)
	p.Frames = append(p.Frames, d)
	p.before = *after
}

// sequences adds to d how the sequences have changed since the last frame. d.Grown has the sequences whose only change
// is one more token. d.Changed has the new sequences and those that have changed in another way. d.Gone has the
// sequences that no longer exist.
func (p *packer) sequences(d *delta, after *Frame) {
	next := map[int]*Sequence{}
	for j := range after.Sequences {
		s := &after.Sequences[j]
		n := p.name(s)
		next[n] = s
		old := p.live[n]
		unmoved := old != nil && old.CPU == s.CPU && slices.Equal(old.Table, s.Table)
		switch {
		case unmoved && s.Tokens == old.Tokens:
		case unmoved && s.Tokens == old.Tokens+1:
			d.Grown = append(d.Grown, n)
		default:
			d.Changed = append(d.Changed, change(n, old, s))
		}
	}
	for n := range p.live {
		if next[n] == nil {
			d.Gone = append(d.Gone, n)
		}
	}
	slices.Sort(d.Gone)
	p.live = next
}

func change(name int, old, s *Sequence) entry {
	var before []int32
	if old != nil {
		before = old.Table
	}
	prefix, suffix, inserted := difference(before, s.Table)
	return ints(entry{name, s.Tokens, deviceIndex(s.CPU), prefix, suffix}, inserted)
}

// written lists the records that have changed, each with its position. If the size of the pool has changed, it lists
// all records that append_kv has written.
func written(before, after []int32) []int {
	if len(before) != len(after) {
		before = slices.Repeat([]int32{unwritten}, len(after))
	}
	var list []int
	for i, n := range after {
		if n != before[i] {
			list = append(list, i, int(n))
		}
	}
	return list
}

// deviceIndex is 0 for the GPU and 1 for the CPU.
func deviceIndex(cpu bool) int {
	if cpu {
		return 1
	}
	return 0
}

// splice returns nil if nothing has changed.
func splice[T int | int32](before, after []T) []int {
	if slices.Equal(before, after) {
		return nil
	}
	prefix, suffix, inserted := difference(before, after)
	return ints([]int{prefix, suffix}, inserted)
}

func ints[T int | int32](dst []int, src []T) []int {
	for _, v := range src {
		dst = append(dst, int(v))
	}
	return dst
}

// difference returns how after differs from before. The two lists begin with equal entries and end with equal entries:
// prefix is the number of equal entries at the start, and suffix is the number at the end. inserted has the entries of
// after between them.
func difference[T int | int32](before, after []T) (prefix, suffix int, inserted []T) {
	for prefix < len(before) && prefix < len(after) && before[prefix] == after[prefix] {
		prefix++
	}
	for suffix < len(before)-prefix && suffix < len(after)-prefix &&
		before[len(before)-1-suffix] == after[len(after)-1-suffix] {
		suffix++
	}
	return prefix, suffix, after[prefix : len(after)-suffix]
}

func flat(pairs []device.Pair) []int {
	var list []int
	for _, p := range pairs {
		list = append(list, int(p.Src), int(p.Dst))
	}
	return list
}

package sched

import (
	"fmt"
	"hash/maphash"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// A worker has its steps and its sampled tokens, but not the scheduler's state.
type worker struct {
	groups   []kvcache.Group
	drafts   bool
	computes bool // it computes its positions itself, because with drafts in flight a step has only upper limits
	seed     maphash.Seed
	tables   map[ID][][]int32
	tokens   map[ID][]int32
	extras   map[ID]blockhash.Extras // adapter and images: keys and values depend on them
	computed map[ID]int
	memory   []map[int64]uint64 // by group and slot
	garbage  uint64
	encoder  encoderWorker
}

func newWorker(c *Config) *worker {
	w := &worker{
		groups: c.Cache.Groups, drafts: c.NumSpeculativeTokens > 0, computes: c.AsyncScheduling && c.NumSpeculativeTokens > 0,
		seed: maphash.MakeSeed(), tables: map[ID][][]int32{}, tokens: map[ID][]int32{}, extras: map[ID]blockhash.Extras{}, computed: map[ID]int{},
	}
	w.encoder = newEncoderWorker(c)
	for range w.groups {
		w.memory = append(w.memory, map[int64]uint64{})
	}
	return w
}

type job struct {
	row     Row
	void    bool // the row does not count, because its request is gone or has lost its blocks
	gone    bool // aborted or finished; it is computed all the same
	spoiled bool // computed from keys and values that did not come
	start   int
	writes  int // number of tokens whose keys and values are written; smaller if the step fails
	drafts  []int32
}

// begin applies a step to the worker's state. known are the tokens that each request had when the step was scheduled.
func (w *worker) begin(step *Step, known map[ID][]int32) {
	for _, id := range append(append([]ID{}, step.Preempted...), step.Finished...) {
		delete(w.tables, id)
	}
	w.encoder.begin(step, w.extras)
	for _, id := range step.ZeroBlocks {
		for g, group := range w.groups {
			for i := range int64(group.BlockSize) {
				delete(w.memory[g], int64(id)*int64(group.BlockSize)+i)
			}
		}
	}
	for _, c := range step.Copies {
		size := int64(w.groups[c.Group].BlockSize)
		for i := range size {
			w.memory[c.Group][int64(c.Dst)*size+i] = w.memory[c.Group][int64(c.Src)*size+i]
		}
		if table := w.tables[c.ID]; table != nil && c.Index >= 0 {
			table[c.Group][c.Index] = c.Dst
		}
	}
	for i, row := range step.Rows {
		if row.Kind != KindRunning {
			w.tables[row.ID] = make([][]int32, len(w.groups))
			w.tokens[row.ID] = append([]int32{}, known[row.ID]...)
			w.computed[row.ID] = row.NumComputedTokens
		}
		table := w.tables[row.ID]
		if table == nil { // gone since
			table = make([][]int32, len(w.groups))
			w.tables[row.ID] = table
		}
		for g := range w.groups {
			start := step.BlockStarts[i*len(w.groups)+g]
			for len(table[g]) < start { // of a request that is gone
				table[g] = append(table[g], 0)
			}
			table[g] = append(table[g][:start:start], step.RowBlocks(i, g)...)
		}
	}
}

// run computes the rows of a step. It returns an error if a row attends to values that are not its
// own.
func (w *worker) run(step *Step, jobs []job) error {
	slot := 0
	values := make([][]uint64, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		if !j.void {
			if err := w.encoder.check(&j.row, w.extras[j.row.ID]); err != nil {
				return err
			}
			if !w.computes && j.row.NumComputedTokens != w.computed[j.row.ID] {
				return fmt.Errorf("request %#x computes from token %d: the worker has %d", uint64(j.row.ID), j.row.NumComputedTokens, w.computed[j.row.ID])
			}
			all := append(append([]int32{}, w.tokens[j.row.ID]...), j.drafts...)
			if want := j.start + j.row.NumScheduledTokens; want > len(all) || j.row.Samples != (want == len(all)) {
				return fmt.Errorf("request %#x computes up to token %d of %d and samples: %v", uint64(j.row.ID), want, len(all), j.row.Samples)
			}
			values[i] = w.values(j.row.ID, all)
		}
		if j.void && !j.spoiled {
			values[i] = w.values(j.row.ID, w.tokens[j.row.ID])
		}
		for g := range w.groups {
			if w.groups[g].Kind == kvcache.Mamba {
				if err := w.advance(g, j, values[i]); err != nil {
					return err
				}
				continue
			}
			for k := range j.writes {
				w.write(g, w.place(step, j, g, slot, k), j, values[i], k)
			}
		}
		slot += j.row.NumScheduledTokens
	}
	for i := range jobs {
		if !jobs[i].void {
			if err := w.attend(&jobs[i], values[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// advance updates the state of a Mamba group with the tokens of a job. The state is in the first slot of its block.
// The separate states of drafts are not modelled.
func (w *worker) advance(g int, j *job, values []uint64) error {
	table, size := w.tables[j.row.ID][g], w.groups[g].BlockSize
	end := j.start + j.row.NumScheduledTokens
	if !j.void && j.start > 0 && !w.drafts {
		id := table[(j.start-1)/size]
		if w.memory[g][int64(id)*int64(size)] != values[j.start-1] {
			return fmt.Errorf("request %#x, group %d: block %d holds another state than that after %d tokens", uint64(j.row.ID), g, id, j.start)
		}
	}
	if at := (end - 1) / size; j.writes > 0 && at < len(table) && table[at] != 0 {
		if j.writes < j.row.NumScheduledTokens { // the step has failed in the middle
			values = nil
		}
		w.write(g, int64(table[at])*int64(size), j, values, j.row.NumScheduledTokens-1)
	}
	return nil
}

func (w *worker) place(step *Step, j *job, g, slot, k int) int64 {
	size, at := w.groups[g].BlockSize, j.start+k
	table := w.tables[j.row.ID][g]
	place := int64(-1)
	if at/size < len(table) && table[at/size] != 0 {
		place = int64(table[at/size])*int64(size) + int64(at%size)
	}
	if given := step.Slots[g][slot+k]; !w.computes && !j.void && given != place {
		panic(fmt.Sprintf("slot %d, by the worker's table %d", given, place))
	}
	return place
}

func (w *worker) write(g int, place int64, j *job, values []uint64, k int) {
	if place < 0 {
		return
	}
	if j.void && j.start+k >= len(values) {
		w.garbage++
		w.memory[g][place] = w.garbage
		return
	}
	w.memory[g][place] = values[j.start+k]
}

func (w *worker) values(id ID, tokens []int32) []uint64 {
	var h maphash.Hash
	h.SetSeed(w.seed)
	extras := w.extras[id]
	fmt.Fprint(&h, extras.LoRA, " ")
	values := make([]uint64, len(tokens))
	for i, t := range tokens {
		fmt.Fprint(&h, t, " ")
		for _, item := range extras.Items {
			if item.Offset == i {
				fmt.Fprint(&h, item.Identifier, " ")
			}
		}
		values[i] = h.Sum64()
	}
	return values
}

func (w *worker) attend(j *job, values []uint64) error {
	last := j.start + j.row.NumScheduledTokens - 1
	for g, spec := range w.groups {
		from := 0
		switch spec.Kind {
		case kvcache.SlidingWindow:
			from = max(0, last-spec.Window+1)
		case kvcache.ChunkedLocal:
			from = last - last%spec.Chunk
		case kvcache.Mamba:
			continue
		}
		for p := from; p <= last; p++ {
			id := w.tables[j.row.ID][g][p/spec.BlockSize]
			switch got := w.memory[g][int64(id)*int64(spec.BlockSize)+int64(p%spec.BlockSize)]; got {
			case values[p]:
			case 0:
				return fmt.Errorf("request %#x, group %d, token %d of %d: block %d was never written there", uint64(j.row.ID), g, p, last+1, id)
			default:
				return fmt.Errorf("request %#x, group %d, token %d of %d: block %d holds something else", uint64(j.row.ID), g, p, last+1, id)
			}
		}
	}
	return nil
}

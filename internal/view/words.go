package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"llmmemory/internal/block"
	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/serve"
)

func (f *Frame) sequencesOf(request int) (all []*Sequence) {
	for i := range f.Sequences {
		if s := &f.Sequences[i]; s.Request == request {
			all = append(all, s)
		}
	}
	return all
}

// sequence returns one sequence of a request, or nil.
func (f *Frame) sequence(request, number int) *Sequence {
	for i := range f.Sequences {
		if s := &f.Sequences[i]; s.Request == request && s.Number == number {
			return s
		}
	}
	return nil
}

// blocksOf returns the blocks of a request, each once, in the order of its sequences and then of the logical blocks.
func (f *Frame) blocksOf(request int) []int32 {
	var all []int32
	seen := map[int32]bool{block.None: true}
	for _, q := range f.sequencesOf(request) {
		for _, id := range q.Table {
			if !seen[id] {
				seen[id] = true
				all = append(all, id)
			}
		}
	}
	return all
}

func (f *Frame) used(cpu bool) map[int32]int {
	counts := map[int32]int{}
	for _, q := range f.Sequences {
		for _, id := range q.Table {
			if q.CPU == cpu && id != block.None {
				counts[id]++
			}
		}
	}
	return counts
}

// words describes what happened between two frames.
type words struct {
	before, after *Frame
	block         int          // block size in tokens
	wasPreempted  map[int]bool // requests that had lost their blocks before the iteration
	first         bool         // there is no earlier frame
	said          []string
}

// sentences returns the sentences about an iteration, about the requests that finished after it, and about the
// evictions and the new requests since the frame before. iter is nil if there was no iteration.
func (w *words) sentences(iter *serve.Iteration, finished []int) []string {
	if iter != nil && (!iter.Idle() || len(finished) == 0) {
		w.iteration(iter)
	}
	w.finished(finished)
	w.evictions()
	if !w.first {
		w.arrivals()
	}
	return w.said
}

func (w *words) say(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

// iteration describes what a scheduler did. Rare events come first.
func (w *words) iteration(iter *serve.Iteration) {
	if w.first {
		w.say("The recording begins here.")
	}
	for _, id := range iter.Ignored {
		w.say("Drops request %d, which can never run.", id)
	}
	for _, p := range iter.Preempted {
		w.preempted(p)
	}
	w.swappedIn(iter)
	for _, p := range iter.Copies {
		w.copied(p)
	}
	for i := range iter.Prefills {
		w.prefill(&iter.Prefills[i])
	}
	w.decodes(iter)
	if len(w.said) == 0 {
		w.say("Nothing runs.")
	}
}

func (w *words) preempted(p serve.Preemption) {
	if p.Swapped {
		ids := w.after.blocksOf(p.ID)
		w.say("Preempts request %d (swap): its %s to %s of the CPU.", p.ID, plural(len(ids), "block goes", "blocks go"), blocks(ids))
		return
	}
	if len(w.before.sequencesOf(p.ID)) == 0 {
		w.say("Preempts request %d (recompute).", p.ID)
		return
	}
	w.say("Preempts request %d (recompute): %s.", p.ID, w.lost(p.ID))
}

// lost says how many blocks of a removed request became free, and how many of them other requests still use.
func (w *words) lost(request int) string {
	gone := w.before.sequencesOf(request)
	counts := w.before.used(gone[0].CPU)
	for _, q := range gone {
		for _, id := range q.Table {
			counts[id]--
		}
	}
	all := w.before.blocksOf(request)
	shared := len(slices.DeleteFunc(slices.Clone(all), func(id int32) bool { return counts[id] == 0 }))
	text := plural(len(all)-shared, "block free", "blocks free")
	if shared > 0 {
		text += fmt.Sprintf(", %d still shared", shared)
	}
	return text
}

func (w *words) swappedIn(iter *serve.Iteration) {
	if len(iter.SwapIn) == 0 {
		return
	}
	for i := range w.before.Sequences {
		old := &w.before.Sequences[i]
		id, now := old.Request, w.after.sequencesOf(old.Request)
		if len(now) == 0 || !old.CPU || now[0].CPU || w.before.sequencesOf(id)[0] != old {
			continue
		}
		ids := slices.DeleteFunc(w.after.blocksOf(id), func(id int32) bool { // without blocks taken since
			return !slices.ContainsFunc(iter.SwapIn, func(p device.Pair) bool { return p.Dst == id })
		})
		w.say("Swaps request %d in: its %s to %s.", id, plural(len(ids), "block goes", "blocks go"), blocks(ids))
	}
}

func (w *words) copied(p device.Pair) {
	for i := range w.after.Sequences {
		q := &w.after.Sequences[i]
		k := slices.Index(q.Table, p.Dst)
		if q.CPU || k < 0 {
			continue
		}
		if before := w.before.sequence(q.Request, q.Number); before != nil && (k >= len(before.Table) || before.Table[k] != p.Src) {
			continue // the copy was not made for a write to a shared block
		}
		w.say("%s writes token %d into block %d, which is shared: copy-on-write %d → %d.",
			upper(w.name(q)), q.Tokens-1, p.Src, p.Src, p.Dst)
		return
	}
	w.say("Copies block %d → %d.", p.Src, p.Dst)
}

func (w *words) name(q *Sequence) string {
	if len(w.after.sequencesOf(q.Request)) == 1 && q.Number == 0 {
		return fmt.Sprintf("request %d", q.Request)
	}
	return fmt.Sprintf("request %d%s", q.Request, letter(q.Number))
}

// letter returns the letter of a sequence in its request: a to z, then aa and so on.
func letter(n int) string {
	if n < 26 {
		return string(rune('a' + n))
	}
	return letter(n/26-1) + letter(n%26)
}

func (w *words) prefill(p *serve.Prefill) {
	var b strings.Builder
	tokens := plural(p.Tokens, "token", "tokens")
	switch {
	case p.Start > 0:
		fmt.Fprintf(&b, "Computes tokens %d–%d of request %d", p.Start, p.Start+p.Tokens-1, p.ID)
	case w.wasPreempted[p.ID]:
		fmt.Fprintf(&b, "Admits request %d again, %s to compute anew", p.ID, tokens)
	default:
		fmt.Fprintf(&b, "Admits request %d: %s of its prompt", p.ID, tokens)
	}
	if p.Start == 0 && p.Seqs > 1 {
		fmt.Fprintf(&b, ", %d sequences", p.Seqs)
	}
	ids := w.after.blocksOf(p.ID)
	if list := w.after.sequencesOf(p.ID); len(ids) > 0 && (p.Start == 0 || len(w.before.blocksOf(p.ID)) != len(ids)) {
		fmt.Fprintf(&b, " → %s", blocks(ids))
		if q := list[0]; w.block > 0 && len(q.Table)*w.block >= q.Tokens+w.block {
			needed := (q.Tokens + w.block - 1) / w.block
			fmt.Fprintf(&b, " (%d reserved, %d needed now)", len(ids), needed*max(1, len(ids)/len(q.Table)))
		}
	}
	if p.Cached > 0 {
		fmt.Fprintf(&b, "; %s in the cache already", plural(p.Cached, "token is", "tokens are"))
	}
	w.said = append(w.said, b.String()+".")
}

func (w *words) decodes(iter *serve.Iteration) {
	if len(iter.Decodes) == 0 {
		return
	}
	var names []string
	sequences := 0
	var begun []string
	for _, d := range iter.Decodes {
		names = append(names, strconv.Itoa(d.ID))
		sequences += d.Seqs
		for _, q := range w.after.sequencesOf(d.ID) {
			if before := w.before.sequence(d.ID, q.Number); before != nil && !before.CPU && len(q.Table) > len(before.Table) {
				begun = append(begun, fmt.Sprintf("%d (%s)", q.Table[len(q.Table)-1], w.name(q)))
			}
		}
	}
	text := fmt.Sprintf("Requests %s write a token", listed(names))
	if len(names) == 1 {
		text = fmt.Sprintf("Request %s writes a token", names[0])
	}
	switch {
	case sequences > len(iter.Decodes):
		text += fmt.Sprintf(" for each of %d sequences", sequences)
	case len(names) > 1:
		text += " each"
	}
	if len(begun) > 0 {
		text += fmt.Sprintf("; %s: %s", plural(len(begun), "block is begun", "blocks are begun"), listed(begun))
	}
	w.said = append(w.said, text+".")
}

func (w *words) arrivals() {
	var names []string
	for _, id := range w.after.Waiting {
		if b := w.before; !slices.Contains(b.Waiting, id) && !slices.Contains(b.Running, id) && !slices.Contains(b.Swapped, id) {
			names = append(names, strconv.Itoa(id))
		}
	}
	switch len(names) {
	case 0:
	case 1:
		w.say("Request %s has come, and waits.", names[0])
	default:
		w.say("Requests %s have come, and wait.", listed(names))
	}
}

// evictions adds a sentence that lists evicted blocks. They were cached in the frame before and are in use now, but not
// through a prefix hit.
func (w *words) evictions() {
	used := w.after.used(false)
	gone := slices.DeleteFunc(slices.Clone(w.before.Cached), func(id int32) bool {
		return used[id] == 0 || slices.Contains(w.after.Hits, id)
	})
	if slices.Sort(gone); len(gone) > 0 {
		w.say("Evicts from the cache: %s.", blocks(gone))
	}
}

func (w *words) finished(ids []int) {
	for _, id := range ids {
		old := w.before.sequencesOf(id)
		if w.first || len(old) == 0 {
			w.say("Request %d leaves.", id)
			continue
		}
		w.say("Request %d leaves after %s: %s.", id, plural(old[0].Tokens, "token", "tokens"), w.lost(id))
	}
}

const maxListed = 10 // in a sentence

// listed joins up to maxListed words and counts the rest.
func listed(words []string) string {
	if len(words) <= maxListed {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:maxListed-1], ", "), len(words)-maxListed+1)
}

// blocks lists block ids. It writes three or more consecutive ids as a range.
func blocks(ids []int32) string {
	var parts []string
	for start := 0; start < len(ids); {
		end, step := start+1, int32(0)
		for end < len(ids) {
			d := ids[end] - ids[end-1]
			if d != 1 && d != -1 || step != 0 && d != step {
				break
			}
			step = d
			end++
		}
		if end-start < 3 {
			end = start + 1
			parts = append(parts, strconv.Itoa(int(ids[start])))
		} else {
			parts = append(parts, fmt.Sprintf("%d–%d", ids[start], ids[end-1]))
		}
		start = end
	}
	if len(ids) == 1 {
		return "block " + parts[0]
	}
	return "blocks " + listed(parts)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

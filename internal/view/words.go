package view

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"llmmemory/internal/block"
	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/serve"
)

// A state is the sequences of each request, by number.
type state map[int][]*Sequence

func byRequest(sequences []Sequence) state {
	all := state{}
	for i := range sequences {
		s := &sequences[i]
		all[s.Request] = append(all[s.Request], s)
	}
	return all
}

func (s state) sequence(request, number int) *Sequence {
	for _, q := range s[request] {
		if q.Number == number {
			return q
		}
	}
	return nil
}

// blocks returns the blocks of a request, each once, by sequence and in logical order.
func (s state) blocks(request int) []int32 {
	var all []int32
	seen := map[int32]bool{}
	for _, q := range s[request] {
		for _, id := range q.Table {
			if id != block.None && !seen[id] {
				seen[id] = true
				all = append(all, id)
			}
		}
	}
	return all
}

// used counts the references to each block of a device.
func (s state) used(cpu bool) map[int32]int {
	counts := map[int32]int{}
	for _, list := range s {
		for _, q := range list {
			for _, id := range q.Table {
				if q.CPU == cpu && id != block.None {
					counts[id]++
				}
			}
		}
	}
	return counts
}

// words says what happened between two states.
type words struct {
	was, is state
	block   int          // block size in tokens
	again   map[int]bool // requests that had lost their blocks
	first   bool         // the state before is unknown
	said    []string
}

func (w *words) say(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

// iteration says what a scheduler did; rare events come first.
func (w *words) iteration(it *serve.Iteration) []string {
	if w.first {
		w.say("The recording begins here.")
	}
	for _, id := range it.Ignored {
		w.say("Drops request %d, which can never run.", id)
	}
	for _, p := range it.Preempted {
		w.preempted(p)
	}
	w.swappedIn(it)
	for _, p := range it.Copies {
		w.copied(p)
	}
	for i := range it.Prefills {
		w.prefill(&it.Prefills[i])
	}
	w.decodes(it)
	if len(w.said) == 0 {
		w.say("Nothing runs.")
	}
	return w.said
}

func (w *words) preempted(p serve.Preemption) {
	if p.Swapped {
		ids := w.is.blocks(p.ID)
		w.say("Preempts request %d (swap): its %s to %s of the CPU.", p.ID, plural(len(ids), "block goes", "blocks go"), blocks(ids))
		return
	}
	if len(w.was[p.ID]) == 0 {
		w.say("Preempts request %d (recompute).", p.ID)
		return
	}
	w.say("Preempts request %d (recompute): %s.", p.ID, w.lost(p.ID))
}

// lost returns, in words, the number of blocks that only that request named.
func (w *words) lost(request int) string {
	counts := w.was.used(w.was[request][0].CPU)
	for _, q := range w.was[request] {
		for _, id := range q.Table {
			counts[id]--
		}
	}
	free, kept := 0, 0
	for _, id := range w.was.blocks(request) {
		if counts[id] == 0 {
			free++
		} else {
			kept++
		}
	}
	text := plural(free, "block free", "blocks free")
	if kept > 0 {
		text += fmt.Sprintf(", %d still shared", kept)
	}
	return text
}

// swappedIn says which requests came back from the CPU.
func (w *words) swappedIn(it *serve.Iteration) {
	if len(it.SwapIn) == 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(w.was)) {
		list, now := w.was[id], w.is[id]
		if len(now) == 0 || !list[0].CPU || now[0].CPU {
			continue
		}
		ids := slices.DeleteFunc(w.is.blocks(id), func(id int32) bool { // without blocks taken since
			return !slices.ContainsFunc(it.SwapIn, func(p device.Pair) bool { return p.Dst == id })
		})
		w.say("Swaps request %d in: its %s to %s.", id, plural(len(ids), "block goes", "blocks go"), blocks(ids))
	}
}

// copied says which sequence had to copy a block.
func (w *words) copied(p device.Pair) {
	for id, list := range w.is {
		for _, q := range list {
			at := slices.Index(q.Table, p.Dst)
			if q.CPU || at < 0 {
				continue
			}
			if was := w.was.sequence(id, q.Number); was != nil && (at >= len(was.Table) || was.Table[at] != p.Src) {
				break // it is not a write to a shared block
			}
			w.say("%s writes token %d into block %d, which is shared: copy-on-write %d → %d.",
				upper(w.name(q)), q.Tokens-1, p.Src, p.Src, p.Dst)
			return
		}
	}
	w.say("Copies block %d → %d.", p.Src, p.Dst)
}

// name returns the name of a sequence.
func (w *words) name(q *Sequence) string {
	if len(w.is[q.Request]) == 1 && q.Number == 0 {
		return fmt.Sprintf("request %d", q.Request)
	}
	return fmt.Sprintf("request %d%s", q.Request, letter(q.Number))
}

// letter returns the letter of a sequence of a request: a to z, then aa.
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
	case w.again[p.ID]:
		fmt.Fprintf(&b, "Admits request %d again, %s to compute anew", p.ID, tokens)
	default:
		fmt.Fprintf(&b, "Admits request %d: %s of its prompt", p.ID, tokens)
	}
	if p.Start == 0 && p.Seqs > 1 {
		fmt.Fprintf(&b, ", %d sequences", p.Seqs)
	}
	ids := w.is.blocks(p.ID)
	if list := w.is[p.ID]; len(ids) > 0 && (p.Start == 0 || len(w.was.blocks(p.ID)) != len(ids)) {
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

// decodes says which requests write a token, and which begin a block for it.
func (w *words) decodes(it *serve.Iteration) {
	if len(it.Decodes) == 0 {
		return
	}
	var who []string
	sequences := 0
	var begun []string
	for _, d := range it.Decodes {
		who = append(who, strconv.Itoa(d.ID))
		sequences += d.Seqs
		for _, q := range w.is[d.ID] {
			if was := w.was.sequence(d.ID, q.Number); was != nil && !was.CPU && len(q.Table) > len(was.Table) {
				begun = append(begun, fmt.Sprintf("%d (%s)", q.Table[len(q.Table)-1], w.name(q)))
			}
		}
	}
	text := fmt.Sprintf("Requests %s write a token", listed(who))
	if len(who) == 1 {
		text = fmt.Sprintf("Request %s writes a token", who[0])
	}
	switch {
	case sequences > len(it.Decodes):
		text += fmt.Sprintf(" for each of %d sequences", sequences)
	case len(who) > 1:
		text += " each"
	}
	if len(begun) > 0 {
		text += fmt.Sprintf("; %s: %s", plural(len(begun), "block is begun", "blocks are begun"), listed(begun))
	}
	w.said = append(w.said, text+".")
}

// arrivals says which requests have arrived and were not admitted.
func arrivals(was, is *Frame) []string {
	var who []string
	for _, id := range is.Waiting {
		if !slices.Contains(was.Waiting, id) && !slices.Contains(was.Running, id) && !slices.Contains(was.Swapped, id) {
			who = append(who, strconv.Itoa(id))
		}
	}
	switch len(who) {
	case 0:
		return nil
	case 1:
		return []string{fmt.Sprintf("Request %s has come, and waits.", who[0])}
	default:
		return []string{fmt.Sprintf("Requests %s have come, and wait.", listed(who))}
	}
}

// evictions says which blocks were reused that a hit could find one step before.
func evictions(cached []int32, is *Frame) []string {
	used := byRequest(is.Sequences).used(false)
	var gone []int32
	for _, id := range cached {
		if used[id] > 0 && !slices.Contains(is.Hits, id) {
			gone = append(gone, id)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	slices.Sort(gone)
	return []string{fmt.Sprintf("Evicts from the cache: %s.", blocks(gone))}
}

// finished says which requests have left.
func (w *words) finished(ids []int) []string {
	for _, id := range ids {
		if w.first || len(w.was[id]) == 0 {
			w.say("Request %d leaves.", id)
			continue
		}
		w.say("Request %d leaves after %s: %s.", id, plural(w.was[id][0].Tokens, "token", "tokens"), w.lost(id))
	}
	return w.said
}

// most is how many things a sentence lists.
const most = 10

// listed joins a few words, and counts the rest.
func listed(words []string) string {
	if len(words) <= most {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:most-1], ", "), len(words)-most+1)
}

// blocks names blocks, with runs of ids in either direction shortened.
func blocks(ids []int32) string {
	var parts []string
	for at := 0; at < len(ids); {
		end, step := at+1, int32(0)
		for end < len(ids) {
			d := ids[end] - ids[end-1]
			if d != 1 && d != -1 || step != 0 && d != step {
				break
			}
			step = d
			end++
		}
		if end-at < 3 {
			end = at + 1
			parts = append(parts, strconv.Itoa(int(ids[at])))
		} else {
			parts = append(parts, fmt.Sprintf("%d–%d", ids[at], ids[end-1]))
		}
		at = end
	}
	if len(ids) == 1 {
		return "block " + parts[0]
	}
	return "blocks " + listed(parts)
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

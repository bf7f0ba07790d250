package view

import (
	"encoding/json"
	"slices"

	"llmmemory/internal/vllm/device"
)

// Unpacked decodes what Write puts into the page.
func Unpacked(r *Recording) ([]Frame, error) {
	text, err := encode([]*Scene{Alone(r)}, nil)
	if err != nil {
		return nil, err
	}
	var page packedPage
	if err := json.Unmarshal(text, &page); err != nil {
		return nil, err
	}
	p := page.Scenes[0].Boards[0]
	var frames []Frame
	live := map[int]Sequence{}
	var last Frame
	for _, d := range p.Frames {
		f := Frame{
			Now: d.Now, Call: d.Call, Said: d.Said, Refused: d.Refused == 1, Engine: d.Engine, Blocks: last.Blocks,
			Waiting: unspliced(last.Waiting, d.Waiting), Running: unspliced(last.Running, d.Running),
			Swapped: unspliced(last.Swapped, d.Swapped), Cached: unspliced(last.Cached, d.Cached),
			SwapOut: unflat(d.SwapOut), SwapIn: unflat(d.SwapIn), Copies: unflat(d.Copies),
			Records: slices.Clone(last.Records),
		}
		if d.Blocks != nil {
			f.Blocks, f.Records = *d.Blocks, nil
		}
		for _, n := range d.Gone {
			delete(live, n)
		}
		for _, n := range d.Grown {
			s := live[n]
			s.Tokens++
			live[n] = s
		}
		for _, e := range d.Changed {
			s := Sequence{Request: p.Names[e[0]][0], Number: p.Names[e[0]][1], Tokens: e[1], CPU: e[2] == 1}
			s.Table = unspliced(live[e[0]].Table, e[3:])
			live[e[0]] = s
		}
		for _, s := range live {
			f.Sequences = append(f.Sequences, s)
		}
		for _, id := range d.Hits {
			f.Hits = append(f.Hits, int32(id))
		}
		for i := 0; i < len(d.Counts); i += 3 {
			f.Counts = append(f.Counts, Count{d.Counts[i] == 1, int32(d.Counts[i+1]), int32(d.Counts[i+2])})
		}
		frames, last = append(frames, f), f
	}
	return frames, nil
}

func unspliced[T int | int32](was []T, s []int) []T {
	if len(s) == 0 {
		return was
	}
	is := slices.Clone(was[:s[0]])
	for _, v := range s[2:] {
		is = append(is, T(v))
	}
	return append(is, was[len(was)-s[1]:]...)
}

func unflat(list []int) []device.Pair {
	var pairs []device.Pair
	for i := 0; i < len(list); i += 2 {
		pairs = append(pairs, device.Pair{Src: int32(list[i]), Dst: int32(list[i+1])})
	}
	return pairs
}

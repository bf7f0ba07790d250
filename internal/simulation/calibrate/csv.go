package calibrate

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

var columns = []string{"batch", "context", "prompt", "seconds"}

// parseCSV reads iterations. The columns are the number of decoding sequences, the context length of each of them,
// the number of computed prompt tokens, and the seconds. They are separated by commas or, as spreadsheets write them,
// by semicolons or tabs, with decimal commas. Empty rows are skipped.
func parseCSV(text []byte) (points []Point, err error) {
	c := csv.NewReader(bytes.NewReader(text))
	c.Comma = separator(text)
	c.TrimLeadingSpace = c.Comma != '\t' // it would skip empty cells
	head, err := c.Read()
	if err != nil {
		return nil, err
	}
	var indexes []int
	for _, name := range columns {
		i := slices.IndexFunc(head, func(s string) bool { return strings.EqualFold(strings.TrimSpace(s), name) })
		if i < 0 {
			return nil, fmt.Errorf("line 1: no column %q among %.200q: want %s, or the JSON of a benchmark", name, head,
				strings.Join(columns, ","))
		}
		indexes = append(indexes, i)
	}
	for {
		row, err := c.Read()
		if err == io.EOF {
			return merge(points), nil
		}
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(strings.Join(row, "")) == "" {
			continue
		}
		line, _ := c.FieldPos(0)
		var v [4]float64
		for i, k := range indexes {
			if v[i], err = number(row[k], c.Comma); err != nil {
				return nil, fmt.Errorf("line %d: column %q: %w", line, columns[i], err)
			}
		}
		points = append(points, Point{
			Label: fmt.Sprintf("batch %.0f, context %.0f each, prompt %.0f", v[0], v[1], v[2]),
			Steps: 1, Seqs: v[0], Context: v[0] * v[1], Prompt: v[2], Seconds: v[3],
		})
	}
}

func separator(text []byte) rune {
	head, _, _ := bytes.Cut(text, []byte("\n"))
	for _, c := range []rune{';', '\t'} {
		if bytes.ContainsRune(head, c) && !bytes.ContainsRune(head, ',') {
			return c
		}
	}
	return ','
}

// number returns a number of at least 0.
func number(text string, separator rune) (float64, error) {
	text = strings.TrimSpace(text)
	plain := text
	if separator != ',' && !strings.Contains(text, ".") {
		plain = strings.Replace(text, ",", ".", 1)
	}
	v, err := strconv.ParseFloat(plain, 64)
	switch {
	case err != nil && strings.Count(text, ",") == 1 && !strings.Contains(text, "."):
		return 0, fmt.Errorf("%q is not a number of at least 0: write %s, or separate the columns by semicolons", text,
			strings.Replace(text, ",", ".", 1))
	case err != nil || !(v >= 0) || math.IsInf(v, 0):
		return 0, fmt.Errorf("%q is not a number of at least 0", text)
	}
	return v, nil
}

// minTrace is the smallest number of iterations in a trace of a server. A file with fewer is a table of measurements.
const minTrace = 200

// merge combines the iterations of a trace with about the same work into one point. Their numbers of sequences are
// equal. Their numbers of context tokens and of prompt tokens differ by at most a factor of √2. A list of fewer than
// minTrace points is returned unchanged. Without merge, the thousands of small batches in a trace would determine the
// line.
func merge(points []Point) []Point {
	if len(points) < minTrace {
		return points
	}
	type work struct{ seqs, context, prompt float64 }
	var merged []Point
	index := map[work]int{}
	for _, p := range points {
		w := work{p.Seqs, math.Floor(2 * math.Log2(p.Context)), math.Floor(2 * math.Log2(p.Prompt))} // -Inf without any
		i, ok := index[w]
		if !ok {
			index[w] = len(merged)
			first := p
			first.lines = []Point{p}
			merged = append(merged, first)
			continue
		}
		m := &merged[i]
		m.lines = append(m.lines, p)
		m.Steps += p.Steps
		m.Seqs += p.Seqs
		m.Context += p.Context
		m.Prompt += p.Prompt
		m.Seconds += p.Seconds
		m.Label = fmt.Sprintf("batch %.0f, context about %.0f each, prompt about %.0f", p.Seqs, m.Context/max(1, m.Seqs),
			m.Prompt/m.Steps)
	}
	return merged
}

package calibrate

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Lengths are what the JSON of vllm bench latency does not say.
type Lengths struct{ Batch, Prompt, Output int }

// Read reads the points of a file; "-" is standard input. What it is is told by
// its first character and fields. The error wraps ErrInput and names the file.
func Read(path string, lengths Lengths) ([]Point, error) {
	var text []byte
	var err error
	if path == "-" {
		text, err = io.ReadAll(os.Stdin)
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("measurements: %w", err)
	}
	points, err := parse(text, lengths)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, path, err)
	}
	return points, nil
}

func parse(text []byte, lengths Lengths) ([]Point, error) {
	text = bytes.TrimSpace(text)
	switch {
	case len(text) == 0:
		return nil, fmt.Errorf("it is empty")
	case text[0] == '{' || text[0] == '[':
		return parseJSON(text, lengths)
	}
	return parseCSV(text)
}

// A record is a result of one of the benchmarks: the fields that are read.
type record struct {
	// llama-batched-bench -o jsonl
	PP     *float64 `json:"pp"` // prompt tokens
	TG     float64  `json:"tg"` // generated tokens of each sequence
	PL     float64  `json:"pl"` // sequences
	Shared float64  `json:"is_pp_shared"`
	TPP    float64  `json:"t_pp"` // s
	TTG    float64  `json:"t_tg"`

	// vllm bench latency --output-json
	AvgLatency *float64 `json:"avg_latency"` // s

	// vllm bench serve --save-result
	MeanTPOT    *float64 `json:"mean_tpot_ms"`
	MeanTTFT    float64  `json:"mean_ttft_ms"`
	Completed   float64  `json:"completed"`
	Duration    float64  `json:"duration"` // s
	TotalInput  float64  `json:"total_input_tokens"`
	TotalOutput float64  `json:"total_output_tokens"`
	Concurrency *float64 `json:"max_concurrency"`
}

func parseJSON(text []byte, lengths Lengths) (points []Point, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	for n := 1; ; n++ {
		var raw json.RawMessage
		if err := d.Decode(&raw); err == io.EOF {
			return points, nil
		} else if err != nil {
			return nil, fmt.Errorf("record %d: %w", n, err)
		}
		var records []record
		if raw[0] == '[' {
			err = json.Unmarshal(raw, &records)
		} else {
			records = make([]record, 1)
			err = json.Unmarshal(raw, &records[0])
		}
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", n, err)
		}
		for _, r := range records {
			more, err := r.points(lengths)
			if err != nil {
				return nil, fmt.Errorf("record %d: %w", n, err)
			}
			points = append(points, more...)
		}
	}
}

func (r record) points(lengths Lengths) ([]Point, error) {
	switch {
	case r.PP != nil:
		return r.llama()
	case r.AvgLatency != nil:
		if lengths.Batch < 1 || lengths.Prompt < 1 || lengths.Output < 1 {
			return nil, fmt.Errorf("a result of vllm bench latency does not say its lengths: add --batch-size, --input-len and --output-len as they were")
		}
		label := fmt.Sprintf("batch %d, %d in, %d out", lengths.Batch, lengths.Prompt, lengths.Output)
		return []Point{run(label, float64(lengths.Batch), float64(lengths.Prompt), float64(lengths.Output), *r.AvgLatency)}, nil
	case r.MeanTPOT != nil:
		return r.serve()
	}
	return nil, fmt.Errorf("neither llama-batched-bench (pp), vllm bench latency (avg_latency) nor vllm bench serve (mean_tpot_ms)")
}

// llama is a prompt phase and a generation phase, each timed by itself. The last
// prompt token of a sequence generates its first one.
func (r record) llama() ([]Point, error) {
	if r.PL < 1 || r.TG < 1 || *r.PP < 1 || r.TPP <= 0 || r.TTG <= 0 {
		return nil, fmt.Errorf("llama-batched-bench: pp %v, tg %v, pl %v take %v and %v s: want numbers above 0", *r.PP, r.TG, r.PL, r.TPP, r.TTG)
	}
	prompt := *r.PP * r.PL
	if r.Shared != 0 {
		prompt = *r.PP
	}
	tokens := decodes(r.PL, *r.PP+1, r.TG)
	tokens.Label, tokens.Seconds = fmt.Sprintf("%.0f x %.0f tokens after %.0f", r.PL, r.TG, *r.PP), r.TTG
	return []Point{{Label: fmt.Sprintf("%.0f x prompt of %.0f", prompt / *r.PP, *r.PP), Steps: 1, Seqs: r.PL, Prompt: prompt, Seconds: r.TPP}, tokens}, nil
}

// serve is a mean iteration of a server under load: as many sequences as are in
// it by Little's law, and the prompt tokens that come for each token generated.
// Alone, the first token is a point, too; else it has waited.
func (r record) serve() ([]Point, error) {
	if r.Completed < 1 || r.Duration <= 0 || r.TotalInput < 1 || r.TotalOutput <= r.Completed || *r.MeanTPOT <= 0 {
		return nil, fmt.Errorf("vllm bench serve: %v completed in %v s, %v and %v tokens: want numbers above 0", r.Completed, r.Duration, r.TotalInput, r.TotalOutput)
	}
	in, out := r.TotalInput/r.Completed, r.TotalOutput/r.Completed
	seqs := r.Completed / r.Duration * (out - 1) * *r.MeanTPOT / 1e3
	if r.Concurrency != nil {
		seqs = min(seqs, *r.Concurrency)
	}
	seqs = max(1, seqs)
	step := Point{Label: fmt.Sprintf("%.1f at once, %.0f in, %.0f out", seqs, in, out), Steps: 1, Seqs: seqs, Context: seqs * (in + out/2), Seconds: *r.MeanTPOT / 1e3}
	if seqs < 1.5 {
		step.Prompt = 0
		first := Point{Label: fmt.Sprintf("first token after %.0f", in), Steps: 1, Seqs: 1, Prompt: in, Seconds: r.MeanTTFT / 1e3}
		if r.MeanTTFT > 0 {
			return []Point{step, first}, nil
		}
		return []Point{step}, nil
	}
	step.Prompt = seqs * in / out
	return []Point{step}, nil
}

var columns = []string{"batch", "context", "prompt", "seconds"}

// parseCSV reads iterations: sequences that decode, tokens that each of them
// attends to, prompt tokens that are computed, seconds.
func parseCSV(text []byte) (points []Point, err error) {
	c := csv.NewReader(bufio.NewReader(bytes.NewReader(text)))
	c.TrimLeadingSpace = true
	head, err := c.Read()
	if err != nil {
		return nil, err
	}
	var at []int
	for _, name := range columns {
		i := slices.IndexFunc(head, func(s string) bool { return strings.EqualFold(strings.TrimSpace(s), name) })
		if i < 0 {
			return nil, fmt.Errorf("line 1: no column %q: want %s, or the JSON of a benchmark", name, strings.Join(columns, ","))
		}
		at = append(at, i)
	}
	for {
		row, err := c.Read()
		if err == io.EOF {
			return merge(points), nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := c.FieldPos(0)
		var v [4]float64
		for i, k := range at {
			if v[i], err = strconv.ParseFloat(strings.TrimSpace(row[k]), 64); err != nil || v[i] < 0 {
				return nil, fmt.Errorf("line %d: column %q: %q is no number of at least 0", line, columns[i], row[k])
			}
		}
		points = append(points, Point{
			Label: fmt.Sprintf("batch %.0f, context %.0f each, prompt %.0f", v[0], v[1], v[2]),
			Steps: 1, Seqs: v[0], Context: v[0] * v[1], Prompt: v[2], Seconds: v[3],
		})
	}
}

// leastTrace is how many iterations are a server's trace and not a table.
const leastTrace = 200

// merge makes one point of the iterations of a trace that compute about the same: as many sequences,
// and as many context tokens and prompt tokens within a factor of √2. There are thousands of those of
// small batches, and a line through all iterations would be one through these.
func merge(points []Point) []Point {
	if len(points) < leastTrace {
		return points
	}
	type work struct{ seqs, context, prompt float64 }
	var merged []Point
	at := map[work]int{}
	for _, p := range points {
		w := work{p.Seqs, math.Floor(2 * math.Log2(p.Context)), math.Floor(2 * math.Log2(p.Prompt))} // -Inf without any
		i, ok := at[w]
		if !ok {
			at[w] = len(merged)
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
		m.Label = fmt.Sprintf("batch %.0f, context about %.0f each, prompt about %.0f", p.Seqs, m.Context/max(1, m.Seqs), m.Prompt/m.Steps)
	}
	return merged
}

package calibrate

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// Lengths has the batch size and lengths of vllm bench latency, which are not in its JSON.
type Lengths struct{ Batch, Prompt, Output int }

// Read reads points from a file; "-" is standard input. The file may be gzipped. Its first character and its
// fields determine the format. If the file can be read but is invalid, the error wraps ErrInput and names the file.
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

// byteOrderMark is written by Windows programs before UTF-8 text.
var byteOrderMark = []byte("\ufeff")

func parse(text []byte, lengths Lengths) ([]Point, error) {
	text, err := unpack(text)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimPrefix(text, byteOrderMark)
	trimmed := bytes.TrimSpace(text)
	switch {
	case len(trimmed) == 0:
		return nil, fmt.Errorf("it is empty")
	case trimmed[0] == '{' || trimmed[0] == '[':
		return parseJSON(trimmed, lengths)
	}
	return parseCSV(bytes.Trim(text, " \r\n")) // tabs are between empty cells
}

// maxUnpacked limits the decompressed size of a file.
const maxUnpacked = 1 << 30

func unpack(text []byte) ([]byte, error) {
	if !bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		return text, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("the gzip file is damaged: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxUnpacked+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the gzip file is damaged or cut off: %w", err)
	case len(plain) > maxUnpacked:
		return nil, fmt.Errorf("the gzip file has more than %d bytes unpacked", maxUnpacked)
	}
	return plain, nil
}

// A record has the fields of a benchmark's result that this package reads.
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
	Model       string   `json:"model_id"`
	Requests    float64  `json:"num_prompts"`
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
			read, err := r.points(lengths)
			if err != nil {
				return nil, fmt.Errorf("record %d: %w", n, err)
			}
			points = append(points, read...)
		}
	}
}

func (r record) points(lengths Lengths) ([]Point, error) {
	switch {
	case r.PP != nil:
		return r.llama()
	case r.AvgLatency != nil:
		if lengths.Batch < 1 || lengths.Prompt < 1 || lengths.Output < 1 {
			return nil, fmt.Errorf("a result of vllm bench latency does not say its lengths: add --batch-size, --input-len " +
				"and --output-len as they were")
		}
		label := fmt.Sprintf("batch %d, %d in, %d out", lengths.Batch, lengths.Prompt, lengths.Output)
		return []Point{run(label, float64(lengths.Batch), float64(lengths.Prompt), float64(lengths.Output), *r.AvgLatency)},
			nil
	case r.MeanTPOT != nil:
		return r.serve()
	}
	return nil, fmt.Errorf("neither llama-batched-bench (pp), vllm bench latency (avg_latency) nor vllm bench serve " +
		"(mean_tpot_ms)")
}

// llama returns two points, because the benchmark times prompts and generated tokens separately. The iteration that
// computes the last prompt token of a sequence also generates its first token.
func (r record) llama() ([]Point, error) {
	if r.PL < 1 || r.TG < 1 || *r.PP < 1 || r.TPP <= 0 || r.TTG <= 0 {
		return nil, fmt.Errorf("llama-batched-bench: pp %v, tg %v, pl %v take %v and %v s: want numbers above 0", *r.PP,
			r.TG, r.PL, r.TPP, r.TTG)
	}
	prompt := *r.PP * r.PL
	if r.Shared != 0 {
		prompt = *r.PP
	}
	tokens := decodes(r.PL, *r.PP+1, r.TG)
	tokens.Label, tokens.Seconds = fmt.Sprintf("%.0f x %.0f tokens after %.0f", r.PL, r.TG, *r.PP), r.TTG
	return []Point{{Label: fmt.Sprintf("%.0f x prompt of %.0f", prompt / *r.PP, *r.PP), Steps: 1, Seqs: r.PL,
		Prompt: prompt, Seconds: r.TPP}, tokens}, nil
}

// serve returns the points of a benchmark of a server. The first point is the mean iteration. By Little's law, it has
// as many sequences as there are requests that decode on average, but at least one and at most the benchmark's
// concurrency. Its numbers of prompt tokens and of generated tokens have the same ratio as in the whole benchmark.
//
// If requests hardly overlap, the first point has no prompt tokens. serve then also returns a point for the prompt
// alone, whose time is the mean time to the first token. If requests overlap, the time to the first token includes
// waiting, so serve does not use it.
func (r record) serve() ([]Point, error) {
	if r.Completed < 1 || r.Duration <= 0 || r.TotalInput < 1 || r.TotalOutput <= r.Completed || *r.MeanTPOT <= 0 {
		return nil, fmt.Errorf("vllm bench serve: %v completed in %v s, %v and %v tokens: want numbers above 0", r.Completed,
			r.Duration, r.TotalInput, r.TotalOutput)
	}
	input, output := r.TotalInput/r.Completed, r.TotalOutput/r.Completed
	seqs := r.Completed / r.Duration * (output - 1) * *r.MeanTPOT / 1e3
	if r.Concurrency != nil {
		seqs = min(seqs, *r.Concurrency)
	}
	seqs = max(1, seqs)
	step := Point{Label: fmt.Sprintf("%.1f at once, %.0f in, %.0f out", seqs, input, output), Model: r.Model, Steps: 1,
		Seqs: seqs, Context: seqs * (input + output/2), Seconds: *r.MeanTPOT / 1e3}
	if failed := r.Requests - r.Completed; failed > 0 {
		step.Label += fmt.Sprintf(" (%.0f of %.0f failed)", failed, r.Requests)
	}
	if seqs < 1.5 {
		step.Prompt = 0
		first := Point{Label: fmt.Sprintf("first token after %.0f", input), Model: r.Model, Steps: 1, Seqs: 1, Prompt: input,
			Seconds: r.MeanTTFT / 1e3}
		if r.MeanTTFT > 0 {
			return []Point{step, first}, nil
		}
		return []Point{step}, nil
	}
	step.Prompt = seqs * input / output
	return []Point{step}, nil
}

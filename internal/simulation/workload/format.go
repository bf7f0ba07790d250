package workload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A format describes the rows of a trace. Columns are found by their names, in any order and case. Other columns are
// ignored.
type format struct {
	name    string
	json    bool
	columns [3]string // time, prompt, output
	clock   clock
	log     bool // rows come from a real server; a row with 0 tokens is no error and is skipped
}

// The clock of a trace.
type clock int

const (
	secondsClock clock = iota
	millisecondsClock
	dateClock // 2023-11-16 18:15:46.6805900, perhaps with +00:00
)

// formats has the formats of published traces, and two formats for traces that users write. BurstGPT is
// HPMLL/BurstGPT; its failed requests have 0 response tokens. Azure CSV is the format of the LLM inference traces of
// 2023 and 2024 in Azure/AzurePublicDataset; in the traces of 2024, times have a time zone. Mooncake's traces are in
// kvcache-ai/Mooncake, FAST25-release/traces; each of their hash_ids identifies a block of 512 tokens and all tokens
// before it.
var formats = []format{
	{"BurstGPT CSV", false, [3]string{"Timestamp", "Request tokens", "Response tokens"}, secondsClock, true},
	{"Azure CSV", false, [3]string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, dateClock, true},
	{"Mooncake JSONL", true, [3]string{"timestamp", "input_length", "output_length"}, millisecondsClock, true},
	{"CSV", false, [3]string{"arrival", "prompt", "output"}, secondsClock, false},
	{"JSONL", true, [3]string{"arrival", "prompt", "output"}, secondsClock, false},
}

var wanted = func() string {
	var known []string
	for _, f := range formats {
		if columns := strings.Join(f.columns[:], ", "); f.json {
			known = append(known, fmt.Sprintf("JSON objects with %s (%s)", columns, f.name))
		} else {
			known = append(known, fmt.Sprintf("a header with %s (%s)", columns, f.name))
		}
	}
	return "one of\n  " + strings.Join(known, "\n  ")
}()

// fields has the values of a row as text.
type fields struct {
	values [3][]byte // time, prompt, output
	hashes []byte    // JSON; nil if there are none
}

// A parser splits the rows of a trace.
type parser struct {
	format
	count int    // fields of a CSV row
	index [3]int // fields of the format's columns
}

// detect returns a parser for the format of a trace. It chooses the format that has the most columns in common with
// the trace's first line.
func detect(line []byte) (parser, error) {
	names, isJSON, err := columns(line)
	if err != nil {
		return parser{}, err
	}
	p := parser{count: len(names)}
	best, tie := 0, true
	for _, f := range formats {
		found := 0
		for _, c := range f.columns {
			if slices.ContainsFunc(names, equalFold(c)) {
				found++
			}
		}
		if f.json == isJSON && found >= best {
			tie = found == best
			p.format, best = f, found
		}
	}
	if tie {
		return parser{}, fmt.Errorf("unknown format: the line starts with %s;%s wanted %s", excerpt(line),
			semicolons(line), wanted)
	}
	if isJSON {
		return p, nil
	}
	return p, p.header(names)
}

func (p *parser) header(names []string) error {
	for i, column := range p.columns {
		p.index[i] = slices.IndexFunc(names, equalFold(column))
		if p.index[i] < 0 {
			return fmt.Errorf("the header has no column %q; %s needs %s", column, p.name, strings.Join(p.columns[:], ", "))
		}
		if slices.ContainsFunc(names[p.index[i]+1:], equalFold(column)) {
			return fmt.Errorf("the header has the column %q twice", column)
		}
	}
	return nil
}

func (p *parser) split(line []byte) (f fields, err error) {
	if p.json {
		return p.splitJSON(line)
	}
	n := 0
	for field := range bytes.SplitSeq(line, []byte{','}) {
		for i, column := range p.index {
			if column == n {
				f.values[i] = unquote(field)
			}
		}
		n++
	}
	if n != p.count {
		return f, fmt.Errorf("the row has %d fields; wanted %d, as the header has", n, p.count)
	}
	return f, nil
}

// unquote removes the spaces and double quotes around a field of a CSV row. Fields that contain commas are
// not supported.
func unquote(field []byte) []byte {
	field = bytes.TrimSpace(field)
	if n := len(field); n >= 2 && field[0] == '"' && field[n-1] == '"' {
		return field[1 : n-1]
	}
	return field
}

// splitJSON returns the fields of a JSON object as text, so that the rules and errors for CSV also apply to them.
func (p *parser) splitJSON(line []byte) (f fields, err error) {
	var row map[string]json.RawMessage
	if err := json.Unmarshal(line, &row); err != nil {
		return f, fmt.Errorf("not a JSON object: %w", err)
	}
	for name, value := range row {
		if i := slices.IndexFunc(p.columns[:], equalFold(name)); i >= 0 {
			f.values[i] = value
		} else if p.log && name == "hash_ids" {
			f.hashes = value
		}
	}
	for i, value := range f.values {
		if value == nil {
			return f, fmt.Errorf("column %q is missing; a row of %s has %s", p.columns[i], p.name,
				strings.Join(p.columns[:], ", "))
		}
	}
	return f, nil
}

// equalFold returns a function that compares strings with a, ignoring case.
func equalFold(a string) func(string) bool {
	return func(b string) bool { return strings.EqualFold(a, b) }
}

func semicolons(line []byte) string {
	if bytes.ContainsAny(line, ";\t") && !bytes.ContainsAny(line, ",{") {
		return " columns are separated by commas;"
	}
	return ""
}

// columns returns the names of the columns in a trace's first line, which is a CSV header or a JSON object.
func columns(line []byte) (names []string, isJSON bool, err error) {
	if line[0] == '{' {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(line, &object); err != nil {
			return nil, true, fmt.Errorf("not a JSON object: %w", err)
		}
		return slices.Collect(maps.Keys(object)), true, nil
	}
	for field := range bytes.SplitSeq(line, []byte{','}) {
		names = append(names, string(unquote(field)))
	}
	return names, false, nil
}

func excerpt(line []byte) string {
	const longest = 60
	if len(line) > longest {
		return fmt.Sprintf("%q...", line[:longest])
	}
	return fmt.Sprintf("%q", line)
}

const dates = "2006-01-02 15:04:05" // a fraction may follow, which time.Parse knows

func parseDate(text []byte) (time.Time, error) {
	if len(text) > len(dates) && bytes.ContainsAny(text[len(dates):], "+-Z") {
		return time.Parse(dates+"Z07:00", string(text))
	}
	return time.Parse(dates, string(text))
}

package structured

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"llmmemory/internal/serving/structured/jsonschema"
)

var (
	maskBench = flag.String("maskbench", "", "measure the schemas of this file, which has one on each line as MaskBench does and may be gzipped")
	maskOnly  = flag.String("maskbench.only", "", "of these, measure only the schemas whose names contain this text, and print what fails")
	suite     = flag.String("suite", "", "check the official JSON Schema test suite: a folder such as tests/draft7 of it")
	maskEvery = flag.Int("maskbench.every", 1, "of these, measure only every Nth")
	maskSlow  = flag.Bool("maskbench.masks", true, "measure masks too")
)

// benchCase is a line of the file.
type benchCase struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Tests       []struct {
		Valid bool            `json:"valid"`
		Data  json.RawMessage `json:"data"`
	} `json:"tests"`
}

// benchTotals is what a run has found.
type benchTotals struct {
	schemas, passed, refused           int
	valid, stopped, invalid, letIn     int
	reordered                          int
	reasons                            map[string]int
	examples                           map[string]string
	compile, masks                     []time.Duration
	stoppedNames, letInNames, overTime []string
}

// cpuTime returns the CPU time of this thread. It does not count the time of other programs.
func cpuTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// TestMaskBench measures the files that -maskbench names. Without this flag it measures the sample in
// testdata, and no instance may fail.
func TestMaskBench(t *testing.T) {
	file := cmp.Or(*maskBench, filepath.Join("testdata", "sample.jsonl"))
	totals := &benchTotals{reasons: map[string]int{}, examples: map[string]string{}}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i, c := range readCases(t, file) {
		if strings.Contains(c.Name, *maskOnly) && i%*maskEvery == 0 {
			totals.run(t, c)
		}
	}
	if *maskBench != "" {
		totals.print(t)
		return
	}
	require.Zero(t, totals.refused, totals.examples)
	require.Empty(t, totals.stoppedNames)
	require.Empty(t, totals.letInNames)
}

// TestOfficialSuite counts how often the constraint of a schema and the official test suite agree on whether an
// instance is valid. In the suite, 1.0 is an integer. In an answer, an integer has no fraction. So the test first
// replaces a number such as 1.0 by 1. If the constraint does not allow a valid instance, the test sorts the members of
// its objects into the order of the schema, and tries it again.
func TestOfficialSuite(t *testing.T) {
	if *suite == "" {
		t.Skip("-suite names no folder")
	}
	files, err := filepath.Glob(filepath.Join(*suite, "*.json"))
	require.NoError(t, err)
	totals := &benchTotals{reasons: map[string]int{}, examples: map[string]string{}}
	*maskSlow = false
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		var groups []benchCase
		require.NoError(t, json.Unmarshal(source, &groups))
		for _, c := range groups {
			c.Name = filepath.Base(file) + ": " + c.Description
			if strings.Contains(*suite, "draft7") {
				c.Schema = bytes.Replace(c.Schema, []byte("{"), []byte(`{"$schema": "http://json-schema.org/draft-07/schema#",`), 1)
				c.Schema = bytes.Replace(c.Schema, []byte(",}"), []byte("}"), 1)
			}
			for i := range c.Tests {
				c.Tests[i].Data = withoutPointZero.ReplaceAll(c.Tests[i].Data, []byte("$1"))
			}
			totals.run(t, c)
		}
	}
	totals.print(t)
}

var withoutPointZero = regexp.MustCompile(`(\d)\.0\b`)

func readCases(t *testing.T, file string) []benchCase {
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := bufio.NewScanner(bytes.NewReader(source))
	if strings.HasSuffix(file, ".gz") {
		unzipped, err := gzip.NewReader(bytes.NewReader(source))
		require.NoError(t, err)
		lines = bufio.NewScanner(unzipped)
	}
	lines.Buffer(nil, 16<<20)
	var cases []benchCase
	for lines.Scan() {
		var c benchCase
		require.NoError(t, json.Unmarshal(lines.Bytes(), &c))
		cases = append(cases, c)
	}
	require.NoError(t, lines.Err())
	return cases
}

func (b *benchTotals) run(t *testing.T, c benchCase) {
	b.schemas++
	v := largeVocabulary()
	start := cpuTime()
	constraint, err := Compile(v, Form{JSONSchema: c.Schema})
	took := cpuTime() - start
	b.compile = append(b.compile, took)
	if took > 18*time.Millisecond {
		b.overTime = append(b.overTime, fmt.Sprintf("%s compiles in %v", c.Name, took))
	}
	if err != nil {
		b.refuse(c.Name, err)
		return
	}
	passed := true
	for i, test := range c.Tests {
		position, fits := b.write(constraint, test.Data, test.Valid)
		if !fits && test.Valid {
			if ordered := inOrder(c.Schema, test.Data); ordered != nil {
				if position, fits = b.write(constraint, ordered, false); fits {
					b.reordered++
				}
			}
		}
		name := fmt.Sprintf("%s test %d", c.Name, i)
		switch {
		case test.Valid:
			b.valid++
			if !fits {
				b.stopped++
				passed = false
				b.stoppedNames = append(b.stoppedNames, name+" "+position)
			}
		default:
			b.invalid++
			if fits {
				b.letIn++
				passed = false
				b.letInNames = append(b.letInNames, name)
			}
		}
	}
	if passed {
		b.passed++
	}
}

func (b *benchTotals) refuse(name string, err error) {
	b.refused++
	reason := err.Error()
	var unsupported *jsonschema.Unsupported
	if errors.As(err, &unsupported) {
		reason = unsupported.Keyword + ": " + unsupported.Reason
		if before, _, ok := strings.Cut(unsupported.Reason, "\""); ok {
			reason = unsupported.Keyword + ": " + before + "..."
		}
	}
	b.reasons[reason]++
	b.examples[reason] = name + ": " + err.Error()
}

// write writes an instance token by token. If a token is not allowed, it returns a text with the position of the
// token. It also returns whether the whole instance is an answer.
func (b *benchTotals) write(c *Constraint, data []byte, measure bool) (string, bool) {
	v := c.vocabulary
	text := spaced(data)
	mask := make([]uint64, v.Words())
	m := c.NewMatcher()
	written := 0
	for _, token := range v.tokenize(text) {
		if *maskSlow && measure {
			start := cpuTime()
			m.Mask(mask)
			took := cpuTime() - start
			b.masks = append(b.masks, took)
			if mask[token/64]>>(token%64)&1 == 0 {
				return fmt.Sprintf("%.150s << %.30s", text[:written], text[written:]), false
			}
		}
		if m.Accept(token) != nil {
			return fmt.Sprintf("%.150s << %.30s", text[max(0, written-100):written], text[written:]), false
		}
		written += len(v.tokens[token])
	}
	return "the end", m.CanStop()
}

// spaced returns a JSON text as Python's json.dumps writes it: with a space after each comma and
// colon, and without unnecessary escapes.
func spaced(data []byte) []byte {
	var out bytes.Buffer
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var write func() bool
	write = func() bool {
		token, err := d.Token()
		if err != nil {
			return false
		}
		switch token := token.(type) {
		case json.Delim:
			if token == ']' || token == '}' {
				return false
			}
			out.WriteString(token.String())
			for first := true; d.More(); first = false {
				if !first {
					out.WriteString(", ")
				}
				write()
				if token == '{' {
					out.WriteString(": ")
					write()
				}
			}
			end, _ := d.Token()
			out.WriteString(end.(json.Delim).String())
		case string:
			out.Write(quoted(token))
		default:
			text, _ := json.Marshal(token)
			out.Write(text)
		}
		return true
	}
	write()
	return out.Bytes()
}

func (b *benchTotals) print(t *testing.T) {
	fmt.Printf("schemas %d, passed %d (%.1f %%), refused %d\n", b.schemas, b.passed, 100*float64(b.passed)/float64(b.schemas), b.refused)
	fmt.Printf("valid %d, stopped %d (%.2f %%), reordered %d; invalid %d, let in %d\n", b.valid, b.stopped, 100*float64(b.stopped)/float64(max(1, b.valid)), b.reordered, b.invalid, b.letIn)
	for name, times := range map[string][]time.Duration{"compile": b.compile, "mask": b.masks} {
		if len(times) == 0 {
			continue
		}
		slices.Sort(times)
		var sum time.Duration
		for _, d := range times {
			sum += d
		}
		percentile := func(p float64) time.Duration { return times[int(p*float64(len(times)-1))] }
		fmt.Printf("%s: %d, average %v, p50 %v, p90 %v, p99 %v, p99.9 %v, worst %v\n", name, len(times), sum/time.Duration(len(times)), percentile(0.5), percentile(0.9), percentile(0.99), percentile(0.999), percentile(1))
	}
	type count struct {
		reason string
		n      int
	}
	var counts []count
	for reason, n := range b.reasons {
		counts = append(counts, count{reason, n})
	}
	slices.SortFunc(counts, func(x, y count) int { return cmp.Compare(y.n, x.n) })
	for _, c := range counts {
		fmt.Printf("%5d %s\n      %.300s\n", c.n, c.reason, b.examples[c.reason])
	}
	for title, names := range map[string][]string{"STOPPED": b.stoppedNames, "LET IN": b.letInNames, "SLOW": b.overTime} {
		for _, name := range names[:min(len(names), 60)] {
			fmt.Println(title, name)
		}
	}
}

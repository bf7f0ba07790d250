// Command tables reads the output of go test -bench, and prints tables with a row for each benchmark and the median
// of each metric over repeated runs. With -json it also writes the measurements of the benchmarks Paged and BlockSize
// to a file. The command "llmsim figures" draws them beside the paper's figures 18a and 19:
//
//	go test -run '^$' -bench 'Paged|BlockSize' ./internal/serving/kvstore | go run ./internal/bench/tables -json FILE -machine TEXT
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"llmmemory/internal/bench/fatal"
)

func main() {
	file := flag.String("json", "", "`file` to write the measurements for llmsim figures to")
	machine := flag.String("machine", "", "description of the processor and memory, for -json")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix("tables: ")
	if *file != "" && *machine == "" {
		log.Fatal("-json needs -machine, which says what was measured on")
	}
	results := read(os.Stdin)
	print(os.Stdout, results)
	if *file != "" {
		f := newFigures(results)
		f.Machine, f.Date = *machine, time.Now().UTC().Format(time.DateOnly)
		fatal.If(os.WriteFile(*file, append(fatal.Get(json.MarshalIndent(f, "", " ")), '\n'), 0o644))
	}
}

// A result has the values that a benchmark printed in all its runs, by unit.
type result struct {
	name   string
	units  []string
	values map[string][]float64
}

func (r *result) median(unit string) float64 {
	values := slices.Sorted(slices.Values(r.values[unit]))
	if len(values) == 0 {
		return 0
	}
	return values[len(values)/2]
}

// line matches the result of a benchmark. The name ends with the number of processors, unless it is 1.
var line = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// read returns the results in the order of the output. It ends the program if a test failed.
func read(r io.Reader) (results []*result) {
	byName := map[string]*result{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		text := lines.Text()
		if strings.HasPrefix(text, "FAIL") || strings.HasPrefix(text, "--- FAIL") {
			log.Fatal(text)
		}
		m := line.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		r := byName[m[1]]
		if r == nil {
			r = &result{name: m[1], values: map[string][]float64{}}
			byName[m[1]], results = r, append(results, r)
		}
		fields := strings.Fields(m[2])
		for i := 0; i+1 < len(fields); i += 2 {
			value, unit := fatal.Get(strconv.ParseFloat(fields[i], 64)), fields[i+1]
			if !slices.Contains(r.units, unit) {
				r.units = append(r.units, unit)
			}
			r.values[unit] = append(r.values[unit], value)
		}
	}
	fatal.If(lines.Err())
	return results
}

func print(w io.Writer, results []*result) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	var units []string
	for _, r := range results {
		if !slices.Equal(units, r.units) {
			units = r.units
			fmt.Fprintf(table, "\n%s\t%s\t\n", "benchmark", strings.Join(units, "\t"))
		}
		fmt.Fprintf(table, "%s\t", r.name)
		for _, unit := range units {
			fmt.Fprintf(table, "%.4g\t", r.median(unit))
		}
		fmt.Fprintln(table)
	}
	fatal.If(table.Flush())
}

// figures is the JSON of the measurements. The command "llmsim figures" draws figures of them. Times are in
// microseconds.
type figures struct {
	Machine string  `json:"machine"`
	Date    string  `json:"date"`
	Threads int     `json:"threads"`
	Shape   string  `json:"shape"`
	Paged   []paged `json:"paged"`
	Sizes   []*size `json:"block_sizes"`
}

type paged struct {
	Batch      int     `json:"batch"`
	Context    int     `json:"context"`
	Micros     float64 `json:"paged_us"`
	Contiguous float64 `json:"contiguous_us"`
	Ratio      float64 `json:"ratio"`
}

// A size has the measurements with blocks of one size. Tokens is the number of tokens of a block. Decode and Swap are
// the times to decode and to swap.
type size struct {
	Tokens int     `json:"tokens"`
	Decode float64 `json:"decode_us"`
	Swap   float64 `json:"swap_us"`
}

func newFigures(results []*result) *figures {
	f := &figures{Threads: 1, Shape: "32 query heads on 8 of 128, f16"}
	for _, r := range results {
		var p paged
		if n, _ := fmt.Sscanf(r.name, "Paged/batch=%d/context=%d", &p.Batch, &p.Context); n == 2 {
			if p.Batch > 1 && p.Context <= 4096 {
				p.Micros, p.Contiguous, p.Ratio = r.median("us"), r.median("contiguous-us"), r.median("x-contiguous")
				f.Paged = append(f.Paged, p)
			}
			continue
		}
		var tokens int
		if n, _ := fmt.Sscanf(r.name, "BlockSize/decode/tokens=%d", &tokens); n == 1 {
			f.Sizes = append(f.Sizes, &size{Tokens: tokens, Decode: r.median("us")})
		} else if n, _ := fmt.Sscanf(r.name, "BlockSize/swap/tokens=%d", &tokens); n == 1 {
			i := slices.IndexFunc(f.Sizes, func(s *size) bool { return s.Tokens == tokens })
			if i < 0 {
				log.Fatalf("%s has no decode", r.name)
			}
			f.Sizes[i].Swap = r.median("us")
		}
	}
	if len(f.Paged) == 0 || len(f.Sizes) == 0 {
		log.Fatal("the benchmarks Paged and BlockSize of kvstore are missing")
	}
	return f
}

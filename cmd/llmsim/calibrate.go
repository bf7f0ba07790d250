package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"llmmemory/internal/simulation/calibrate"
)

// calibrateOptions are the flags of llmsim calibrate.
type calibrateOptions struct {
	out, name string
	lengths   calibrate.Lengths
}

func calibrateCommand() *cobra.Command {
	var o calibrateOptions
	c := &cobra.Command{
		Use:   "calibrate FILE... -o COST.json",
		Short: "Make a cost file from measurements of a machine",
		Long: "calibrate fits the time of an iteration to measurements and writes a cost file for --cost of run,\n" +
			"plan, fleet and view. It states the errors of points that were left out of the fit.\n" +
			"Measure at least 8 points of one model, of several batch sizes and of lengths that differ by a\n" +
			"factor of 4 or more. If all lengths are the same, the times of others are a guess, and the output\n" +
			"and every answer say so.\n\n" +
			"Each FILE, gzipped or not, or - for standard input, is one of these:\n" +
			"  vllm bench serve --save-result         a point for each load (and the first token, alone)\n" +
			"  vllm bench latency --output-json       with --batch-size, --input-len, --output-len as they were\n" +
			"  llama-batched-bench --output-format jsonl   two points a line: prompts, and tokens\n" +
			"  a CSV with batch,context,prompt,seconds: for each iteration the sequences that decode, tokens\n" +
			"  that each of them attends to, prompt tokens computed, and its time. Columns are separated by\n" +
			"  commas; or by semicolons or tabs, and then numbers may have decimal commas. 200 lines or\n" +
			"  more are read as a server's trace (llmserve bench --steps)",
		Example: "  llmsim calibrate serve-*.json -o my-gpu.json\n" +
			"  # llama-batched-bench -m m.gguf -npp 128,512 -ntg 32 -npl 1,2,4 --output-format jsonl > cpu.jsonl\n" +
			"  llmsim calibrate cpu.jsonl -o my-cpu.json\n" +
			"  llmsim plan --model llama-3-8b --gpu h100-80gb --cost my-gpu.json --slo 'ttft<1s@p99'",
		RunE: func(c *cobra.Command, files []string) error { return o.run(c, files) },
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVarP(&o.out, "out", "o", "", "the cost file")
	f.StringVar(&o.name, "name", "", "name of the cost in the output of other commands (default: that of the file)")
	f.IntVar(&o.lengths.Batch, "batch-size", 0, "batch size of vllm bench latency")
	f.IntVar(&o.lengths.Prompt, "input-len", 0, "input length of vllm bench latency")
	f.IntVar(&o.lengths.Output, "output-len", 0, "output length of vllm bench latency")
	_ = c.MarkFlagRequired("out")
	return c
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

func (o *calibrateOptions) run(c *cobra.Command, files []string) error {
	if len(files) == 0 {
		return errors.New("name the files with measurements: llmsim calibrate bench.json -o cost.json")
	}
	var points []calibrate.Point
	for _, file := range files {
		if sameFile(file, o.out) {
			return fmt.Errorf("-o %s is a file of measurements, which the cost file would replace: take another name", o.out)
		}
		read, err := calibrate.Read(file, o.lengths)
		if err != nil {
			return err
		}
		points = append(points, read...)
	}
	fit, err := calibrate.Fit(points)
	if err != nil {
		return err
	}
	if o.name == "" {
		o.name = strings.TrimSuffix(filepath.Base(o.out), ".json")
	}
	source := "measured: " + strings.Join(files, ", ")
	if host, err := os.Hostname(); err == nil {
		source += " on " + host
	}
	if err := fit.Save(o.out, o.name, source); err != nil {
		return err
	}
	if err := fit.Write(c.OutOrStdout()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "\nwritten to %s: take it with --cost %s\n", o.out, o.out)
	return err
}

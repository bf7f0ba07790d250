package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/sampling"
)

// benchOptions are the flags of bench. Their names are those of vllm bench serve, without "random-". The flags for files
// are not vLLM's.
type benchOptions struct {
	prompts     int
	inputLen    int
	prefixLen   int
	outputLen   int
	concurrency int
	rate        float64
	seed        uint64
	output      string
	steps       string
	arrivals    string
}

func benchCommand() *cobra.Command {
	var o modelOptions
	var b benchOptions
	c := &cobra.Command{
		Use:   "bench MODEL",
		Short: "Measure throughput and latency of a model on this machine",
		Long: "bench serves requests of random tokens to a model in this process, without HTTP, and prints\n" +
			"throughput and latencies. --output writes them under the names that vllm bench serve uses. MODEL is a\n" +
			"folder, a GGUF file, or demo.",
		Example: "  llmserve bench demo --num-prompts 64 --prefix-len 512 --input-len 32 --output-len 32 --output " +
			"result.json",
		Args: needsModel(1, "MODEL"),
		RunE: func(c *cobra.Command, args []string) error {
			if !ranks.follow() {
				if err := b.check(); err != nil {
					return err
				}
			}
			return withModel(c.Context(), args[0], &o, func(l *loaded) error { return b.fits(l.longest, &o) },
				func(l *loaded) error { return l.bench(c, &o, &b) })
		},
	}
	o.flags(c.Flags())
	f := c.Flags()
	f.IntVar(&b.prompts, "num-prompts", 64, "requests")
	f.IntVar(&b.inputLen, "input-len", 128, "tokens of each prompt, after the common prefix")
	f.IntVar(&b.prefixLen, "prefix-len", 0, "tokens of the common prefix of all prompts")
	f.IntVar(&b.outputLen, "output-len", 64, "tokens of an answer")
	f.IntVar(&b.concurrency, "max-concurrency", 16, "largest number of outstanding requests")
	f.Float64Var(&b.rate, "request-rate", 0,
		"requests a second, at random (Poisson); 0: as soon as --max-concurrency allows")
	f.Uint64Var(&b.seed, "seed", 0, "seed of prompts and arrivals")
	f.StringVarP(&b.output, "output", "o", "", "file for the result in JSON")
	f.StringVar(&b.steps, "steps", "", "file for the time of each step, for llmsim calibrate")
	f.StringVar(&b.arrivals, "arrivals", "", "file for the requests and their arrivals, for llmsim run --trace")
	return c
}

func (b *benchOptions) check() error {
	if b.prompts < 1 || b.inputLen < 1 || b.prefixLen < 0 || b.outputLen < 1 || b.concurrency < 1 || !(b.rate >= 0) {
		return errors.New("--num-prompts, --input-len, --output-len and --max-concurrency must be at least 1, " +
			"--prefix-len and --request-rate at least 0")
	}
	names := map[string]string{} // flags by file
	for _, f := range []struct{ flag, path string }{{"--output", b.output}, {"--steps", b.steps},
		{"--arrivals", b.arrivals}} {
		if f.path == "" {
			continue
		}
		path := filepath.Clean(f.path)
		if other := names[path]; other != "" {
			return fmt.Errorf("%s and %s name the same file, %s", other, f.flag, path)
		}
		names[path] = f.flag
		if err := writable(f.path); err != nil {
			return err
		}
	}
	return nil
}

func (b *benchOptions) fits(longest int, o *modelOptions) error {
	if n := b.prefixLen + b.inputLen + b.outputLen; n > longest {
		return fmt.Errorf("--prefix-len, --input-len and --output-len are %d tokens together; the longest sequence has %d",
			n, longest)
	}
	if n := min(b.concurrency, b.prompts); n > o.maxSeqs+o.maxWaiting {
		return fmt.Errorf("--max-concurrency is %d; --max-num-seqs and --max-waiting together are %d, and more requests "+
			"would be refused", b.concurrency, o.maxSeqs+o.maxWaiting)
	}
	return nil
}

// writable returns an error if a file cannot be written. It does not change the file. It is called before measuring, so
// that no measurement is lost.
func writable(path string) error {
	info, missing := os.Stat(path)
	if missing == nil && info.Mode()&os.ModeNamedPipe != 0 {
		return nil // closing a pipe would end its reader's input before the result comes
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	err = f.Close()
	if errors.Is(missing, os.ErrNotExist) {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// A timing is the measurement of one request.
type timing struct {
	start  time.Time
	tokens []time.Duration // since start, of each token
	err    error
}

func (l *loaded) bench(c *cobra.Command, o *modelOptions, b *benchOptions) (err error) {
	steps := stepTimes{keep: b.steps != ""}
	e, err := l.engine(o, &steps)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	l.notes(c.ErrOrStderr(), o, e)
	begin := time.Now()
	timings := l.load(c.Context(), e, b)
	r := summarize(b, timings, time.Since(begin))
	r["overhead_percent"] = steps.overhead() // of steps, above the model; not vLLM's
	for i := range timings {
		if timings[i].err != nil {
			return timings[i].err
		}
	}
	return errors.Join(r.print(c.OutOrStdout()), b.write(r, &steps, timings, begin))
}

func (l *loaded) load(ctx context.Context, e *engine.Engine, b *benchOptions) []timing {
	rnd := rand.New(rand.NewPCG(b.seed, 0))
	draw := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = rnd.Int32N(int32(l.config.VocabSize))
		}
		return ids
	}
	prefix := draw(b.prefixLen)
	timings := make([]timing, b.prompts)
	outstanding := make(chan struct{}, b.concurrency)
	next := time.Now()
	var wait sync.WaitGroup
	for i := range timings {
		prompt := append(slices.Clone(prefix), draw(b.inputLen)...)
		if b.rate > 0 && i > 0 { // the first request is sent at once, as in vllm bench
			next = next.Add(time.Duration(rnd.ExpFloat64() / b.rate * float64(time.Second)))
			time.Sleep(time.Until(next))
		}
		outstanding <- struct{}{}
		wait.Go(func() {
			timings[i] = ask(ctx, e, prompt, b.outputLen)
			<-outstanding
		})
	}
	wait.Wait()
	return timings
}

func ask(ctx context.Context, e *engine.Engine, prompt []int32, maxTokens int) timing {
	t := timing{start: time.Now()}
	p := sampling.Default()
	p.Temperature = 0
	s, err := e.Submit(engine.Request{Prompt: prompt, MaxTokens: maxTokens, IgnoreEOS: true, Params: p})
	if err != nil {
		return timing{err: err}
	}
	defer s.Cancel()
	for {
		events, err := s.Next(ctx)
		if err != nil || events == nil {
			t.err = err
			return t
		}
		for _, event := range events {
			if event.Err != nil {
				t.err = event.Err
			}
			for range event.Tokens {
				t.tokens = append(t.tokens, time.Since(t.start))
			}
		}
	}
}

// A result has the fields of the result of vllm bench serve, by the same names. Times are in milliseconds.
type result map[string]float64

// A result has an entry for each statistic of each measured duration. The entry's name is STATISTIC_NAME_ms, for
// example p99_ttft_ms. The printed table shows the title of a duration instead of its name.
var (
	statistics = []string{"mean", "median", "p90", "p99"}
	durations  = []struct{ name, title string }{
		{"ttft", "time to first token"}, {"tpot", "time per output token"}, {"itl", "between tokens"},
	}
)

func summarize(b *benchOptions, timings []timing, took time.Duration) result {
	var completed, output int
	measured := map[string][]float64{}
	add := func(name string, d time.Duration, n int) {
		measured[name] = append(measured[name], milliseconds(d)/float64(n))
	}
	for i := range timings {
		t := &timings[i]
		if t.err != nil || len(t.tokens) == 0 {
			continue
		}
		completed++
		n := len(t.tokens)
		output += n
		add("ttft", t.tokens[0], 1)
		if n > 1 {
			add("tpot", t.tokens[n-1]-t.tokens[0], n-1)
		}
		for k := 1; k < n; k++ {
			add("itl", t.tokens[k]-t.tokens[k-1], 1)
		}
	}
	input, seconds := completed*(b.prefixLen+b.inputLen), took.Seconds()
	r := result{"duration": seconds, "completed": float64(completed), "total_input_tokens": float64(input),
		"total_output_tokens": float64(output), "request_throughput": float64(completed) / seconds,
		"output_throughput": float64(output) / seconds, "total_token_throughput": float64(input+output) / seconds}
	for _, t := range durations {
		for i, v := range spread(measured[t.name]) {
			r[statistics[i]+"_"+t.name+"_ms"] = v
		}
	}
	return r
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// spread returns the mean, the median, the 90th and the 99th percentile of x. Like numpy, it interpolates percentiles
// between the nearest values.
func spread(x []float64) (s [4]float64) {
	if len(x) == 0 {
		return s
	}
	slices.Sort(x)
	for _, v := range x {
		s[0] += v / float64(len(x))
	}
	for i, q := range []float64{0.5, 0.9, 0.99} {
		place := q * float64(len(x)-1)
		low := int(math.Floor(place))
		high := min(low+1, len(x)-1)
		s[i+1] = x[low] + (x[high]-x[low])*(place-float64(low))
	}
	return s
}

func (r result) print(w io.Writer) error {
	out := new(bytes.Buffer)
	fmt.Fprintf(out, "%.0f requests in %.2f s: %.2f requests/s, %.1f output tokens/s, %.1f tokens/s in all\n",
		r["completed"],
		r["duration"], r["request_throughput"], r["output_throughput"], r["total_token_throughput"])
	fmt.Fprintf(out, "scheduling, sampling and delivering add %.2f %% to the model's time\n", r["overhead_percent"])
	fmt.Fprintf(out, "%-24s", "ms")
	for _, name := range statistics {
		fmt.Fprintf(out, "%10s", name)
	}
	for _, t := range durations {
		fmt.Fprintf(out, "\n%-24s", t.title)
		for _, name := range statistics {
			fmt.Fprintf(out, "%10.2f", r[name+"_"+t.name+"_ms"])
		}
	}
	out.WriteByte('\n')
	_, err := out.WriteTo(w)
	return err
}

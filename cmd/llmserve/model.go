package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"llmmemory/internal/attention"
	"llmmemory/internal/engine"
	"llmmemory/internal/model"
	"llmmemory/internal/model/chat"
	"llmmemory/internal/model/induction"
	"llmmemory/internal/model/tokenizer"
	"llmmemory/internal/model/weights"
	"llmmemory/internal/parallel"
)

// modelOptions say how a model is run.
type modelOptions struct {
	threads     int
	cpus        string
	workers     int
	events      eventOptions
	kvGB        float64
	kvType      string
	blockSize   int
	maxModelLen int
	maxSeqs     int
	maxTokens   int
	maxWaiting  int
	noCaching   bool
	noAsync     bool
	speculative int
}

func (o *modelOptions) flags(f *pflag.FlagSet) {
	f.IntVar(&o.threads, "threads", runtime.NumCPU(), "threads that compute")
	f.StringVar(&o.cpus, "cpus", "", "processors to bind these threads to, one each: 0-3,8 (default: the system places them)")
	f.IntVar(&o.workers, "tensor-parallel-size", 1, "workers: 1, 2 or 4, each with its share of heads, threads and weights; answers stay the same")
	f.Float64Var(&o.kvGB, "kv-cache-gb", 1, "memory for keys and values, in GiB")
	f.StringVar(&o.kvType, "kv-cache-dtype", "auto", "type of keys and values: f32, f16, bf16, or auto, which is f16")
	f.IntVar(&o.blockSize, "block-size", 16, "tokens of a block")
	f.IntVar(&o.maxModelLen, "max-model-len", 0, "tokens of the longest sequence (default: as many as the model knows, or the memory holds if that is less)")
	f.IntVar(&o.maxSeqs, "max-num-seqs", 64, "sequences that run at the same time")
	f.IntVar(&o.maxTokens, "max-num-batched-tokens", 512, "tokens that a step computes")
	f.IntVar(&o.maxWaiting, "max-waiting", 1024, "requests that may wait")
	f.IntVar(&o.speculative, "num-speculative-tokens", 0, "tokens that are proposed by looking up the last ones in the text so far; answers stay the same")
	f.BoolVar(&o.noAsync, "no-async-scheduling", false, "schedule a step only when the one before has been delivered, instead of while the model computes it")
	f.BoolVar(&o.noCaching, "no-prefix-caching", false, "compute a prompt again even if its beginning is in memory")
}

// A loaded model is ready to be served.
type loaded struct {
	name      string
	pool      *parallel.Pool
	model     *model.Model
	peers     []engine.Peer // workers beside the first
	tokenizer *tokenizer.Tokenizer
	template  *chat.Template
}

func (l *loaded) weightBytes() int {
	n := l.model.WeightBytes()
	for _, p := range l.peers {
		n += p.Model.WeightBytes()
	}
	return n
}

func (l *loaded) close() error {
	err := l.model.Close()
	l.pool.Close()
	for _, p := range l.peers {
		err = errors.Join(err, p.Model.Close())
		p.Pool.Close()
	}
	return err
}

// loadDemo builds the model that needs no file.
func loadDemo(o *modelOptions) (*loaded, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.workers != 1 {
		return nil, errors.New("--tensor-parallel-size: the demo has 3 heads, which are for one worker")
	}
	pool, err := o.pool(0)
	if err != nil {
		return nil, err
	}
	m, tok, err := induction.New(pool)
	if err != nil {
		return nil, err
	}
	t, err := chat.New(induction.Template, nil)
	return &loaded{name: "demo", pool: pool, model: m, tokenizer: tok, template: t}, err
}

// check looks at what can be known before a model is loaded.
func (o *modelOptions) check() error {
	if !(o.kvGB > 0 && o.kvGB < 1<<20) {
		return fmt.Errorf("--kv-cache-gb is %v; it must be above 0", o.kvGB)
	}
	if have, ok := model.AvailableMemory(); ok && o.kvGB*(1<<30) > float64(have) {
		return fmt.Errorf("--kv-cache-gb %v: %.1f GiB of memory are available", o.kvGB, float64(have)/(1<<30))
	}
	return nil
}

// needsModel wants n arguments, the first of which is a model.
func needsModel(n int, names string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%d arguments, want %s; a model is a folder, a .gguf file, or demo (llmserve --help)", len(args), names)
		}
		return nil
	}
}

// open opens what a user calls a model: demo, a folder or a file.
func open(name string, o *modelOptions) (*loaded, error) {
	if name == "demo" {
		return loadDemo(o)
	}
	return load(name, o)
}

// load opens a folder or a GGUF file.
func load(path string, o *modelOptions) (*loaded, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w; MODEL is a folder or a .gguf file", err)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	l := &loaded{name: strings.TrimSuffix(filepath.Base(path), ".gguf")}
	if info.IsDir() {
		err = l.openFolder(path, o)
	} else {
		err = l.openGGUF(path, o)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// open loads the parts of a model, each by the threads of its worker, so that weights
// are near them.
func (l *loaded) open(o *modelOptions, part func(*parallel.Pool, model.Part) (*model.Model, error)) error {
	if n := o.workers; n != 1 && n != 2 && n != 4 {
		return fmt.Errorf("--tensor-parallel-size is %d; 1, 2 and 4 are possible", n)
	}
	var opened []engine.Peer
	for rank := range o.workers {
		pool, err := o.pool(rank)
		if err == nil {
			var m *model.Model
			if m, err = part(pool, model.Part{Rank: rank, Size: o.workers}); err == nil {
				opened = append(opened, engine.Peer{Model: m, Pool: pool})
				continue
			}
			pool.Close()
		}
		for _, p := range opened {
			err = errors.Join(err, p.Model.Close())
			p.Pool.Close()
		}
		return err
	}
	l.model, l.pool, l.peers = opened[0].Model, opened[0].Pool, opened[1:]
	return nil
}

// openFolder opens the tokenizer first: without it loading would be for nothing.
func (l *loaded) openFolder(dir string, o *modelOptions) (err error) {
	if l.tokenizer, err = tokenizer.Open(dir); err != nil {
		return err
	}
	source, tokens, err := folderTemplate(dir)
	if err != nil {
		return err
	}
	if source != "" {
		if l.template, err = chat.New(source, tokens); err != nil {
			return err
		}
	}
	return l.open(o, func(pool *parallel.Pool, part model.Part) (*model.Model, error) {
		return model.OpenFolder(dir, pool, part)
	})
}

func (l *loaded) openGGUF(path string, o *modelOptions) error {
	g, err := weights.OpenGGUF(path)
	if err != nil {
		return err
	}
	defer g.Close()
	if l.tokenizer, err = tokenizer.FromGGUF(g.Meta); err != nil {
		return err
	}
	if source := g.Meta["tokenizer.chat_template"].String(); source != "" {
		tokens := map[string]string{}
		for name, key := range map[string]string{"bos_token": "bos_token_id", "eos_token": "eos_token_id"} {
			if id, ok := g.Meta["tokenizer.ggml."+key].Int(); ok {
				tokens[name] = string(l.tokenizer.Piece(int32(id)))
			}
		}
		if l.template, err = chat.New(source, tokens); err != nil {
			return err
		}
	}
	return l.open(o, func(pool *parallel.Pool, part model.Part) (*model.Model, error) { return model.OpenGGUF(g, pool, part) })
}

// folderTemplate reads chat_template.jinja, or tokenizer_config.json, which also
// names special tokens.
func folderTemplate(dir string) (source string, tokens map[string]string, err error) {
	tokens = map[string]string{}
	data, err := os.ReadFile(filepath.Join(dir, "tokenizer_config.json"))
	if err == nil {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(data, &fields); err != nil {
			return "", nil, fmt.Errorf("tokenizer_config.json: %w", err)
		}
		for _, name := range []string{"bos_token", "eos_token", "unk_token", "pad_token"} {
			var text string
			var object struct {
				Content string `json:"content"`
			}
			if json.Unmarshal(fields[name], &text) != nil && json.Unmarshal(fields[name], &object) == nil {
				text = object.Content
			}
			if text != "" {
				tokens[name] = text
			}
		}
		// A list of several templates is left alone: none of them is the default for all.
		_ = json.Unmarshal(fields["chat_template"], &source)
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", nil, err
	}
	if data, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja")); err == nil {
		source = string(data)
	}
	return source, tokens, nil
}

// pool makes the threads of a worker: its share of all.
func (o *modelOptions) pool(rank int) (*parallel.Pool, error) {
	leaveRoomBesideTheModel(o.threads)
	threads := o.threads
	var cpus []int
	if o.cpus != "" {
		var err error
		if cpus, err = parseCPUs(o.cpus); err != nil {
			return nil, fmt.Errorf("--cpus %s: %w", o.cpus, err)
		}
		threads = min(threads, len(cpus))
	}
	if o.workers > 1 {
		from, to := threads*rank/o.workers, threads*(rank+1)/o.workers
		if threads = to - from; cpus != nil {
			cpus = cpus[from:to]
		}
		if threads == 0 && cpus == nil {
			threads = 1 // more workers than threads
		}
	}
	if cpus != nil && threads == 0 {
		return nil, fmt.Errorf("--cpus %s: %d workers need a processor each", o.cpus, o.workers)
	}
	return parallel.New(threads, cpus...)
}

// parseCPUs reads a list of processors as Linux writes it: 0-3,8.
func parseCPUs(list string) (cpus []int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || first < 0 || last < first || last >= 1<<16 {
			return nil, fmt.Errorf("%q is neither a processor nor a range like 0-3", part)
		}
		for cpu := first; cpu <= last; cpu++ {
			if slices.Contains(cpus, cpu) {
				return nil, fmt.Errorf("processor %d is named twice", cpu)
			}
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// leaveRoomBesideTheModel lets the scheduler and those who wait for tokens run while all threads
// compute: Go would have them wait until one of the computing threads is preempted, up to 10 ms.
func leaveRoomBesideTheModel(threads int) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), threads+2))
	}
}

// engine starts an engine over a model.
func (l *loaded) engine(o *modelOptions, observer engine.Observer) (*engine.Engine, error) {
	types := map[string]attention.DType{"auto": attention.F16, "f16": attention.F16, "bf16": attention.BF16, "f32": attention.F32}
	dtype, ok := types[o.kvType]
	if !ok {
		return nil, fmt.Errorf("--kv-cache-dtype is %q; f32, f16, bf16 and auto are possible", o.kvType)
	}
	c := engine.Config{
		Model: l.model, Tokenizer: l.tokenizer, Pool: l.pool, Peers: l.peers, BlockSize: o.blockSize,
		KVCacheBytes: int64(o.kvGB * (1 << 30)), KVCacheDType: dtype, MaxModelLen: o.maxModelLen,
		MaxNumSeqs: o.maxSeqs, MaxNumBatchedTokens: o.maxTokens, MaxWaiting: o.maxWaiting, NoPrefixCaching: o.noCaching,
		NumSpeculativeTokens: o.speculative, NoAsyncScheduling: o.noAsync,
	}
	if err := o.events.open(&c); err != nil {
		return nil, err
	}
	return engine.New(c, observer)
}

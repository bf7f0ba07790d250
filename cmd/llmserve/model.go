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
	events      eventOptions
	kvGB        float64
	kvType      string
	blockSize   int
	maxModelLen int
	maxSeqs     int
	maxTokens   int
	maxWaiting  int
	noCaching   bool
	speculative int
}

func (o *modelOptions) flags(f *pflag.FlagSet) {
	f.IntVar(&o.threads, "threads", runtime.NumCPU(), "threads that compute")
	f.StringVar(&o.cpus, "cpus", "", "processors to bind these threads to, one each: 0-3,8 (default: the system places them)")
	f.Float64Var(&o.kvGB, "kv-cache-gb", 1, "memory for keys and values, in GiB")
	f.StringVar(&o.kvType, "kv-cache-dtype", "auto", "type of keys and values: f32, f16, bf16, or auto, which is f16")
	f.IntVar(&o.blockSize, "block-size", 16, "tokens of a block")
	f.IntVar(&o.maxModelLen, "max-model-len", 0, "tokens of the longest sequence (default: as many as the model knows, or the memory holds if that is less)")
	f.IntVar(&o.maxSeqs, "max-num-seqs", 64, "sequences that run at the same time")
	f.IntVar(&o.maxTokens, "max-num-batched-tokens", 512, "tokens that a step computes")
	f.IntVar(&o.maxWaiting, "max-waiting", 1024, "requests that may wait")
	f.IntVar(&o.speculative, "num-speculative-tokens", 0, "tokens that are proposed by looking up the last ones in the text so far; answers stay the same")
	f.BoolVar(&o.noCaching, "no-prefix-caching", false, "compute a prompt again even if its beginning is in memory")
}

// A loaded model is ready to be served.
type loaded struct {
	name      string
	pool      *parallel.Pool
	model     *model.Model
	tokenizer *tokenizer.Tokenizer
	template  *chat.Template
}

func (l *loaded) close() error {
	l.pool.Close()
	return l.model.Close()
}

// loadDemo builds the model that needs no file.
func loadDemo(o *modelOptions) (*loaded, error) {
	pool, err := o.pool()
	if err != nil {
		return nil, err
	}
	m, tok, err := induction.New(pool)
	if err != nil {
		return nil, err
	}
	t, err := chat.New(induction.Template, nil)
	return &loaded{"demo", pool, m, tok, t}, err
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
	pool, err := o.pool()
	if err != nil {
		return nil, err
	}
	l := &loaded{name: strings.TrimSuffix(filepath.Base(path), ".gguf"), pool: pool}
	if info.IsDir() {
		err = l.openFolder(path)
	} else {
		err = l.openGGUF(path)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return l, nil
}

// openFolder opens the tokenizer first: without it loading would be for nothing.
func (l *loaded) openFolder(dir string) (err error) {
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
	l.model, err = model.OpenFolder(dir, l.pool)
	return err
}

func (l *loaded) openGGUF(path string) error {
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
	l.model, err = model.OpenGGUF(g, l.pool)
	return err
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

// pool makes the threads that compute.
func (o *modelOptions) pool() (*parallel.Pool, error) {
	if o.cpus == "" {
		return parallel.New(o.threads)
	}
	cpus, err := parseCPUs(o.cpus)
	if err != nil {
		return nil, fmt.Errorf("--cpus %s: %w", o.cpus, err)
	}
	if o.threads > len(cpus) {
		o.threads = len(cpus)
	}
	return parallel.New(o.threads, cpus...)
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

// engine starts an engine over a model.
func (l *loaded) engine(o *modelOptions, observer engine.Observer) (*engine.Engine, error) {
	types := map[string]attention.DType{"auto": attention.F16, "f16": attention.F16, "bf16": attention.BF16, "f32": attention.F32}
	dtype, ok := types[o.kvType]
	if !ok {
		return nil, fmt.Errorf("--kv-cache-dtype is %q; f32, f16, bf16 and auto are possible", o.kvType)
	}
	c := engine.Config{
		Model: l.model, Tokenizer: l.tokenizer, Pool: l.pool, BlockSize: o.blockSize,
		KVCacheBytes: int64(o.kvGB * (1 << 30)), KVCacheDType: dtype, MaxModelLen: o.maxModelLen,
		MaxNumSeqs: o.maxSeqs, MaxNumBatchedTokens: o.maxTokens, MaxWaiting: o.maxWaiting, NoPrefixCaching: o.noCaching,
		NumSpeculativeTokens: o.speculative,
	}
	if err := o.events.open(&c); err != nil {
		return nil, err
	}
	return engine.New(c, observer)
}

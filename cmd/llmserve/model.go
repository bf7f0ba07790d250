package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"llmmemory/internal/machine"
	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/gpu"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/model/induction"
	"llmmemory/internal/serving/model/tokenizer"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
)

// maxThreads is far above any useful number of threads. Go's runtime ends a process with more than 10,000 threads.
const maxThreads = 1024

// modelOptions are the flags for running a model.
type modelOptions struct {
	threads     int
	cpus        string
	workers     int
	limit       time.Duration // how long a step may take
	events      eventOptions
	offload     offloadOptions
	device      deviceOptions
	kvGB        float64
	kvFixed     bool // kvGB is the default on a GPU, too
	kvType      string
	activations string
	blockSize   int
	maxModelLen int
	maxSeqs     int
	maxTokens   int
	maxWaiting  int
	noCaching   bool
	noAsync     bool
	speculative int
	template    string
}

func (o *modelOptions) flags(f *pflag.FlagSet) {
	f.IntVar(&o.threads, "threads", runtime.GOMAXPROCS(0),
		"threads that compute; by default one for each processor that this process may use")
	f.StringVar(&o.cpus, "cpus", "",
		"processors to bind these threads to, one each: 0-3,8 (default: the system places them)")
	if connect != nil {
		f.DurationVar(&o.limit, "iteration-timeout", defaultLimit,
			"how long a rank may take to answer in a step before all ranks are ended; while a step takes longer, "+
				"/health is 503")
	}
	f.IntVar(&o.workers, "tensor-parallel-size", 1,
		"workers: 1, 2 or 4, each with its share of heads, threads and weights; answers stay the same")
	f.Float64Var(&o.kvGB, "kv-cache-gb", 1, "memory for keys and values, in GiB")
	f.StringVar(&o.kvType, "kv-cache-dtype", "auto",
		"type of keys and values: f32, f16, bf16, fp8_e4m3 (or fp8), fp8_e5m2, int8, or auto, which is f16")
	f.StringVar(&o.activations, "activation-dtype", "f32",
		"type of the activations that weights are multiplied by: f32, bf16 (with F16 and BF16 weights) or int8 (with "+
			"quantized ones: W8A8 and W4A8), which are faster and round")
	f.IntVar(&o.blockSize, "block-size", 16, "tokens of a block")
	f.IntVar(&o.maxModelLen, "max-model-len", 0,
		"tokens of the longest sequence (default: the model's, or what the memory holds if that is less)")
	f.IntVar(&o.maxSeqs, "max-num-seqs", 64, "largest number of running sequences")
	f.IntVar(&o.maxTokens, "max-num-batched-tokens", 512, "largest number of tokens in a step")
	f.IntVar(&o.maxWaiting, "max-waiting", 1024, "requests that may wait while --max-num-seqs run")
	f.IntVar(&o.speculative, "num-speculative-tokens", 0,
		"draft tokens for each step, proposed by looking up the last tokens earlier in the text (prompt lookup); "+
			"answers stay the same")
	f.BoolVar(&o.noAsync, "no-async-scheduling", false,
		"schedule a step only after the previous one has been delivered, instead of while the model computes it")
	o.device.flags(f)
	f.StringVar(&o.template, "chat-template", "", "file with a chat template to use instead of the model's")
	f.BoolVar(&o.noCaching, "no-prefix-caching", false, "compute prompts in full even if their beginning is cached")
}

// A loaded model can be served after loadWeights.
type loaded struct {
	name          string
	config        *model.Config
	longest       int // tokens of the longest sequence
	workers       []engine.Peer
	tokenizer     *tokenizer.Tokenizer
	template      *chat.Template
	templateError error // why the model's template cannot be used, or nil
	noSplit       bool  // the file does not say how text is split

	files  *weights.GGUF // nil for a folder
	part   func(*parallel.Pool, model.Part, ...model.Option) (*model.Model, error)
	device *gpu.Model  // nil for the CPU
	gpu    *gpu.Device // of device

	fingerprint func() (string, error) // reads all weights; nil for the demo
}

func (l *loaded) weightBytes() int {
	n := 0
	if l.device != nil {
		return l.device.Bytes()
	}
	for _, w := range l.workers {
		n += w.Model.WeightBytes()
	}
	return n
}

func (l *loaded) close() error {
	var err error
	for _, w := range l.workers {
		if w.Model != nil {
			err = errors.Join(err, w.Model.Close())
		}
		w.Pool.Close()
	}
	if l.device != nil {
		err = errors.Join(err, l.device.Close(), l.gpu.Close())
	}
	return errors.Join(err, l.closeFiles())
}

func (l *loaded) closeFiles() error {
	if l.files == nil {
		return nil
	}
	err := l.files.Close()
	l.files = nil
	return err
}

func prepareDemo(o *modelOptions) (*loaded, error) {
	if o.activations != "f32" && o.device.gpu == nil {
		return nil, fmt.Errorf("--activation-dtype %s: the demo's weights are F32; only f32 is possible", o.activations)
	}
	c := induction.Config(o.workers)
	l := &loaded{name: "demo", config: &c, tokenizer: induction.Tokenizer(), part: induction.New}
	if err := l.readTemplate(induction.Template, nil, o); err != nil {
		return nil, err
	}
	return l, l.check(o)
}

// check checks the flags that need no model.
func (o *modelOptions) check() error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"threads", o.threads}, {"block-size", o.blockSize}, {"max-num-seqs", o.maxSeqs},
		{"max-num-batched-tokens", o.maxTokens}, {"max-waiting", o.maxWaiting},
	} {
		if f.value < 1 {
			return fmt.Errorf("--%s is %d; it must be at least 1", f.name, f.value)
		}
	}
	switch {
	case o.blockSize > attention.MaxBlockSize:
		return fmt.Errorf("--block-size is %d; it must be at most %d", o.blockSize, attention.MaxBlockSize)
	case o.threads > maxThreads:
		return fmt.Errorf("--threads is %d; at most %d are possible, and more than this machine's %d processors "+
			"gain nothing", o.threads, maxThreads, runtime.NumCPU())
	case !(o.kvGB > 0):
		return fmt.Errorf("--kv-cache-gb is %v; it must be above 0", o.kvGB)
	}
	if ranks != nil {
		if err := ranks.share(o); err != nil {
			return err
		}
	}
	have, ok := machine.AvailableMemory()
	switch n := o.workers; {
	case ok && o.device.name == "cpu" && o.kvGB*(1<<30) > float64(have*o.processes()):
		return fmt.Errorf("--kv-cache-gb %v: %.1f GiB of memory are available; give less", o.kvGB, float64(have)/(1<<30))
	case o.kvGB >= 1<<20: // the bytes would not fit in an int
		return fmt.Errorf("--kv-cache-gb is %v; it must be below %d", o.kvGB, 1<<20)
	case n != 1 && n != 2 && n != 4:
		return fmt.Errorf("--tensor-parallel-size is %d; 1, 2 and 4 are possible", n)
	}
	if _, ok := activationTypes[o.activations]; !ok && o.device.name == "cpu" {
		return fmt.Errorf("--activation-dtype is %q; f32, bf16 and int8 are possible", o.activations)
	}
	return nil
}

// activationTypes are the values of --activation-dtype with the model's options.
var activationTypes = map[string][]model.Option{
	"f32": nil, "bf16": {model.BF16Activations}, "int8": {model.Int8Activations},
}

// check checks the flags against a model's shape.
func (l *loaded) check(o *modelOptions) error {
	err := l.checkEngine(o, 0)
	if errors.Is(err, gpu.ErrUnsupported) && o.device.name == "auto" {
		l.device = nil
		err = errors.Join(o.device.orCPU(err), l.checkEngine(o, 0))
	}
	return err
}

// checkEngine finds the longest sequence of an engine. weightBytes are the bytes of weights that are not on the GPU yet.
func (l *loaded) checkEngine(o *modelOptions, weightBytes int) error {
	c, err := o.engine()
	if err == nil {
		err = l.plan(o, &c, weightBytes)
	}
	if err == nil {
		l.longest, err = c.Check(l.config, o.workers)
	}
	return err
}

// checkMemory compares the memory that weights, keys and values need with the available memory.
func (l *loaded) checkMemory(o *modelOptions, files *weights.Tensors) error {
	if err := l.fitsOnGPU(o, files); err != nil || l.device != nil {
		return err
	}
	need, kv := model.PackedBytes(files)/o.processes(), int(o.kvGB*(1<<30))/o.processes()
	if have, ok := machine.AvailableMemory(); ok && need+kv > have {
		return fmt.Errorf("the weights take about %d MB, keys and values %d MB, and %d MB of memory are available: give a "+
			"smaller --kv-cache-gb, or a model with smaller weights",
			need>>20, kv>>20, have>>20)
	}
	return nil
}

// needsModel requires n arguments, the first of which is a model.
func needsModel(n int, names string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("want %s, got %d arguments; a model is a folder, a .gguf file, or demo (llmserve --help)", names,
				len(args))
		}
		return nil
	}
}

// prepare reads everything of a model except the weights. path is demo, a folder or a GGUF file.
func prepare(path string, o *modelOptions) (*loaded, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := o.device.open(o); err != nil {
		return nil, err
	}
	if path == "demo" {
		return prepareDemo(o)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w; MODEL is a folder or a .gguf file: such as "+
			"huggingface.co has them (hf download NAME --local-dir FOLDER), or demo", err)
	}
	if err := oneOfMany(path, info); err != nil {
		return nil, err
	}
	l := &loaded{name: strings.TrimSuffix(filepath.Base(path), ".gguf")}
	if info.IsDir() {
		err = l.openFolder(path, o)
	} else {
		err = l.openGGUF(path, o)
	}
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// oneOfMany returns an error in two cases: if path is a file of a model whose folder is needed, and if it is a
// folder of GGUF files.
func oneOfMany(path string, info os.FileInfo) error {
	if info.IsDir() {
		files, _ := filepath.Glob(filepath.Join(path, "*.gguf"))
		if _, err := os.Stat(filepath.Join(path, "config.json")); err != nil && len(files) > 0 {
			return fmt.Errorf("%s has no config.json; give one of its GGUF files: %s", path, files[0])
		}
		return nil
	}
	switch filepath.Ext(path) {
	case ".safetensors", ".json", ".bin":
		return fmt.Errorf("%s is one file of a model; give its folder, or a .gguf file", path)
	}
	return nil
}

// loadWeights reads and packs the parts of a model. Each part is loaded by the threads of its worker, so that its
// weights are in memory near them. After an error the caller must still close l.
func (l *loaded) loadWeights(o *modelOptions) error {
	first, here := 0, o.workers
	if ranks != nil {
		first, here = ranks.Rank(), 1
		if err := ranks.agree(l, o); err != nil {
			return err
		}
	}
	for rank := range here {
		pool, err := o.pool(rank)
		if err != nil {
			return err
		}
		l.workers = append(l.workers, engine.Peer{Pool: pool})
	}
	for i := range l.workers {
		var err error
		w, part := &l.workers[i], model.Part{Rank: first + i, Size: o.workers}
		var options []model.Option
		if l.device != nil {
			options = append(options, l.loadOn(o, w.Pool))
		}
		if w.Model, err = l.part(w.Pool, part, options...); errors.Is(err, model.ErrNotQuantized) ||
			errors.Is(err, model.ErrNotHalves) {
			return fmt.Errorf("--activation-dtype %s: %w", o.activations, err)
		} else if err != nil {
			return err
		}
	}
	if ranks != nil {
		ranks.reach(loadedWeights)
	}
	return l.closeFiles()
}

func (l *loaded) openFolder(dir string, o *modelOptions) (err error) {
	if l.config, err = model.ReadConfig(dir); err != nil {
		return err
	}
	if err := l.check(o); err != nil {
		return err
	}
	if l.tokenizer, err = tokenizer.Open(dir); err != nil {
		return err
	}
	tokens, err := tokenizer.SpecialTokens(dir)
	if err != nil {
		return err
	}
	source, err := folderTemplate(dir)
	if err != nil {
		return err
	}
	if err := l.readTemplate(source, tokens, o); err != nil {
		return err
	}
	files, err := weights.OpenSafetensors(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", model.ErrModel, err)
	}
	l.part = func(pool *parallel.Pool, part model.Part, more ...model.Option) (*model.Model, error) {
		return model.OpenFolder(dir, pool, part, append(more, activationTypes[o.activations]...)...)
	}
	l.fingerprint = func() (string, error) {
		files, err := weights.OpenSafetensors(dir)
		if err != nil {
			return "", fmt.Errorf("%w: %w", model.ErrModel, err)
		}
		return files.Fingerprint(), files.Close()
	}
	return errors.Join(l.checkMemory(o, files), files.Close())
}

func (l *loaded) openGGUF(path string, o *modelOptions) (err error) {
	g, err := weights.OpenGGUF(path)
	if err != nil {
		return err
	}
	l.files = g
	if l.config, err = model.ConfigFromGGUF(g); err != nil {
		return err
	}
	if err := l.check(o); err != nil {
		return err
	}
	if l.tokenizer, err = tokenizer.FromGGUF(g.Meta); err != nil {
		return err
	}
	meta := func(key string) string { return g.Meta["tokenizer.ggml."+key].String() }
	l.noSplit = meta("model") == "gpt2" && meta("pre") == ""
	tokens := map[string]string{}
	for name, key := range map[string]string{"bos_token": "bos_token_id", "eos_token": "eos_token_id"} {
		if id, ok := g.Meta["tokenizer.ggml."+key].Int(); ok {
			tokens[name] = string(l.tokenizer.Piece(int32(id)))
		}
	}
	if err := l.readTemplate(g.Meta["tokenizer.chat_template"].String(), tokens, o); err != nil {
		return err
	}
	l.part = func(pool *parallel.Pool, part model.Part, more ...model.Option) (*model.Model, error) {
		return model.OpenGGUF(g, pool, part, append(more, activationTypes[o.activations]...)...)
	}
	l.fingerprint = func() (string, error) { return g.Fingerprint(), nil }
	return l.checkMemory(o, g.Tensors)
}

// kvTypes are the values of --kv-cache-dtype. Types of 8 bits have vLLM's names.
var kvTypes = map[string]attention.DType{
	"auto": attention.F16, "f32": attention.F32, "f16": attention.F16, "bf16": attention.BF16,
	"fp8": attention.E4M3, "fp8_e4m3": attention.E4M3, "fp8_e5m2": attention.E5M2, "int8": attention.Int8,
}

// engine returns the engine's configuration without the model.
func (o *modelOptions) engine() (engine.Config, error) {
	dtype, ok := kvTypes[o.kvType]
	if !ok {
		return engine.Config{}, fmt.Errorf("--kv-cache-dtype is %q; f32, f16, bf16, fp8_e4m3, fp8, fp8_e5m2, int8 and auto "+
			"are possible", o.kvType)
	}
	return engine.Config{
		BlockSize: o.blockSize, KVCacheBytes: int64(o.kvGB * (1 << 30)), KVCacheDType: dtype, MaxModelLen: o.maxModelLen,
		MaxNumSeqs: o.maxSeqs, MaxNumBatchedTokens: o.maxTokens, MaxWaiting: o.maxWaiting, NoPrefixCaching: o.noCaching,
		NumSpeculativeTokens: o.speculative, NoAsyncScheduling: o.noAsync,
	}, nil
}

// engine starts an engine over a model.
func (l *loaded) engine(o *modelOptions, observer engine.Observer) (*engine.Engine, error) {
	c, err := o.engine()
	if err != nil {
		return nil, err
	}
	if err := l.plan(o, &c, 0); err != nil {
		return nil, err
	}
	c.Model, c.Pool, c.Peers, c.Tokenizer = l.workers[0].Model, l.workers[0].Pool, l.workers[1:], l.tokenizer
	if ranks != nil {
		c.Remote = ranks
	}
	o.events.publishTo(&c)
	o.offload.offloadTo(&c)
	return engine.New(c, observer)
}

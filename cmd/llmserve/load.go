package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"llmmemory/internal/machine"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/gpu"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/model/induction"
	"llmmemory/internal/serving/model/tokenizer"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
)

// A loaded model can be served after loadWeights.
type loaded struct {
	name          string
	config        *model.Config
	longest       int // tokens of the longest sequence
	workers       []engine.Peer
	tokenizer     *tokenizer.Tokenizer
	template      *chat.Template
	pooling       *openai.Pooling // nil if no vectors are made
	templateError error           // why the model's template cannot be used, or nil
	noSplit       bool            // the file does not say how text is split

	files  *weights.GGUF // nil for a folder
	reopen func() error  // opens files again after closeFiles; nil for a folder
	part   func(*parallel.Pool, model.Part, ...model.Option) (*model.Model, error)
	gpu    *gpu.Device   // nil for the CPU
	device *gpu.Model    // on gpu
	plan   engine.Config // without the model; check sets it

	fingerprint func() (string, error) // reads all weights; nil for the demo
	content     string                 // the fingerprint at the start, if there is a tier

	ready func() bool // called when the engine exists; until then a signal ends the process
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
		err = errors.Join(err, l.device.Close())
	}
	if l.gpu != nil {
		err = errors.Join(err, l.gpu.Close())
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

func (l *loaded) openDemo(o *modelOptions) error {
	if l.activationType(o) != "f32" && l.gpu == nil {
		return fmt.Errorf("--activation-dtype %s: the demo's weights are F32; only f32 is possible", o.activations)
	}
	c := induction.Config(o.workers)
	l.config, l.tokenizer, l.part = &c, induction.Tokenizer(), induction.New
	if err := l.readTemplate(induction.Template, nil, o); err != nil {
		return err
	}
	if err := l.setPooling(o, nil, nil, false); err != nil {
		return err
	}
	if err := l.check(o, unknownWeights); err != nil || l.gpu == nil {
		return err
	}
	return l.check(o, l.device.ShapeBytes())
}

// check sets the plan of an engine and the length of its longest sequence. It returns an error if there can be no
// engine. The parameter weightBytes is the number of bytes of weights that are not on the GPU yet.
func (l *loaded) check(o *modelOptions, weightBytes int) (err error) {
	if l.plan, err = l.planEngine(o, weightBytes); err == nil {
		l.longest, err = l.plan.Check(l.config, o.workers)
	}
	return err
}

func (l *loaded) checkMemory(o *modelOptions, files *weights.Tensors) error {
	if l.device != nil {
		return l.check(o, l.device.WeightBytes(files))
	}
	adapters, err := o.lora.bytes()
	if err != nil {
		return err
	}
	need, kv := (model.PackedBytes(files)+adapters)/o.processes(), int(o.kvGB*(1<<30))/o.processes()
	if have, ok := machine.AvailableMemory(); ok && need+kv > have {
		weights, less := "weights", ""
		if len(o.lora.named) > 0 {
			weights, less = "weights and the adapters", ", fewer adapters"
		}
		return fmt.Errorf("the %s take about %d MB, keys and values %d MB, and %d MB of memory are available: give a "+
			"smaller --kv-cache-gb%s, or a model with smaller weights", weights, need>>20, kv>>20, have>>20, less)
	}
	return nil
}

// needsModel requires n arguments, the first of which is a model.
func needsModel(n int, names string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if f := c.Flags().Lookup("served-model-name"); f != nil && f.Changed && len(args) > n {
			return fmt.Errorf("want %s, got %d arguments; several names of a model are separated by commas: --served-model-name a,b", names,
				len(args))
		}
		if len(args) != n {
			return fmt.Errorf("want %s, got %d arguments; a model is a folder, a .gguf file, or demo (llmserve --help)", names,
				len(args))
		}
		return nil
	}
}

// load prepares a model, calls check, and loads the weights. If this fails on a GPU that --device auto has
// chosen, load does it again on the CPU.
func load(path string, o *modelOptions, check func(*loaded) error) (*loaded, error) {
	l, err := prepare(path, o)
	if err == nil {
		if err = check(l); err == nil {
			err = l.loadWeights(o)
		}
		if err != nil {
			err = errors.Join(err, o.offload.close(), l.close())
		}
	}
	if err == nil || o.device.gpu == nil || o.device.name != "auto" {
		return l, err
	}
	o.device.gpu, o.device.reason = nil, strings.ReplaceAll(err.Error(), "\n", "; ")
	onGPU := err.Error()
	l, err = load(path, o, check)
	switch {
	case err == nil:
		return l, nil
	case err.Error() == onGPU: // it is not about the GPU
		return nil, err
	}
	return nil, fmt.Errorf("on the CPU, because the model cannot run on the GPU (%s): %w", o.device.reason, err)
}

// prepare reads everything of a model except its weights. The path is that of a folder or a GGUF file, or demo.
func prepare(path string, o *modelOptions) (*loaded, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := o.device.open(o); err != nil {
		return nil, err
	}
	l := &loaded{name: strings.TrimSuffix(filepath.Base(path), ".gguf"), gpu: o.device.gpu}
	if err := l.open(path, o); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *loaded) open(path string, o *modelOptions) error {
	if l.gpu == nil {
		if err := o.checkCPU(); err != nil {
			return err
		}
	}
	if path == "demo" {
		return l.openDemo(o)
	}
	info, err := os.Stat(path)
	if repository, quantization, ok := hubName(path); err != nil && ok {
		return fmt.Errorf("%w; %s", err, howToGet(repository, quantization))
	}
	if err != nil {
		return fmt.Errorf("%w; MODEL is a folder or a .gguf file: such as "+
			"huggingface.co has them (hf download NAME --local-dir FOLDER), or demo", err)
	}
	if err := oneOfMany(path, info); err != nil {
		return err
	}
	if info.IsDir() {
		return l.openFolder(path, o)
	}
	return l.openGGUF(path, o)
}

// oneOfMany returns an error if the path is only a part of a model, such as one file of a model's folder. It also
// returns an error for a folder that has GGUF files but no config.json, because each of these files is a model.
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

// loadWeights reads and packs the parts of a model, one for each worker. Each worker loads its part with its own
// threads, so that the part is in memory near the processors of these threads. After an error the caller must still
// close l.
func (l *loaded) loadWeights(o *modelOptions) (err error) {
	if err := o.lora.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.lora.close()) }()
	if o.offload.used() || ranks != nil {
		o.lora.contents = o.lora.fingerprints()
	}
	first, count := 0, o.workers
	if ranks != nil {
		first, count = ranks.Rank(), 1
		if err := ranks.agree(l, o); err != nil {
			return err
		}
	}
	for rank := range count {
		pool, err := o.pool(rank)
		if err != nil {
			return err
		}
		l.workers = append(l.workers, engine.Peer{Pool: pool})
	}
	for i := range l.workers {
		w, part := &l.workers[i], model.Part{Rank: first + i, Size: o.workers}
		options := o.lora.option()
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
	if err := l.closeFiles(); err != nil {
		return err
	}
	if l.device != nil {
		defer slow(fmt.Sprintf("computing the largest batch on %v", l.gpu)).Stop()
	}
	return l.check(o, 0)
}

func (l *loaded) openFolder(dir string, o *modelOptions) (err error) {
	if l.config, err = model.ReadConfig(dir); err != nil {
		return err
	}
	if err := l.check(o, unknownWeights); err != nil {
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
	stated, err := folderPooler(dir)
	if err == nil {
		err = l.setPooling(o, stated, files, false)
	}
	if err != nil {
		return errors.Join(err, files.Close())
	}
	l.part = func(pool *parallel.Pool, part model.Part, options ...model.Option) (*model.Model, error) {
		if l.pooling != nil && l.pooling.Only {
			options = append(options, model.ForPooling)
		}
		return model.OpenFolder(dir, pool, part, append(options, activationTypes[o.activations]...)...)
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
	if err := l.check(o, unknownWeights); err != nil {
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
	stated, err := ggufPooler(g, l.config.Family)
	if err == nil {
		err = l.setPooling(o, stated, g.Tensors, true)
	}
	if err != nil {
		return err
	}
	l.part = func(pool *parallel.Pool, part model.Part, options ...model.Option) (*model.Model, error) {
		if l.pooling != nil && l.pooling.Only {
			options = append(options, model.ForPooling)
		}
		return model.OpenGGUF(l.files, pool, part, append(options, activationTypes[o.activations]...)...)
	}
	l.reopen = func() (err error) {
		l.files, err = weights.OpenGGUF(path)
		return err
	}
	l.fingerprint = func() (string, error) { return l.files.Fingerprint(), nil }
	return l.checkMemory(o, g.Tensors)
}

func (l *loaded) engine(o *modelOptions, observer engine.Observer) (*engine.Engine, error) {
	defer l.ready()
	c := l.plan
	c.Model, c.Pool, c.Peers, c.Tokenizer = l.workers[0].Model, l.workers[0].Pool, l.workers[1:], l.tokenizer
	if ranks != nil {
		c.Remote = ranks
	}
	if ranks == nil && l.device == nil {
		c.Weights, c.IdleUnload = &weightStore{l, o}, o.idle
	}
	o.adaptersOf(&c)
	o.events.publishTo(&c)
	o.offload.offloadTo(&c)
	return engine.New(c, observer)
}

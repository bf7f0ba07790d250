package model

import (
	"errors"
	"slices"
	"strings"

	"llmmemory/internal/machine"
	"llmmemory/internal/serving/model/lora"
	"llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
)

// A Model is a configuration with packed weights. It does not change after it is loaded.
type Model struct {
	Config
	part      Part
	vocab     []Columns // the tokens whose logits each part computes
	embed     *table    // nil if embeddings are the rows of head
	positions *table    // nil if positions are rotations
	perLayer  perLayer
	layers    []layer
	norm      norm
	head      linear
	weights   matrix.Arena // of all matrices
	unused    []string
	adapters  int
	roundings map[Rounding]int // bytes of the weights that have this choice; see Rounding
}

// Unused returns the sorted names of the vectors and matrices of floats in a folder that the model does not use. It
// leaves out frequencies, masks, scales, biases of 0, tensors for images, sound and drafts, an output matrix beside tied
// embeddings, and with ForPooling the matrix that Classifier reads.
func (m *Model) Unused() []string { return m.unused }

type norm struct{ weight, bias []float32 }

type layer struct {
	attnNorm, attnPost norm // without weights if the layer has no such norm
	qkv                linear
	qNorm, kNorm       []float32
	sinks              []float32
	latent             *latent // nil without latent attention
	mixed              *mixed  // nil if all layers have the same heads
	attnGate           linear  // empty unless Config.Gate
	out                linear
	mlpNorm, mlpPost   norm
	mlp                mlp      // beside experts, the shared expert, empty if there is none
	experts            *experts // or nil

	recurrent *recurrent // instead of qkv and out; nil if the layer has attention
}

type mlp struct {
	upProj   linear // preceded by the gate if there is one
	downProj linear
}

func (m *Model) eachLinear(f func(*linear)) {
	for i := range m.layers {
		l := &m.layers[i]
		if x := l.recurrent; x != nil {
			f(&x.input)
			f(&x.output)
		} else {
			f(&l.qkv)
			f(&l.attnGate)
			f(&l.out)
			if l.latent != nil {
				l.latent.eachLinear(f)
			}
		}
		if l.mixed != nil {
			f(&l.mixed.gate)
			f(&l.mixed.projection)
		}
		f(&l.mlp.upProj)
		f(&l.mlp.downProj)
		if l.experts == nil {
			continue
		}
		f(&l.experts.router)
		f(&l.experts.sharedRouter)
		for i := range l.experts.all {
			f(&l.experts.all[i].upProj)
			f(&l.experts.all[i].downProj)
		}
	}
	f(&m.head)
	f(&m.perLayer.projection)
}

// Part returns which part of the whole model m is: part 0 of 1 if it is the whole model.
func (m *Model) Part() Part { return Part{m.part.Rank, m.part.size()} }

// Close releases the weights' memory.
func (m *Model) Close() error {
	return errors.Join(m.weights.Close(), m.embed.close(), m.positions.close(), m.perLayer.embed.close())
}

// WeightBytes returns the size of the packed weights.
func (m *Model) WeightBytes() int {
	n := 0
	m.eachLinear(func(l *linear) {
		for _, p := range l.parts {
			n += p.Bytes()
		}
		for _, d := range l.deltas {
			n += d.bytes()
		}
	})
	return n + m.embed.bytes() + m.positions.bytes() + m.perLayer.embed.bytes()
}

// OpenFolder loads a part of a model from a folder in Hugging Face's format. Before it allocates memory for weights,
// it checks the names and shapes of tensors, and that enough memory is available.
func OpenFolder(dir string, pool *parallel.Pool, part Part, opts ...Option) (*Model, error) {
	c, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	files, err := weights.OpenSafetensors(dir)
	if err != nil {
		return nil, refused("%w", err)
	}
	m, err := build(c, files, pool, false, part, opts)
	return m, errors.Join(err, files.Close())
}

// OpenGGUF loads a part of a model from an open GGUF file.
func OpenGGUF(g *weights.GGUF, pool *parallel.Pool, part Part, opts ...Option) (*Model, error) {
	c, err := ConfigFromGGUF(g)
	if err != nil {
		return nil, err
	}
	return build(c, g.Tensors, pool, true, part, opts)
}

// A loader loads the tensors of a model. After the first error, its methods do nothing and return zero values.
type loader struct {
	config *Config
	files  *weights.Tensors
	pool   *parallel.Pool
	names  *names
	prefix string
	part   Part

	rounding  matrix.Form      // of activations: Rounded, Shorts or 0
	roundings map[Rounding]int // see Model

	used map[string]bool // tensors that were found

	adapters   []*lora.Adapter
	adaptable  [][]string            // for each adapter, the names that the matrices it can change have in it
	adaptation map[*lora.Module]bool // modules that were found

	pooling bool // see ForPooling

	shapes  bool // only compare names and shapes with the configuration
	weights *matrix.Arena
	device  func(*Config, *Sources) error // see LoadOn; nil if weights are packed
	kept    map[*matrix.Matrix]*stack     // of matrices whose weights stay in the file
	err     error
}

func (l *loader) fail(format string, args ...any) { l.stop(refused(format, args...)) }

func (l *loader) stop(err error) {
	if l.err == nil {
		l.err = err
	}
}

func (l *loader) expect(t *weights.Tensor, rows, cols int) {
	if t != nil && (t.Rows != rows || t.Cols != cols) {
		l.fail("the tensor %q is %d × %d, the configuration says %d × %d", t.Name, t.Rows, t.Cols, rows, cols)
	}
}

func build(c *Config, files *weights.Tensors, pool *parallel.Pool, gguf bool, part Part, opts []Option) (*Model,
	error) {
	if err := part.Check(c); err != nil {
		return nil, err
	}
	l := &loader{config: c, files: files, pool: pool, part: part, used: map[string]bool{}, roundings: map[Rounding]int{}}
	for _, option := range opts {
		option(l)
	}
	l.findNames(gguf)
	if l.device == nil {
		if err := l.enoughMemory(); err != nil {
			return nil, err
		}
	}
	// Report missing tensors and wrong shapes before anything is packed.
	l.shapes = true
	shape := &Model{}
	if err := l.load(shape); err != nil {
		return nil, err
	}
	var unused []string
	var err error
	if gguf {
		err = l.allUsed()
	} else {
		unused, err = l.unusedNames()
	}
	if err == nil {
		err = l.checkAdapters(gguf)
	}
	if err != nil {
		return nil, err
	}
	switch rounds := shape.forms()&l.rounding != 0; {
	case l.rounding == matrix.Rounded && !rounds:
		return nil, ErrNotQuantized
	case l.rounding == matrix.Shorts && !rounds:
		return nil, ErrNotHalves
	}
	l.shapes = false
	m := &Model{Config: *c, part: part, unused: unused, adapters: len(l.adapters)}
	l.weights = &m.weights
	l.kept = map[*matrix.Matrix]*stack{}
	if err := l.load(m); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if l.device == nil {
		m.roundings = l.roundings
		return m, nil
	}
	if err := l.device(&m.Config, l.sources(m)); err != nil {
		return nil, err
	}
	return &Model{Config: *c, part: part, unused: unused}, nil
}

func (l *loader) findNames(gguf bool) {
	if gguf {
		l.names = namesInGGUF(l.config, func(tensor string) bool { return l.files.Get(tensor) != nil })
	} else {
		l.names = folderNames(l.config)
		l.prefix = prefixes[0]
	}
	if i := slices.IndexFunc(prefixes, func(p string) bool {
		return l.files.Get(p+l.names.embed+".weight") != nil
	}); i >= 0 {
		l.prefix = prefixes[i]
	}
	if l.pooling && !slices.ContainsFunc(l.places(l.names.head+".weight"), func(full string) bool { return l.files.Get(full) != nil }) {
		l.config.TieEmbeddings = true
	}
}

// places returns the names that a tensor can have.
func (l *loader) places(name string) []string {
	return []string{l.prefix + name, strings.TrimSuffix(l.prefix, "model.") + name, name}
}

// An Option changes how a model is loaded.
type Option func(*loader)

// ErrNotQuantized is the error if Int8Activations is used for a model in which no matrix product would change.
var ErrNotQuantized = refused("its weights are not of a quantized type of GGUF, which are multiplied by 8-bit " +
	"activations")

// Int8Activations is an Option for products with weights of the quantized types of GGUF, such as Q4_K and MXFP4. It
// rounds their inputs to 8 bits, in blocks of 32 with a scale each. Such a product multiplies integers, as in llama.cpp;
// vLLM calls these products W8A8 and W4A8. Products with other weights, such as those of GPTQ, AWQ and FP8, do not
// change. If no product changes, the model is refused with ErrNotQuantized.
func Int8Activations(l *loader) { l.rounding = matrix.Rounded }

// ErrNotHalves is the error if BF16Activations is used for a model in which no matrix product would change.
var ErrNotHalves = refused("its weights are not F16 or BF16, which are multiplied by BF16 activations")

// BF16Activations is an Option that rounds F16 weights, and the inputs of products with F16 and BF16 weights, to BF16.
// Such a product multiplies BF16 and adds in float32. Products with other weights do not change, and products whose
// number of inputs is not a multiple of 8 do not change. If no product changes, the model is refused with ErrNotHalves.
func BF16Activations(l *loader) { l.rounding = matrix.Shorts }

func (m *Model) forms() matrix.Form {
	var forms matrix.Form
	m.eachLinear(func(l *linear) { forms |= l.forms() })
	return forms
}

// PackedBytes estimates the size of a model's packed weights if the model is loaded without Options. The estimate
// includes tensors that the model does not use. A model that is divided into Parts is larger in total, because each
// Part has all embeddings.
func PackedBytes(files *weights.Tensors) int {
	bytes := 0
	for _, name := range files.Names() {
		t := files.Get(name)
		bytes += matrix.Size(t.Packed(), t.Rows, t.Cols, t.Block())
	}
	return bytes
}

func (l *loader) enoughMemory() error {
	need := PackedBytes(l.files) / l.part.size()
	have, ok := machine.AvailableMemory()
	if ok && need > have {
		return refused("its weights take about %d MB, %d MB of memory are available", need>>20, have>>20)
	}
	return nil
}

func (l *loader) tensor(name string) *weights.Tensor {
	if l.err != nil {
		return nil
	}
	for _, full := range l.places(name) {
		if t := l.files.Get(full); t != nil {
			l.used[full] = true
			return t
		}
		if description := l.files.DescribeOther(full); description != "" {
			l.fail("the tensor %q is %s; vectors and matrices of F32, F16 and BF16 are read", full, description)
			return nil
		}
	}
	if !strings.HasPrefix(name, l.names.head) {
		name = l.prefix + name
	}
	l.fail("the tensor %q is missing", name)
	return nil
}

func (l *loader) matrix(name string, outputs, inputs int) *weights.Tensor {
	t := l.tensor(name + ".weight")
	if l.names.outputsFirst && t != nil {
		t = t.Stored()
	}
	if l.names.transposed {
		outputs, inputs = inputs, outputs
	}
	l.expect(t, outputs, inputs)
	return t
}

func (l *loader) vector(name string, n int) []float32 {
	t := l.tensor(name)
	if t != nil && (t.Rows != 1 || t.Cols != n) {
		l.fail("the tensor %q is %d × %d, the configuration says %d", t.Name, t.Rows, t.Cols, n)
	}
	if l.err != nil {
		return nil
	}
	return t.Vector()
}

func (l *loader) norm(name string) (n norm) {
	n.weight = l.normWeights(name, l.config.HiddenSize)
	if l.config.Norm == LayerNorm {
		n.bias = l.vector(name+".bias", l.config.HiddenSize)
	}
	return n
}

func (l *loader) normWeights(name string, n int) []float32 {
	v := l.vector(name+".weight", n)
	for i := range v {
		v[i] += l.config.NormOffset
	}
	return v
}

// Build makes a part of a model from tensors with the names of the family's Hugging Face checkpoints. It packs the
// weights on pool. It returns an error if a tensor is missing or has the wrong shape.
func Build(c Config, tensors *weights.Tensors, pool *parallel.Pool, part Part, opts ...Option) (*Model, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return build(&c, tensors, pool, false, part, opts)
}

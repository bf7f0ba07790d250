package gpu

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
)

// A Model is a model on a GPU. It implements engine.Device.
type Model struct {
	shape
	device *Device
	memory memories // of the weights

	embed, positions cuda.Pointer // positions is 0 if the model has no such table
	layers           []layer
	norm             norm
	head             linear
	expected         []kernels.Weights // in the files; set before there are weights

	converted, convertedTables map[string]bool // types of matrices, and of embeddings, that are not kept
}

type layer struct {
	attnNorm, attnPost, mlpNorm, mlpPost norm
	qNorm, kNorm                         cuda.Pointer
	sinks                                cuda.Pointer
	qkv, out, upProj, downProj           linear
}

// A norm has pointers to the weights and the bias of a norm. A pointer is 0 if the norm does not have them.
type norm struct{ weight, bias cuda.Pointer }

// A linear multiplies the same inputs by one or more matrices and concatenates the outputs.
type linear struct {
	parts []part
	out   int
	bias  cuda.Pointer // or 0
}

type part struct {
	kernels.Weights
	first int // of the linear's outputs
}

// formats maps types of weights in files to the formats that kernels have for them. Kernels can read weights of these
// types. Therefore Load does not convert them, except embeddings and matrices whose columns need padding.
var formats = map[weights.DType]kernels.WeightFormat{
	weights.Q8_0: kernels.Q8_0, weights.Q4_0: kernels.Q4_0, weights.MXFP4: kernels.MXFP4,
	weights.Q4_K: kernels.Q4_K, weights.Q5_K: kernels.Q5_K, weights.Q6_K: kernels.Q6_K,
}

// dtypes maps the types of activations to types of weights in files.
var dtypes = map[kernels.Type]weights.DType{kernels.F16: weights.F16, kernels.BF16: weights.BF16}

// CacheTypes are the types of keys and values, by their names in --kv-cache-dtype. The names auto, f16 and
// bf16 mean the type of activations.
var CacheTypes = map[string]kernels.CacheType{
	"auto": kernels.CacheAuto, "f16": kernels.CacheAuto, "bf16": kernels.CacheAuto, "fp8": kernels.CacheE4M3, "fp8_e4m3": kernels.CacheE4M3, "fp8_e5m2": kernels.CacheE5M2,
}

// NewModel returns a model without weights. Load puts the weights on the GPU. The parameter cache is the type
// of keys and values.
func (d *Device) NewModel(c *model.Config, cache kernels.CacheType) (*Model, error) {
	if err := Check(c); err != nil {
		return nil, err
	}
	return &Model{shape: shapeOf(c, kernels.F16, cache), device: d, converted: map[string]bool{}, convertedTables: map[string]bool{}}, nil
}

// types are the types of activations, by their names.
var types = map[string]kernels.Type{"f16": kernels.F16, "bf16": kernels.BF16}

// Load puts the weights on the GPU, layer by layer as they are read. The goroutines of pool convert them. The type of
// activations, dtype, is f16, bf16 or auto. With auto it is bf16 if the weights are BF16. It is also bf16 if the model
// has norms around attention and MLP (Gemma), because its activations exceed the range of F16. After each layer, Load
// calls progress with the number of layers sent to the GPU so far and the number of all layers.
func (m *Model) Load(s *model.Sources, dtype string, pool *parallel.Pool, progress func(layers, all int)) error {
	kind, ok := types[dtype]
	switch {
	case dtype == "auto" && (m.NormPlace == model.NormAround || s.Layers[0].QKV.Parts[0].DType == weights.BF16):
		m.kind = kernels.BF16
	case dtype == "auto":
		m.kind = kernels.F16
	case !ok:
		return unsupported("activations of the type %s; f16, bf16 and auto are possible", dtype)
	default:
		m.kind = kind
	}
	u := &upload{Model: m, pool: pool, launcher: m.device.launcher()}
	err := m.device.context.Do(func() error {
		u.load(s, progress)
		return errors.Join(u.err, u.stream.Synchronize(), u.close())
	})
	m.memory = u.allocated
	if err != nil {
		return errors.Join(err, m.Close())
	}
	return nil
}

// load sends all weights.
func (u *upload) load(s *model.Sources, progress func(layers, all int)) {
	u.embed = u.table(s.Embed)
	if s.Positions != nil {
		u.positions = u.table(s.Positions) + cuda.Pointer(u.PositionOffset*u.HiddenSize*u.kind.Bytes())
	}
	for i := range s.Layers {
		if u.err != nil {
			return
		}
		y := &s.Layers[i]
		u.layers = append(u.layers, layer{
			attnNorm: u.normOf(y.AttnNorm), attnPost: u.normOf(y.AttnPost), mlpNorm: u.normOf(y.MLPNorm), mlpPost: u.normOf(y.MLPPost),
			qNorm: u.headNorm(y.QNorm), kNorm: u.headNorm(y.KNorm), sinks: u.floats(y.Sinks),
			qkv: u.linear(&y.QKV, padding{outputs: true}), out: u.linear(&y.Out, padding{columns: true}),
			upProj: u.gatedLinear(&y.Up), downProj: u.linear(&y.Down, padding{}),
		})
		progress(i+1, len(s.Layers))
	}
	u.Model.norm = u.normOf(s.Norm)
	u.head = u.linear(&s.Head, padding{})
}

// Type names the type of activations.
func (m *Model) Type() string { return m.kind.String() }

// Bytes returns the GPU memory of the weights.
func (m *Model) Bytes() int {
	n := 0
	for _, w := range m.memory {
		n += w.Size()
	}
	return n
}

// Notes describe how the weights differ from those in the files.
func (m *Model) Notes() (notes []string) {
	var converted []string
	for _, c := range []struct {
		name  string
		types map[string]bool
	}{{"weights", m.converted}, {"embeddings", m.convertedTables}} {
		if len(c.types) > 0 {
			converted = append(converted, c.name+" in "+strings.Join(slices.Sorted(maps.Keys(c.types)), ", "))
		}
	}
	if len(converted) > 0 {
		notes = append(notes, fmt.Sprintf("%s are kept as %v", strings.Join(converted, " and "), dtypes[m.kind]))
	}
	if m.size != m.HeadDim {
		notes = append(notes, fmt.Sprintf("heads of %d elements are padded to %d", m.HeadDim, m.size))
	}
	return notes
}

// Close frees the memory.
func (m *Model) Close() error {
	err := m.memory.close()
	m.memory = nil
	return err
}

package model

import (
	"llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/serving/model/weights"
)

// Sources are the weights of a model, still in its files, for a device that packs them in its own way.
type Sources struct {
	Embed     *weights.Tensor // [tokens][hidden]
	Positions *weights.Tensor // nil if positions are rotations
	Layers    []LayerSources
	Norm      NormSource
	Head      LinearSource
}

// LayerSources are the weights of a layer without experts.
type LayerSources struct {
	AttnNorm, AttnPost, MLPNorm, MLPPost NormSource // without weights if the layer has no such norm
	QNorm, KNorm                         []float32
	Sinks                                []float32
	QKV, Out, Up, Down                   LinearSource // Up is preceded by the gate if there is one
}

// A NormSource has the weights and the bias of a norm, each nil if there is none. Config.NormOffset is already added
// to the weights.
type NormSource struct{ Weight, Bias []float32 }

// A LinearSource has one or more matrices with the same inputs. Their outputs are concatenated. It also has the bias of
// all outputs, or nil.
type LinearSource struct {
	Parts []MatrixSource
	Bias  []float32
}

// A MatrixSource is a matrix with weights of one type, [Out][In].
type MatrixSource struct {
	DType   weights.DType
	Out, In int
	rows    *stack
}

// Row writes the weights of an output to dst.
func (m *MatrixSource) Row(i int, dst []float32) { m.rows.Row(i, dst) }

// Raw returns the bytes of the weights of output i in the file. ok is false if these are not a whole row of a tensor of
// the file.
func (m *MatrixSource) Raw(i int) (row []byte, ok bool) {
	c, rowOfCut := m.rows.find(i)
	t, ok := c.source.(*weights.Tensor)
	if !ok || t.Combined() || c.cols.len() < c.width {
		return nil, false
	}
	return t.Raw(c.row(rowOfCut)), true
}

// Release tells the system that the memory of the outputs [start, end) in the file is not needed any more.
func (m *MatrixSource) Release(start, end int) { m.rows.release(start, end) }

// LoadOn is an Option for a model whose weights are on a device and not in this process. load gets the weights while
// the files are open, and copies them to the device.
func LoadOn(load func(c *Config, s *Sources) error) Option {
	return func(l *loader) { l.device = load }
}

// inFile returns a matrix that has a type and a size but no weights. It does not read the weights of src from the file.
// If l.shapes is false, it stores a copy of src in l.kept, from which the function given to LoadOn reads the weights.
func (l *loader) inFile(kind matrix.Type, src *stack) *matrix.Matrix {
	m := &matrix.Matrix{Type: kind, Out: src.rows(), In: src.cuts[0].cols.len(), Block: src.cuts[0].block}
	if !l.shapes {
		kept := *src
		l.kept[m] = &kept
	}
	return m
}

func (l *loader) sources(m *Model) *Sources {
	linear := func(lin *linear) (s LinearSource) {
		s.Bias = lin.bias
		for _, p := range lin.parts {
			rows := l.kept[p]
			s.Parts = append(s.Parts, MatrixSource{rows.tensors[0].DType, p.Out, p.In, rows})
		}
		return s
	}
	norm := func(n norm) NormSource { return NormSource{n.weight, n.bias} }
	s := &Sources{Norm: norm(m.norm), Head: linear(&m.head)}
	if m.embed != nil {
		s.Embed = m.embed.tensor
	} else {
		s.Embed = l.kept[m.head.parts[0]].tensors[0]
	}
	if m.positions != nil {
		s.Positions = m.positions.tensor
	}
	for i := range m.layers {
		y := &m.layers[i]
		s.Layers = append(s.Layers, LayerSources{
			AttnNorm: norm(y.attnNorm), AttnPost: norm(y.attnPost), MLPNorm: norm(y.mlpNorm), MLPPost: norm(y.mlpPost),
			QNorm: y.qNorm, KNorm: y.kNorm, Sinks: y.sinks,
			QKV: linear(&y.qkv), Out: linear(&y.out), Up: linear(&y.mlp.upProj), Down: linear(&y.mlp.downProj),
		})
	}
	return s
}

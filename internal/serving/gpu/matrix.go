package gpu

import (
	"encoding/binary"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
)

// padding says which dimensions of a matrix get additional zeros if heads are longer on the GPU than in the file. The
// field outputs is true if the outputs of the matrix are the elements of heads. The field columns is true if its
// columns are the elements of heads.
type padding struct{ outputs, columns bool }

// rows writes the rows of a matrix in the form in which the GPU gets them: as in the file, or rounded to the
// activations' type.
type rows struct {
	matrix *model.MatrixSource
	kind   kernels.Type
	raw    bool
	bytes  int // of a row
	padding
	head, size int // elements of a head in the file, and with padding
}

// write fills data with consecutive rows of the padded matrix. The parameter start is the index of the first row.
func (r *rows) write(start int, data []byte) {
	values := make([]float32, r.matrix.In)
	for i := range len(data) / r.bytes {
		index, dst := start+i, data[i*r.bytes:(i+1)*r.bytes]
		if r.outputs {
			if index%r.size >= r.head {
				clear(dst)
				continue
			}
			index = index/r.size*r.head + index%r.size
		}
		if r.raw {
			row, _ := r.matrix.Raw(index)
			copy(dst, row)
			continue
		}
		r.matrix.Row(index, values)
		if !r.columns {
			encode(r.kind, values, dst)
			continue
		}
		clear(dst)
		for h := range len(values) / r.head {
			encode(r.kind, values[h*r.head:(h+1)*r.head], dst[h*r.size*r.kind.Bytes():])
		}
	}
}

func encode(kind kernels.Type, values []float32, dst []byte) {
	for i, v := range values {
		binary.LittleEndian.PutUint16(dst[2*i:], round(kind, v))
	}
}

// linear sends the matrices and the bias of a linear.
func (u *upload) linear(l *model.LinearSource, p padding) (lin linear) {
	return u.linearOf(l, p, false)
}

// gatedLinear sends the matrices of gates and of what they multiply. If they are one matrix without bias, and products
// can compute the activation, they are stored for that.
func (u *upload) gatedLinear(l *model.LinearSource) linear {
	function := functions[u.Activation]
	gated := len(l.Parts) == 1 && len(l.Bias) == 0 && l.Parts[0].Out%32 == 0 && (function == kernels.SiLUAndMul || function == kernels.GELUTanhAndMul)
	return u.linearOf(l, padding{}, gated)
}

func (u *upload) linearOf(l *model.LinearSource, p padding, gated bool) (lin linear) {
	if u.size == u.HeadDim {
		p = padding{}
	}
	for i := range l.Parts {
		if lin.out%unit != 0 {
			u.try(func() error {
				return unsupported("a matrix of %d outputs is followed by another one; the number must be a multiple of %d", lin.out, unit)
			})
		}
		m := u.matrix(&l.Parts[i], p, gated)
		lin.parts = append(lin.parts, part{m, lin.out})
		lin.out += m.Outputs
	}
	bias := l.Bias
	if p.outputs {
		bias = u.padHeads(bias)
	}
	lin.bias = u.vector(bias)
	return lin
}

// matrix sends and packs a matrix.
func (u *upload) matrix(m *model.MatrixSource, p padding, gated bool) kernels.Weights {
	if u.err != nil {
		return kernels.Weights{}
	}
	w := kernels.Weights{Type: u.kind, Outputs: m.Out, Columns: m.In, Gated: gated}
	if p.outputs {
		w.Outputs = m.Out / u.HeadDim * u.size
	}
	if p.columns {
		w.Columns = m.In / u.HeadDim * u.size
	}
	r := rows{matrix: m, kind: u.kind, bytes: w.Columns * u.kind.Bytes(), padding: p, head: u.HeadDim, size: u.size}
	if raw, ok := m.Raw(0); ok && !p.columns {
		format, quantized := formats[m.DType]
		if quantized {
			w.Format, r.bytes = format, len(raw)
		}
		r.raw = quantized || m.DType == dtypes[u.kind]
	}
	if !r.raw && m.DType != dtypes[u.kind] {
		u.converted[m.DType.String()] = true
	}
	memory := u.alloc(w.PackedBytes())
	if u.err != nil {
		return w
	}
	w.Packed = memory.Pointer()
	u.pieces(w.Outputs, r.bytes, kernels.PackedOutputs, r.write, func(s *slot, start, n int) error {
		return kernels.PackWeights{Weights: w, Rows: s.rows.Pointer(), Start: start, Count: n}.Launch(u.set, u.stream)
	})
	m.Release(0, m.Out)
	return w
}

// table sends a matrix whose rows are looked up.
func (u *upload) table(t *weights.Tensor) cuda.Pointer {
	size := t.Cols * u.kind.Bytes()
	m := u.alloc(t.Rows * size)
	raw := !t.Combined() && t.DType == dtypes[u.kind]
	if !raw {
		u.convertedTables[t.DType.String()] = true
	}
	u.pieces(t.Rows, size, 1, func(start int, data []byte) {
		values := make([]float32, t.Cols)
		for i := range len(data) / size {
			if raw {
				copy(data[i*size:], t.Raw(start+i))
				continue
			}
			t.Row(start+i, values)
			encode(u.kind, values, data[i*size:])
		}
	}, func(s *slot, start, n int) error { return u.stream.Copy(m, start*size, s.rows, 0, n*size) })
	return m.Pointer()
}

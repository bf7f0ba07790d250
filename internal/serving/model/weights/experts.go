package weights

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"llmmemory/internal/serving/model/matrix"
)

// In gpt-oss, a parameter has a matrix of each expert of a layer. Below, NAME is the name of this parameter, such as
// model.layers.0.mlp.experts.down_proj. A file has the parameter in one of two forms:
//
//   - the tensors NAME_blocks and NAME_scales, in MXFP4
//   - the tensor NAME, which has the shape [experts, inputs, outputs]
//
// The tensor NAME_bias has the bias. This package makes one tensor NAME.weight from either form, and renames NAME_bias
// to NAME.bias, because the names in other models end in .weight and .bias. NAME.weight has the matrices of the experts
// one after the other.

// readMXFP4 reads blocks of the shape [..., outputs, groups, 16] and scales of the shape [..., outputs, groups]. The 16
// bytes of a group are 32 numbers of 4 bits; even inputs are in the low halves. The scale of a group is an exponent
// with a bias of 127.
func (s *scheme) readMXFP4(t *Tensors, base string) (*Tensor, error) {
	blocks, scales := t.others[base+"_blocks"], t.others[base+"_scales"]
	n := len(blocks.Shape) - 1
	if n < 2 || blocks.Shape[n] != 16 || blocks.DType != "U8" {
		return nil, damaged("it is %s; U8 in blocks of 16 is expected", t.DescribeOther(base+"_blocks"))
	}
	rows, groups := uint64(1), blocks.Shape[n-1]
	for _, v := range blocks.Shape[:n-1] {
		if v > math.MaxInt32 || rows > math.MaxInt32 {
			return nil, damaged("it is %s", t.DescribeOther(base+"_blocks"))
		}
		rows *= v
	}
	have := uint64(len(blocks.data)) / 16
	if groups == 0 || groups > have || rows != have/groups || rows*groups*16 != uint64(len(blocks.data)) {
		return nil, damaged("it is %s and has %d bytes", t.DescribeOther(base+"_blocks"), len(blocks.data))
	}
	if !slices.Equal(scales.Shape, blocks.Shape[:n]) || scales.DType != "U8" || rows*groups != uint64(len(scales.data)) {
		return nil, damaged("its scales are %s; U8 of shape %v is expected", cmp.Or(t.DescribeOther(base+"_scales"), "missing"),
			blocks.Shape[:n])
	}
	m := &quantized{rows: int(rows), cols: int(groups) * 32, dtype: MXFP4, group: 32}
	m.integers = func(row int, q []int8) {
		for i, b := range blocks.data[row*m.cols/2:][:m.cols/2] {
			q[2*i], q[2*i+1] = int8(b&15), int8(b>>4)
		}
	}
	m.scale = func(row, group int) matrix.Scale {
		return matrix.Scale{D: mxScale(scales.data[row*m.cols/32+group]), Factor: 1}
	}
	return m.tensor(base+".weight", blocks.data), nil
}

// renameExperts makes the names of the tensors of gpt-oss's experts end as in other models: NAME.weight and NAME.bias.
// If a parameter has floats, renameExperts makes NAME.weight from its tensor NAME. If a parameter is in MXFP4,
// readMXFP4 has already made NAME.weight.
func (t *Tensors) renameExperts() error {
	for _, name := range sortedKeys(t.others) {
		l := t.others[name]
		d, ok := floatTypes[l.DType]
		if !ok || len(l.Shape) != 3 || !strings.HasSuffix(name, ".experts.gate_up_proj") &&
			!strings.HasSuffix(name, ".experts.down_proj") {
			continue
		}
		file, err := makeTensor(name, d, l.Shape, l.data)
		if err != nil {
			return err
		}
		e := &transposedExperts{file, int(l.Shape[1]), int(l.Shape[2])}
		t.byName[name+".weight"] = &Tensor{Name: name, DType: d, Rows: file.Rows / e.inputs * e.outputs, Cols: e.inputs, data: l.data,
			mapped: true, source: e}
	}
	for _, name := range t.Names() {
		base, ok := strings.CutSuffix(name, "_bias")
		if ok && t.byName[base+".weight"] != nil && strings.Contains(name, ".experts.") {
			t.byName[base+".bias"] = t.byName[name]
			delete(t.byName, name)
		}
	}
	return nil
}

// transposedExperts has consecutive matrices of the shape [outputs, inputs]. Their rows are the columns of the matrices
// in the file.
type transposedExperts struct {
	file            *Tensor
	inputs, outputs int
}

func (e *transposedExperts) Row(i int, dst []float32) {
	first := i / e.outputs * e.inputs
	for k := range e.inputs {
		dst[k] = e.file.element(first+k, i%e.outputs)
	}
}

// Stored returns experts as the file has them: if their matrices are [outputs, inputs] and not [inputs, outputs], their
// rows are outputs already. It returns all other tensors as they are.
func (t *Tensor) Stored() *Tensor {
	if e, ok := t.source.(*transposedExperts); ok {
		return e.file
	}
	return t
}

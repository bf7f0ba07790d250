package weights

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"llmmemory/internal/half"
	"llmmemory/internal/model/matrix"
)

// A scheme is quantization_config of config.json, as far as it says how weights are read.
type scheme struct {
	Method    string `json:"quant_method"`
	Bits      int    `json:"bits"`
	GroupSize int    `json:"group_size"`
	DescAct   bool   `json:"desc_act"`

	CheckpointFormat string `json:"checkpoint_format"` // GPTQ: in gptq, zeros are stored less 1, in gptq_v2 as they are
	Version          string `json:"version"`           // AWQ: in gemm, integers of 8 outputs lie in a word
	Fmt              string `json:"fmt"`               // FP8
	BlockSize        []int  `json:"weight_block_size"` // FP8: outputs and inputs that share a scale

	Format string                      `json:"format"` // compressed-tensors
	Groups map[string]compressedGroups `json:"config_groups"`
}

type compressedGroups struct {
	Format  string `json:"format"`
	Weights struct {
		Bits      int             `json:"num_bits"`
		Type      string          `json:"type"`
		Symmetric *bool           `json:"symmetric"`
		Strategy  string          `json:"strategy"`
		GroupSize int             `json:"group_size"`
		Block     []int           `json:"block_structure"`
		ActOrder  json.RawMessage `json:"actorder"`
	} `json:"weights"`
}

// combine makes matrices of the tensors that config.json of a folder says are quantized: NAME.weight of NAME.qweight
// and its scales and zeros, or of its own numbers and scales. Which of the matrices are quantized shows in the tensors.
func (t *Tensors) combine(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var config struct {
		Quantization *scheme `json:"quantization_config"`
		Older        *scheme `json:"compression_config"` // of compressed-tensors
	}
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		return fmt.Errorf("config.json: %w", err)
	}
	s := cmp.Or(config.Quantization, config.Older)
	if s == nil {
		return nil
	}
	t.scheme = s
	read, suffix, err := s.reader()
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(t.leftOut) {
		base, ok := strings.CutSuffix(name, suffix)
		if !ok || suffix == ".weight" && t.leftOut[name].DType != "F8_E4M3" {
			continue
		}
		m, err := read(t, base)
		if err == nil {
			err = m.check(base)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		t.byName[base+".weight"] = m
	}
	return nil
}

// A combiner makes the matrix of a name.
type combiner func(t *Tensors, base string) (*Tensor, error)

// reader says how matrices are read, and by which end of its name one of the tensors of a matrix is found.
func (s *scheme) reader() (read combiner, suffix string, err error) {
	refuse := func(format string, args ...any) (combiner, string, error) {
		return nil, "", fmt.Errorf("%w: quantization_config: "+format, append([]any{ErrUnsupported}, args...)...)
	}
	switch s.Method {
	case "fp8":
		if s.Fmt != "" && s.Fmt != "e4m3" {
			return refuse("fp8 with fmt %q; e4m3 is read", s.Fmt)
		}
		return s.readFP8, ".weight", nil
	case "gptq":
		if s.Bits != 4 {
			return refuse("gptq with %d bits; 4 are read", s.Bits)
		}
		if f := s.CheckpointFormat; f != "" && f != "gptq" && f != "gptq_v2" {
			return refuse("gptq with checkpoint_format %q; gptq and gptq_v2 are read", f)
		}
		return s.readGPTQ, ".qweight", nil
	case "awq":
		if s.Bits != 4 {
			return refuse("awq with %d bits; 4 are read", s.Bits)
		}
		if v := strings.ToLower(s.Version); v != "" && v != "gemm" {
			return refuse("awq with version %q; gemm is read", s.Version)
		}
		return s.readAWQ, ".qweight", nil
	case "mxfp4":
		return s.readMXFP4, "_blocks", nil
	case "compressed-tensors":
		return s.compressed()
	}
	return refuse("quant_method is %q; fp8, gptq, awq, mxfp4 and compressed-tensors are read, and quantized models as GGUF",
		s.Method)
}

// compressed reads a config of compressed-tensors, of which all groups must have the same kind of weights.
func (s *scheme) compressed() (read combiner, suffix string, err error) {
	refuse := func(format string, args ...any) (combiner, string, error) {
		return nil, "", fmt.Errorf("%w: quantization_config: compressed-tensors "+format,
			append([]any{ErrUnsupported}, args...)...)
	}
	for _, name := range sortedKeys(s.Groups) {
		g := s.Groups[name]
		format := g.Format
		if format == "" {
			format = s.Format
		}
		w := g.Weights
		var this string
		switch {
		case (format == "float-quantized" || format == "naive-quantized") && w.Type == "float" && w.Bits == 8:
			this, s.BlockSize = ".weight", w.Block
			read = s.readFP8
		case format == "pack-quantized" && w.Type == "int" && w.Bits == 4:
			switch order := string(w.ActOrder); order { // weight, once static, leaves inputs where they are
			case "", "null", "false", `"static"`, `"weight"`:
			default:
				return refuse("with actorder %s is not read", order)
			}
			this, s.GroupSize = ".weight_packed", w.GroupSize
			read = s.readPacked
		default:
			return refuse("with format %q and weights of type %q of %d bits; float-quantized with 8 bits and pack-quantized "+
				"integers of 4 bits are read", format, w.Type, w.Bits)
		}
		if suffix != "" && suffix != this {
			return refuse("with groups of different formats is not read")
		}
		suffix = this
	}
	if suffix == "" {
		return refuse("without config_groups")
	}
	return read, suffix, nil
}

// words are a matrix of 32-bit words.
type words struct {
	data       []byte
	rows, cols int
}

func (w *words) at(row, col int) uint32 {
	return binary.LittleEndian.Uint32(w.data[(row*w.cols+col)*4:])
}

// words finds a matrix of words; ok is false if it is missing.
func (t *Tensors) words(name string) (w words, ok bool, err error) {
	l, ok := t.leftOut[name]
	if !ok {
		return w, false, nil
	}
	if l.DType != "I32" || len(l.Shape) != 2 || l.Shape[0] > 1<<31 || l.Shape[1] > 1<<31 ||
		l.Shape[0]*l.Shape[1]*4 != uint64(len(l.data)) || len(l.data) == 0 {
		return w, false, fmt.Errorf("%w: tensor %q is %s; a matrix of I32 is expected", ErrFormat, name, t.LeftOut(name))
	}
	return words{l.data, int(l.Shape[0]), int(l.Shape[1])}, true, nil
}

// numbers finds a matrix of numbers as a table; a tensor of one number has one row and one column.
func (t *Tensors) numbers(name string) (*table, error) {
	if v := t.byName[name]; v != nil {
		return &table{v.Vector(), v.Rows, v.Cols}, nil
	}
	if l, ok := t.leftOut[name]; ok && len(l.Shape) == 0 {
		if d, ok := floatTypes[l.DType]; ok {
			v, err := makeTensor(name, d, []uint64{1}, l.data)
			if err != nil {
				return nil, err
			}
			return &table{v.Vector(), 1, 1}, nil
		}
	}
	if what := t.LeftOut(name); what != "" {
		return nil, fmt.Errorf("%w: tensor %q is %s; numbers are expected", ErrFormat, name, what)
	}
	return nil, fmt.Errorf("%w: tensor %q is missing", ErrFormat, name)
}

// A table has the scales of a matrix.
type table struct {
	values     []float32
	rows, cols int
}

// A quantized matrix writes the integers of a row, and the scale and zero of an output's group.
type quantized struct {
	rows, cols int
	dtype      DType
	group      int // columns that share a scale
	integers   func(row int, q []int8)
	scale      func(row, group int) matrix.Scale
}

func (m *quantized) Quantized(i int, q []int8, scales []matrix.Scale) {
	m.integers(i, q)
	for b := range scales {
		scales[b] = m.scale(i, b*layouts[m.dtype].scaled/m.group)
	}
}

func (m *quantized) Row(i int, dst []float32) {
	q := make([]int8, m.cols)
	m.integers(i, q)
	var s matrix.Scale
	for k, v := range q {
		if k%m.group == 0 {
			s = m.scale(i, k/m.group)
		}
		dst[k] = s.Weight(v, layouts[m.dtype].packed.Table())
	}
}

func (m *quantized) tensor(name string, data []byte) *Tensor {
	return &Tensor{Name: name, DType: m.dtype, Rows: m.rows, Cols: m.cols, data: data, mapped: true, source: m}
}

// check refuses what no matrix keeps.
func (t *Tensor) check(name string) error {
	unit := layouts[t.DType].scaled
	if m := t.source.(*quantized); t.Cols%unit != 0 || m.group%unit != 0 && m.group < t.Cols {
		return fmt.Errorf("%w: %d inputs in groups of %d; multiples of 32 are read", ErrUnsupported, t.Cols, m.group)
	}
	return nil
}

// groups4 checks scales, which are of rows × cols weights, and decides how groups are kept: exactly, whatever their
// scales are.
func (s *scheme) groups4(rows, cols int, scales *table, groups, outputs int) (*quantized, error) {
	m := &quantized{rows: rows, cols: cols, group: s.GroupSize, dtype: Groups4}
	if m.group <= 0 {
		m.group = cols
	}
	if want := (cols + m.group - 1) / m.group; groups != want || outputs != rows {
		return nil, fmt.Errorf("%w: scales of %d groups of %d outputs for %d × %d weights in groups of %d", ErrFormat,
			groups, outputs, rows, cols, m.group)
	}
	if m.group%64 != 0 || cols%64 != 0 {
		m.dtype = Groups4Free
	}
	for _, v := range scales.values {
		if half.FromF16(half.ToF16(v)) != v {
			m.dtype = Groups4Free
		}
	}
	return m, nil
}

// scaleOf is the scale of integers less zero.
func scaleOf(d float32, zero int) matrix.Scale {
	return matrix.Scale{D: d, By: 1, Min: d, MinBy: int8(-zero)}
}

// readGPTQ reads words of 8 inputs of an output, and of the zeros of 8 outputs.
func (s *scheme) readGPTQ(t *Tensors, base string) (*Tensor, error) {
	q, zeros, scales, err := t.parts(base)
	if err != nil {
		return nil, err
	}
	m, err := s.groups4(q.cols, q.rows*8, scales, scales.rows, scales.cols)
	if err != nil {
		return nil, err
	}
	if zeros.rows != scales.rows || zeros.cols*8 != m.rows {
		return nil, fmt.Errorf("%w: zeros of %d × %d words", ErrFormat, zeros.rows, zeros.cols)
	}
	order, ok := t.leftOut[base+".g_idx"]
	if !ok && s.DescAct {
		return nil, fmt.Errorf("%w: tensor %q is missing", ErrFormat, base+".g_idx")
	}
	for k := range m.cols {
		if ok && (len(order.data) != m.cols*4 || binary.LittleEndian.Uint32(order.data[k*4:]) != uint32(k/m.group)) {
			return nil, fmt.Errorf("%w: g_idx orders inputs by their size (desc_act), which is not read", ErrUnsupported)
		}
	}
	less := 1
	if s.CheckpointFormat == "gptq_v2" {
		less = 0
	}
	m.integers = func(row int, to []int8) {
		for k := range to {
			to[k] = int8(q.at(k/8, row) >> (k % 8 * 4) & 15)
		}
	}
	m.scale = func(row, group int) matrix.Scale {
		return scaleOf(scales.values[group*scales.cols+row], int(zeros.at(group, row/8)>>(row%8*4)&15)+less)
	}
	return m.tensor(base+".weight", q.data), nil
}

// parts are the tensors of GPTQ and AWQ.
func (t *Tensors) parts(base string) (q, zeros words, scales *table, err error) {
	if q, _, err = t.words(base + ".qweight"); err != nil {
		return q, zeros, nil, err
	}
	zeros, ok, err := t.words(base + ".qzeros")
	if err == nil && !ok {
		err = fmt.Errorf("%w: tensor %q is missing", ErrFormat, base+".qzeros")
	}
	if err != nil {
		return q, zeros, nil, err
	}
	scales, err = t.numbers(base + ".scales")
	return q, zeros, scales, err
}

// awqShifts are where a word of AWQ has its 8 outputs.
var awqShifts = [8]int{0, 16, 4, 20, 8, 24, 12, 28}

// readAWQ reads words of 8 outputs of an input, and of their zeros.
func (s *scheme) readAWQ(t *Tensors, base string) (*Tensor, error) {
	q, zeros, scales, err := t.parts(base)
	if err != nil {
		return nil, err
	}
	m, err := s.groups4(q.cols*8, q.rows, scales, scales.rows, scales.cols)
	if err != nil {
		return nil, err
	}
	if zeros.rows != scales.rows || zeros.cols != q.cols {
		return nil, fmt.Errorf("%w: zeros of %d × %d words", ErrFormat, zeros.rows, zeros.cols)
	}
	m.integers = func(row int, to []int8) {
		for k := range to {
			to[k] = int8(q.at(k, row/8) >> awqShifts[row%8] & 15)
		}
	}
	m.scale = func(row, group int) matrix.Scale {
		return scaleOf(scales.values[group*scales.cols+row], int(zeros.at(group, row/8)>>awqShifts[row%8]&15))
	}
	return m.tensor(base+".weight", q.data), nil
}

// readPacked reads words of 8 inputs of an output, less 8, and of the zeros of 8 outputs; without zeros they are 8.
func (s *scheme) readPacked(t *Tensors, base string) (*Tensor, error) {
	q, _, err := t.words(base + ".weight_packed")
	if err != nil {
		return nil, err
	}
	scales, err := t.numbers(base + ".weight_scale")
	if err != nil {
		return nil, err
	}
	m, err := s.groups4(q.rows, q.cols*8, scales, scales.cols, scales.rows)
	if err != nil {
		return nil, err
	}
	zeros, asymmetric, err := t.words(base + ".weight_zero_point")
	if err != nil {
		return nil, err
	}
	if asymmetric && (zeros.rows != (m.rows+7)/8 || zeros.cols != scales.cols) {
		return nil, fmt.Errorf("%w: zeros of %d × %d words", ErrFormat, zeros.rows, zeros.cols)
	}
	if _, ok := t.leftOut[base+".weight_g_idx"]; ok {
		return nil, fmt.Errorf("%w: weight_g_idx orders inputs by their size (actorder), which is not read", ErrUnsupported)
	}
	m.integers = func(row int, to []int8) {
		for k := range to {
			to[k] = int8(q.at(row, k/8) >> (k % 8 * 4) & 15)
		}
	}
	m.scale = func(row, group int) matrix.Scale {
		zero := 8
		if asymmetric {
			zero = int(zeros.at(row/8, group) >> (row % 8 * 4) & 15)
		}
		return scaleOf(scales.values[row*scales.cols+group], zero)
	}
	return m.tensor(base+".weight", q.data), nil
}

// largestScale is what a scale of FP8 must be below.
const largestScale = 256

// readFP8 reads numbers of 8 bits with one scale, one of each output, or one of each block of outputs and inputs.
func (s *scheme) readFP8(t *Tensors, base string) (*Tensor, error) {
	l := t.leftOut[base+".weight"]
	if len(l.Shape) != 2 || l.Shape[0] == 0 || l.Shape[0] > 1<<31 || l.Shape[1] > 1<<31 ||
		l.Shape[0]*l.Shape[1] != uint64(len(l.data)) {
		return nil, fmt.Errorf("%w: it is %s", ErrFormat, t.LeftOut(base+".weight"))
	}
	name := base + ".weight_scale"
	if len(s.BlockSize) > 0 && s.Method == "fp8" {
		name = base + ".weight_scale_inv"
	}
	scales, err := t.numbers(name)
	if err != nil {
		return nil, err
	}
	m := &quantized{rows: int(l.Shape[0]), cols: int(l.Shape[1]), dtype: FP8}
	m.group = m.cols
	outs := 1 // that share a scale
	switch n := len(scales.values); {
	case len(s.BlockSize) == 2 && s.BlockSize[0] > 0 && s.BlockSize[1] > 0:
		outs, m.group = s.BlockSize[0], s.BlockSize[1]
		if scales.rows != (m.rows+outs-1)/outs || scales.cols != (m.cols+m.group-1)/m.group {
			return nil, fmt.Errorf("%w: %d × %d scales of blocks of %v for %d × %d weights", ErrFormat, scales.rows, scales.cols,
				s.BlockSize, m.rows, m.cols)
		}
	case n == 1:
		outs = m.rows
	case n != m.rows:
		return nil, fmt.Errorf("%w: %d scales for %d outputs", ErrFormat, n, m.rows)
	}
	for _, v := range scales.values {
		if !(math.Abs(float64(v)) < largestScale) {
			return nil, fmt.Errorf("%w: a scale of %v; they must be below %d", ErrUnsupported, v, largestScale)
		}
	}
	groups := (m.cols + m.group - 1) / m.group
	m.integers = func(row int, to []int8) {
		for k, v := range l.data[row*m.cols:][:m.cols] {
			to[k] = int8(v)
		}
	}
	m.scale = func(row, group int) matrix.Scale {
		return matrix.Scale{D: scales.values[row/outs*groups+group], By: 1}
	}
	return m.tensor(base+".weight", l.data), nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

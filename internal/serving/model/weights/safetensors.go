package weights

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"llmmemory/internal/serving/model/pyjson"
)

// Tensors has the tensors of a model by name. Their data is in one or more mapped files.
type Tensors struct {
	byName map[string]*Tensor
	others map[string]otherTensor
	scheme *scheme // nil if nothing is quantized
	files  []*mapped
}

// Get returns the tensor with a name, or nil.
func (t *Tensors) Get(name string) *Tensor { return t.byName[name] }

// An otherTensor is a tensor that is not a vector or matrix of floats. It may be part of a quantized matrix.
type otherTensor struct {
	entry
	data []byte
}

// DescribeOther returns the type and the shape of a tensor, for an error message. The tensor is one that is not a
// vector or matrix of floats. If no such tensor has the given name, DescribeOther returns "".
func (t *Tensors) DescribeOther(name string) string {
	l, ok := t.others[name]
	if !ok {
		return ""
	}
	return fmt.Sprintf("of type %.20s and shape %.40s", l.DType, fmt.Sprint(l.Shape))
}

// Names returns all names in order.
func (t *Tensors) Names() []string { return sortedKeys(t.byName) }

// OtherNames returns in order the names of the tensors that DescribeOther describes.
func (t *Tensors) OtherNames() []string { return sortedKeys(t.others) }

// Close unmaps the files. The tensors must not be read afterwards.
func (t *Tensors) Close() error {
	var err error
	for _, f := range t.files {
		err = errors.Join(err, f.close())
	}
	return err
}

// OpenSafetensors maps model.safetensors in a folder, or the shards that model.safetensors.index.json names. It
// makes one tensor from the tensors of a quantized matrix.
func OpenSafetensors(dir string) (*Tensors, error) {
	names := []string{"model.safetensors"}
	index, err := os.ReadFile(filepath.Join(dir, "model.safetensors.index.json"))
	if err == nil {
		names, err = shards(index)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
		if _, missing := os.Stat(filepath.Join(dir, names[0])); errors.Is(missing, fs.ErrNotExist) {
			return nil, noSafetensors(dir)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("model.safetensors.index.json: %w", err)
	}
	t := &Tensors{byName: map[string]*Tensor{}}
	for _, name := range names {
		if err := t.addSafetensors(filepath.Join(dir, name)); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", name, err), t.Close())
		}
	}
	err = t.combine(dir)
	if err == nil {
		err = t.renameExperts()
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// OpenSafetensorsFile maps one file. It does not make tensors from others.
func OpenSafetensorsFile(path string) (*Tensors, error) {
	t := &Tensors{byName: map[string]*Tensor{}}
	if err := t.addSafetensors(path); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", filepath.Base(path), err), t.Close())
	}
	return t, nil
}

// noSafetensors returns the error for a folder without safetensors. If the folder has weights in PyTorch's format,
// the error says so.
func noSafetensors(dir string) error {
	torch, _ := filepath.Glob(filepath.Join(dir, "pytorch_model*.bin")) // the pattern is well-formed
	if len(torch) > 0 {
		return unsupported("%s is not read; save the model as safetensors", filepath.Base(torch[0]))
	}
	return fmt.Errorf("neither model.safetensors nor model.safetensors.index.json is in %s", dir)
}

// shards returns the names of the files with weights that an index lists. They must be in the folder of the index.
func shards(index []byte) ([]string, error) {
	var parsed struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := pyjson.Unmarshal(index, &parsed); err != nil {
		return nil, damaged("%w", err)
	}
	var names []string
	for tensor, file := range parsed.WeightMap {
		if file != filepath.Base(file) || file == "." || file == ".." {
			return nil, damaged("tensor %q is in %q, which is not beside the index", tensor, file)
		}
		names = append(names, file)
	}
	if len(names) == 0 {
		return nil, damaged("no tensors in weight_map")
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (t *Tensors) addSafetensors(path string) error {
	f, err := mapFile(path)
	if err != nil {
		return err
	}
	t.files = append(t.files, f)
	return t.parseSafetensors(f.data)
}

type entry struct {
	DType   string   `json:"dtype"`
	Shape   []uint64 `json:"shape"`
	Offsets []uint64 `json:"data_offsets"`
}

// parseSafetensors parses a file: eight bytes with the length of the header, the header in JSON, and the data of the
// tensors.
func (t *Tensors) parseSafetensors(file []byte) error {
	if err := checkPointer(file); err != nil {
		return err
	}
	if len(file) < 8 {
		return damaged("%d bytes are too few for a safetensors file", len(file))
	}
	size := binary.LittleEndian.Uint64(file)
	if size > uint64(len(file)-8) {
		return damaged("the header has %d bytes by its length field; the file has %d", size, len(file))
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(file[8:8+size], &header); err != nil {
		return damaged("the header: %w", err)
	}
	data := file[8+size:]
	for name, raw := range header {
		if name == "__metadata__" {
			continue
		}
		var e entry
		if err := json.Unmarshal(raw, &e); err != nil {
			return damaged("tensor %q: %w", name, err)
		}
		if _, other := t.others[name]; other || t.byName[name] != nil {
			return damaged("tensor %q is in two files", shortened(name))
		}
		if err := t.enter(name, e, data); err != nil {
			return err
		}
	}
	return nil
}

var floatTypes = map[string]DType{"F32": F32, "F16": F16, "BF16": BF16}

// enter adds a tensor. It adds a vector, a matrix or, if its name ends in .weight, a list of matrices of F32, F16 or BF16
// to byName. It adds all other tensors, such as masks, counters and parts of quantized matrices, to others.
func (t *Tensors) enter(name string, e entry, data []byte) error {
	if len(e.Offsets) == 2 && e.Offsets[1] > uint64(len(data)) {
		return damaged("the file, which has %d bytes of data, ends before tensor %q does: was it downloaded in full?",
			len(data), shortened(name))
	}
	if len(e.Offsets) != 2 || e.Offsets[0] > e.Offsets[1] {
		return damaged("tensor %q lies at %v in %d bytes of data", name, e.Offsets, len(data))
	}
	d, ok := floatTypes[e.DType]
	list := len(e.Shape) == 3 && strings.HasSuffix(name, ".weight") // matrices of experts, or of channels of a convolution
	if !ok || len(e.Shape) < 1 || len(e.Shape) > 2 && !list {
		if t.others == nil {
			t.others = map[string]otherTensor{}
		}
		t.others[name] = otherTensor{e, data[e.Offsets[0]:e.Offsets[1]]}
		return nil
	}
	tensor, err := makeTensor(name, d, e.Shape, data[e.Offsets[0]:e.Offsets[1]])
	if err != nil {
		return err
	}
	t.byName[name] = tensor
	return nil
}

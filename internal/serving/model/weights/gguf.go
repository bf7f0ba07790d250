package weights

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// A GGUF is a file with metadata and tensors.
type GGUF struct {
	*Tensors
	Meta map[string]Value
}

// OpenGGUF maps a file. If the model consists of several files, path is the first one; OpenGGUF maps the others in
// the same folder, too.
func OpenGGUF(path string) (*GGUF, error) {
	g, err := openGGUF(path)
	if err != nil {
		return nil, err
	}
	if n, _ := g.Meta["split.count"].Int(); n > 1 {
		if err := g.addParts(path, n); err != nil {
			return nil, errors.Join(err, g.Close())
		}
	}
	return g, nil
}

func openGGUF(path string) (*GGUF, error) {
	f, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	g, err := parseGGUF(f.data)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.close())
	}
	g.files = []*mapped{f}
	return g, nil
}

var ggufTypes = map[uint32]DType{
	0: F32, 1: F16, 2: Q4_0, 3: Q4_1, 6: Q5_0, 7: Q5_1, 8: Q8_0, 10: Q2_K, 11: Q3_K, 12: Q4_K, 13: Q5_K, 14: Q6_K,
	20: IQ4_NL, 23: IQ4_XS, 30: BF16, 39: MXFP4,
}

var otherTypes = map[uint32]string{
	9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
	24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 40: "NVFP4",
}

func typesRead() string {
	var names []string
	for _, d := range slices.Sorted(maps.Values(ggufTypes)) {
		names = append(names, d.String())
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// parseGGUF parses a file of version 2 or 3. It has counts, metadata, descriptions of tensors and, at the next
// multiple of general.alignment, the data of the tensors.
func parseGGUF(file []byte) (*GGUF, error) {
	if err := checkPointer(file); err != nil {
		return nil, err
	}
	r := &reader{rest: file, size: len(file)}
	magic, version := r.bytes(4), r.uint32()
	tensors, metas := r.uint64(), r.uint64()
	switch {
	case r.err != nil || string(magic) != "GGUF":
		return nil, damaged("it is not a GGUF file")
	case version != 0 && bits.ReverseBytes32(version) <= 3:
		return nil, unsupported("it is big-endian; little-endian GGUF is read")
	case version != 2 && version != 3:
		return nil, unsupported("GGUF version %d; 2 and 3 are read", version)
	case tensors > uint64(len(file)) || metas > uint64(len(file)):
		return nil, damaged("%d tensors and %d entries in %d bytes", tensors, metas, len(file))
	}
	g := &GGUF{Tensors: &Tensors{byName: map[string]*Tensor{}}, Meta: map[string]Value{}}
	for range metas {
		key := r.string()
		value := r.value(r.uint32())
		if r.err != nil {
			return nil, fmt.Errorf("metadata %q: %w", shortened(key), r.err)
		}
		g.Meta[key] = value
	}
	infos, err := readInfos(r, tensors)
	if err != nil {
		return nil, err
	}
	alignment, ok := g.Meta["general.alignment"].Int()
	if !ok {
		alignment = 32
	}
	if alignment < 1 || alignment > 1<<20 {
		return nil, damaged("alignment to %d bytes", alignment)
	}
	pos := len(file) - len(r.rest)
	start := min((pos+int(alignment)-1)/int(alignment)*int(alignment), len(file))
	return g, g.addTensors(infos, file[start:])
}

type info struct {
	name   string
	shape  []uint64 // rows first
	dtype  DType
	offset uint64
}

func readInfos(r *reader, n uint64) ([]info, error) {
	var infos []info
	for range n {
		i := info{name: r.string()}
		dims := r.uint32()
		if r.err == nil && (dims < 1 || dims > 4) {
			return nil, damaged("tensor %q has %d dimensions", shortened(i.name), dims)
		}
		for range dims {
			i.shape = append([]uint64{r.uint64()}, i.shape...) // the file has columns first
			if r.err != nil {
				break
			}
		}
		number := r.uint32()
		i.offset = r.uint64()
		if r.err != nil {
			return nil, fmt.Errorf("tensor %q: %w", shortened(i.name), r.err)
		}
		d, ok := ggufTypes[number]
		if !ok {
			return nil, unsupported("tensor %q is of type %s; %s are read", shortened(i.name),
				cmp.Or(otherTypes[number], strconv.FormatUint(uint64(number), 10)), typesRead())
		}
		i.dtype = d
		infos = append(infos, i)
	}
	return infos, nil
}

func (g *GGUF) addTensors(infos []info, data []byte) error {
	for _, i := range infos {
		l := layouts[i.dtype]
		size, have := uint64(1), uint64(len(data))/uint64(l.bytes)*uint64(l.elements)
		for _, n := range i.shape {
			if n == 0 || size > have/n {
				return damaged("tensor %q is of type %v and shape %v; the file, which has %d bytes of data, ends before "+
					"tensor %[2]q does: was it downloaded in full?", i.name, i.dtype, i.shape, len(data))
			}
			size *= n
		}
		size = size / uint64(l.elements) * uint64(l.bytes)
		if i.offset > uint64(len(data)) || size > uint64(len(data))-i.offset {
			return damaged("the file, which has %d bytes of data, ends before tensor %q does: was it downloaded in full?",
				len(data), i.name)
		}
		if g.byName[i.name] != nil {
			return damaged("two tensors are called %q", i.name)
		}
		t, err := makeTensor(i.name, i.dtype, i.shape, data[i.offset:i.offset+size])
		if err != nil {
			return err
		}
		g.byName[i.name] = t
	}
	return nil
}

// shortened returns the beginning of a name for an error message, because a name in a damaged file may be very long.
func shortened(name string) string { return name[:min(len(name), 80)] }

// A reader reads values from the front of a file. After the first error, it returns only zeros.
type reader struct {
	rest []byte
	size int
	err  error
}

func (r *reader) bytes(n uint64) []byte {
	if r.err != nil || n > uint64(len(r.rest)) {
		if r.err == nil {
			r.err = damaged("%d bytes are expected at %d; the file has %d", n, r.size-len(r.rest), r.size)
		}
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) string() string { return string(r.bytes(r.uint64())) }

func float32At(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

// addParts adds the tensors of the other n-1 files of a model, whose first file is g at path. Their names are those
// that llama-gguf-split gives them.
func (g *GGUF) addParts(path string, n int64) error {
	name := func(part int64) string { return fmt.Sprintf("-%05d-of-%05d.gguf", part, n) }
	if no, _ := g.Meta["split.no"].Int(); no != 0 { // counted from 0
		return unsupported("%s is file %d of the %d of a model; give the first one", path, no+1, n)
	}
	prefix, ok := strings.CutSuffix(path, name(1))
	if !ok {
		return unsupported("%s is the first of the %d files of a model; to find the others, its name must end in %s", path,
			n, name(1))
	}
	for i := int64(2); i <= n; i++ {
		part, err := openGGUF(prefix + name(i))
		if err != nil {
			return fmt.Errorf("file %d of the %d of the model: %w", i, n, err)
		}
		g.files = append(g.files, part.files...)
		if err := g.join(part, i-1, n); err != nil {
			return fmt.Errorf("%s: %w", prefix+name(i), err)
		}
	}
	if want, ok := g.Meta["split.tensors.count"].Int(); ok && want != int64(len(g.byName)) {
		return damaged("the %d files of %s have %d tensors, the first one says %d", n, path, len(g.byName), want)
	}
	return nil
}

// join adds the tensors of part, a file of the same model. number is the expected number of the file, from 0; count is
// the expected number of files. join returns an error if the file has other numbers, or a tensor that g has already.
func (g *GGUF) join(part *GGUF, number, count int64) error {
	haveNo, _ := part.Meta["split.no"].Int()
	haveN, _ := part.Meta["split.count"].Int()
	if haveNo != number || haveN != count {
		return damaged("it says that it is file %d of %d; is it of another model?", haveNo+1, haveN)
	}
	for name, t := range part.byName {
		if g.byName[name] != nil {
			return damaged("tensor %q is in two files", shortened(name))
		}
		g.byName[name] = t
	}
	return nil
}

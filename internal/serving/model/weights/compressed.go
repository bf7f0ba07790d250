package weights

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"llmmemory/internal/serving/model/pyjson"
)

// A scheme has the fields of quantization_config in config.json that determine how quantized weights are read.
type scheme struct {
	Method    string `json:"quant_method"`
	Bits      int    `json:"bits"`
	GroupSize int    `json:"group_size"`
	DescAct   bool   `json:"desc_act"`

	CheckpointFormat string `json:"checkpoint_format"` // GPTQ: gptq stores zeros minus 1, gptq_v2 stores zeros
	Version          string `json:"version"`           // AWQ: in gemm, a word has the integers of 8 outputs
	Fmt              string `json:"fmt"`               // FP8
	BlockSize        []int  `json:"weight_block_size"` // FP8: numbers of outputs and inputs that share a scale

	Format string                      `json:"format"` // compressed-tensors
	Groups map[string]compressedGroups `json:"config_groups"`
}

type compressedGroups struct {
	Format  string `json:"format"`
	Weights struct {
		Bits      int             `json:"num_bits"`
		Type      string          `json:"type"`
		Strategy  string          `json:"strategy"`
		GroupSize int             `json:"group_size"`
		Block     []int           `json:"block_structure"`
		ActOrder  json.RawMessage `json:"actorder"`
	} `json:"weights"`
}

// combine adds a tensor NAME.weight for each quantized matrix, if config.json in the folder describes a
// quantization. Such a matrix is stored in several tensors: NAME.qweight, for example, with its scales and zeros, or
// NAME.weight with its scales. A matrix without these tensors is not quantized.
func (t *Tensors) combine(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var config struct {
		Quantization *scheme `json:"quantization_config"`
		Older        *scheme `json:"compression_config"` // in older files of compressed-tensors
	}
	if err == nil {
		err = pyjson.Unmarshal(text, &config)
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
	for _, name := range sortedKeys(t.others) {
		base, ok := strings.CutSuffix(name, suffix)
		if !ok || suffix == ".weight" && t.others[name].DType != "F8_E4M3" {
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

// A combiner makes the tensor base.weight from the tensors of a quantized matrix.
type combiner func(t *Tensors, base string) (*Tensor, error)

// reader returns the function that reads the quantized matrices of the scheme. A matrix is quantized if it has a
// tensor whose name ends in suffix.
func (s *scheme) reader() (read combiner, suffix string, err error) {
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

// compressed returns the function that reads the quantized matrices of a scheme of compressed-tensors. A matrix is
// quantized if it has a tensor whose name ends in suffix; a tensor whose name ends in .weight must also be FP8. The
// groups of the scheme must not differ in suffix. The sizes in the last group, in the order of the names, count for
// all.
func (s *scheme) compressed() (read combiner, suffix string, err error) {
	for _, name := range sortedKeys(s.Groups) {
		g := s.Groups[name]
		format, w := cmp.Or(g.Format, s.Format), g.Weights
		var groupSuffix string
		switch {
		case (format == "float-quantized" || format == "naive-quantized") && w.Type == "float" && w.Bits == 8:
			groupSuffix, s.BlockSize = ".weight", w.Block
			read = s.readFP8
		case format == "pack-quantized" && w.Type == "int" && w.Bits == 4:
			switch order := string(w.ActOrder); order { // weight, formerly static, keeps the order of inputs
			case "", "null", "false", `"static"`, `"weight"`:
			default:
				return refuse("compressed-tensors with actorder %s is not read", order)
			}
			groupSuffix, s.GroupSize = ".weight_packed", w.GroupSize
			read = s.readPacked
		default:
			return refuse("compressed-tensors with format %q and weights of type %q of %d bits; float-quantized with 8 bits and "+
				"pack-quantized integers of 4 bits are read", format, w.Type, w.Bits)
		}
		if suffix != "" && suffix != groupSuffix {
			return refuse("compressed-tensors with groups of different formats is not read")
		}
		suffix = groupSuffix
	}
	if suffix == "" {
		return refuse("compressed-tensors without config_groups")
	}
	return read, suffix, nil
}

func refuse(format string, args ...any) (combiner, string, error) {
	return nil, "", fmt.Errorf("%w: quantization_config: "+format, append([]any{ErrUnsupported}, args...)...)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

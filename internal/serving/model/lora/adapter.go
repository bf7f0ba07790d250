package lora

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"llmmemory/internal/serving/model/weights"
)

// An Adapter is an open adapter.
type Adapter struct {
	Path string

	// Architecture is general.architecture of a GGUF file, or "" for a folder.
	Architecture string

	// Modules are the changed matrices, by their names in the model without .weight, such as
	// model.layers.0.self_attn.q_proj or blk.0.attn_q.
	Modules map[string]*Module

	config *config // of a folder, or nil
	files  *weights.Tensors
}

// A Module changes the products with a matrix.
type Module struct {
	A     *weights.Tensor // [rank][inputs]
	B     *weights.Tensor // [outputs][rank]
	Scale float32
}

// MaxRank is the largest rank of an adapter, as in vLLM.
const MaxRank = 512

// Open opens the adapter in a folder or a GGUF file. It refuses an adapter with a rank above maxRank.
func Open(path string, maxRank int) (*Adapter, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, refused("%w", err)
	}
	a := &Adapter{Path: path, Modules: map[string]*Module{}}
	if info.IsDir() {
		err = a.openFolder()
	} else {
		err = a.openGGUF()
	}
	if err == nil {
		err = a.check(maxRank)
	}
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// Close unmaps the files. The tensors must not be read afterwards.
func (a *Adapter) Close() error {
	if a.files == nil {
		return nil
	}
	return a.files.Close()
}

// Names returns the names of the modules in order.
func (a *Adapter) Names() []string { return slices.Sorted(maps.Keys(a.Modules)) }

// Fingerprint returns a hash of the contents of the adapter. It reads all tensors.
func (a *Adapter) Fingerprint() string {
	h := xxh3.New()
	fmt.Fprintln(h, a.files.Fingerprint())
	for _, name := range a.Names() {
		fmt.Fprintf(h, "%q %x\n", name, math.Float32bits(a.Modules[name].Scale))
	}
	sum := h.Sum128().Bytes()
	return hex.EncodeToString(sum[:])
}

// Suffixes of the names of tensors in a format.
type suffixes struct{ a, b string }

// pair makes the modules from the tensors, whose names have the given suffixes after the name of the module. rename
// returns the name of the module in the model.
func (a *Adapter) pair(s suffixes, rename func(string) string) error {
	for _, name := range a.files.OtherNames() {
		return refused("the tensor %q is %s; matrices of F32, F16 and BF16 are read", name, a.files.DescribeOther(name))
	}
	for _, name := range a.files.Names() {
		module, isA := strings.CutSuffix(name, s.a)
		if !isA {
			var isB bool
			if module, isB = strings.CutSuffix(name, s.b); !isB {
				return refused("the tensor %q is not supported; an adapter has tensors NAME%s and NAME%s", name, s.a, s.b)
			}
		}
		m := a.Modules[rename(module)]
		if m == nil {
			m = &Module{}
			a.Modules[rename(module)] = m
		}
		dst := &m.B
		if isA {
			dst = &m.A
		}
		if *dst != nil {
			return refused("the tensors %q and %q are for the same matrix", (*dst).Name, name)
		}
		*dst = a.files.Get(name)
	}
	for _, name := range a.Names() {
		switch m := a.Modules[name]; {
		case m.A == nil:
			return refused("the file has %q, and not the tensor %s for it", m.B.Name, s.a)
		case m.B == nil:
			return refused("the file has %q, and not the tensor %s for it", m.A.Name, s.b)
		}
	}
	return nil
}

// check checks the ranks and the scales.
func (a *Adapter) check(maxRank int) error {
	if len(a.Modules) == 0 {
		return refused("%s has no tensors", a.Path)
	}
	for _, name := range a.Names() {
		m := a.Modules[name]
		switch scale := float64(m.Scale); {
		case m.A.Rows != m.B.Cols:
			return refused("%q has the rank %d (its rows), and %q the rank %d (its columns)", m.A.Name, m.A.Rows, m.B.Name, m.B.Cols)
		case m.A.Rows > MaxRank:
			return refused("%q has the rank %d; at most %d is possible", m.A.Name, m.A.Rows, MaxRank)
		case m.A.Rows > maxRank:
			return refused("%q has the rank %d, and --max-lora-rank is %d; give a larger one", m.A.Name, m.A.Rows, maxRank)
		case math.IsNaN(scale) || math.IsInf(scale, 0):
			return refused("the scale of %q is %v", name, scale)
		}
	}
	return nil
}

// openGGUF opens a GGUF file as llama.cpp's convert_lora_to_gguf.py writes it.
func (a *Adapter) openGGUF() error {
	g, err := weights.OpenGGUF(a.Path)
	if err != nil {
		return refused("%w", err)
	}
	a.files = g.Tensors
	a.Architecture = g.Meta["general.architecture"].String()
	switch kind, adapter := g.Meta["general.type"].String(), g.Meta["adapter.type"].String(); {
	case kind != "adapter":
		return refused("%s is not an adapter: its general.type is %q", a.Path, kind)
	case adapter != "lora":
		return refused("adapter.type of %s is %q; lora is supported", a.Path, adapter)
	case a.Architecture == "":
		return refused("%s has no general.architecture", a.Path)
	}
	if _, ok := g.Meta["adapter.alora.invocation_tokens"]; ok {
		return refused("%s is an activated adapter (aLoRA: adapter.alora.invocation_tokens), which is not supported", a.Path)
	}
	alpha, ok := g.Meta["adapter.lora.alpha"].Float()
	if !ok {
		return refused("%s has no adapter.lora.alpha", a.Path)
	}
	err = a.pair(suffixes{".weight.lora_a", ".weight.lora_b"}, func(name string) string { return name })
	for _, m := range a.Modules {
		if m.Scale = 1; alpha != 0 && m.B != nil { // 0 means no scale, as in llama.cpp
			m.Scale = float32(alpha / float64(m.B.Cols))
		}
	}
	return err
}

// openFolder opens a folder of PEFT.
func (a *Adapter) openFolder() error {
	c, err := readConfig(a.Path)
	if err != nil {
		return err
	}
	a.config = c
	const file = "adapter_model.safetensors"
	if _, err := os.Stat(filepath.Join(a.Path, file)); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(a.Path, "adapter_model.bin")); err == nil {
			return refused("adapter_model.bin is not read; save the adapter as safetensors")
		}
		return refused("%s is not in %s", file, a.Path)
	}
	if a.files, err = weights.OpenSafetensorsFile(filepath.Join(a.Path, file)); err != nil {
		return refused("%w", err)
	}
	if err := a.pair(suffixes{".lora_A.weight", ".lora_B.weight"}, inModel); err != nil {
		return err
	}
	for _, name := range a.Names() {
		m := a.Modules[name]
		rank, scale := c.settings(name)
		if m.A.Rows != rank {
			return refused("%q has the rank %d; by r and rank_pattern of %s it is %d", m.A.Name, m.A.Rows, configFile, rank)
		}
		m.Scale = float32(scale)
	}
	return nil
}

// inModel returns the name that a module of PEFT has in the model.
func inModel(name string) string { return strings.TrimPrefix(name, "base_model.model.") }

// Missing returns a module of the model that a folder's target_modules names and that the adapter does not change, or
// a name in target_modules that is not in the model. names are the modules of the model that an adapter can change.
// Missing returns "" if nothing is missing, for a GGUF file, if target_modules is not a list, and if the configuration
// has layers_to_transform or exclude_modules.
func (a *Adapter) Missing(names []string) string {
	if a.config == nil || a.config.partial {
		return ""
	}
	for _, target := range a.config.targets {
		changes := func(name string) bool { return name == target || strings.HasSuffix(name, "."+target) }
		if !slices.ContainsFunc(names, changes) && !slices.ContainsFunc(a.Names(), changes) {
			return target
		}
		for _, name := range names {
			if changes(name) && a.Modules[name] == nil {
				return name
			}
		}
	}
	return ""
}

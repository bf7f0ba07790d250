package model

import (
	"slices"
	"strings"

	"llmmemory/internal/serving/model/lora"
	"llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/serving/model/weights"
)

// WithAdapters is an Option that loads adapters beside the model. Batch.Adapters numbers them from 1. The adapters must
// stay open until the model is loaded. A model is refused if an adapter changes a matrix that it does not have, or that
// is not a projection of attention or of an MLP.
func WithAdapters(adapters ...*lora.Adapter) Option {
	return func(l *loader) {
		l.adapters, l.adaptable, l.adaptation = adapters, make([][]string, len(adapters)), map[*lora.Module]bool{}
	}
}

// Adapters returns the number of adapters that were loaded with the model.
func (m *Model) Adapters() int { return m.adapters }

// AdapterBytes estimates the size of an adapter's packed matrices. Those of a model that is divided into Parts are larger
// in total, because each Part has A or B of a module whole.
func AdapterBytes(a *lora.Adapter) int {
	bytes := 0
	for _, m := range a.Modules {
		for _, t := range []*weights.Tensor{m.A, m.B} {
			bytes += matrix.Size(floats(t), (t.Rows+matrix.Panel-1)/matrix.Panel*matrix.Panel, t.Cols, 0)
		}
	}
	return bytes
}

// A delta is what an adapter adds to the products with a linear.
type delta struct {
	a       *matrix.Matrix // A of all modules, one below the other
	scales  []float32      // of each output of a
	modules []deltaModule
}

// A deltaModule changes the products with one of the tensors from which a linear was loaded.
type deltaModule struct {
	b      *matrix.Matrix
	first  int // its inputs are the outputs of a that begin here
	column int // its outputs are added to those of the linear that begin here
}

func (d *delta) bytes() int {
	if d == nil {
		return 0
	}
	n := d.a.Bytes()
	for _, m := range d.modules {
		n += m.b.Bytes()
	}
	return n
}

// deltas loads what each adapter adds to the products with the given tensors.
func (l *loader) deltas(s *shape, tensors []string) (all []*delta) {
	for i := range l.adapters {
		if d := l.delta(i, s, tensors); d != nil {
			if all == nil {
				all = make([]*delta, len(l.adapters))
			}
			all[i] = d
		}
	}
	return all
}

func (l *loader) delta(adapter int, s *shape, tensors []string) *delta {
	d, a, column := &delta{}, stack{}, 0
	for i, name := range tensors {
		rows := []span{{0, s.outputs[i]}}
		if s.rows != nil {
			rows = s.rows[i]
		}
		if m := l.module(adapter, name); m != nil && l.err == nil {
			if m.A.Cols != s.inputs || m.B.Rows != s.outputs[i] {
				l.fail("the adapter %s: %q has %d inputs and %q has %d outputs; the model's matrix has %d and %d",
					l.adapters[adapter].Path, m.A.Name, m.A.Cols, m.B.Name, m.B.Rows, s.inputs, s.outputs[i])
				return nil
			}
			rank := m.A.Rows
			b := stack{[]*cut{{source: m.B, rows: rows, width: rank, cols: span{0, rank}}}, []*weights.Tensor{m.B}}
			d.modules = append(d.modules, deltaModule{l.packAs(floats(m.B), &b), len(d.scales), column})
			d.scales = append(d.scales, slices.Repeat([]float32{m.Scale}, rank)...)
			a.cuts = append(a.cuts, &cut{source: m.A, rows: []span{{0, rank}}, width: s.inputs, cols: s.cols})
			a.tensors = append(a.tensors, m.A)
		}
		column += count(rows)
	}
	if len(d.modules) == 0 {
		return nil
	}
	d.a = l.packAs(floats(a.tensors...), &a)
	return d
}

// floats returns the type of matrix for the weights of adapters: that of the tensors if they have the same type and are
// not quantized, else F32. Activations are not rounded for it.
func floats(tensors ...*weights.Tensor) matrix.Type {
	d := tensors[0].DType
	same := !slices.ContainsFunc(tensors, func(t *weights.Tensor) bool { return t.DType != d })
	if same && (d == weights.F16 || d == weights.BF16) {
		return tensors[0].Packed()
	}
	return matrix.F32
}

// module returns what an adapter has for a tensor of the model, or nil. The prefix of names in the adapter can differ
// from that in the model, as it depends on the class that was trained.
func (l *loader) module(adapter int, name string) *lora.Module {
	a, full := l.adapters[adapter], l.prefix+name
	i := slices.IndexFunc(prefixes, func(p string) bool { return a.Modules[p+name] != nil })
	if i >= 0 {
		full = prefixes[i] + name
	}
	m := a.Modules[full]
	if l.shapes {
		l.adaptable[adapter] = append(l.adaptable[adapter], full)
		l.adaptation[m] = true
	}
	return m
}

// sliceDeltas divides the inputs of what adapters add to a second matrix of attention or of an MLP, as rowParallel
// divides those of the matrix.
func (l *loader) sliceDeltas(lin *linear, s *shape, tensor string) {
	n, slices := l.part.size(), matrix.Slices(s.inputs, 1)
	for _, d := range lin.deltas {
		switch {
		case d == nil || l.err != nil:
		case slices < n:
			l.fail("the %d inputs of an adapter of %q cannot be shared out among %d workers", s.inputs, tensor, n)
		default:
			if err := d.a.Slice(slices / n); err != nil {
				l.stop(err)
			}
		}
	}
}

// checkAdapters returns an error if an adapter does not fit the model. The shapes of the model must be loaded.
func (l *loader) checkAdapters(gguf bool) error {
	if len(l.adapters) > 0 && l.device != nil {
		return refused("adapters (LoRA) are applied only on the CPU")
	}
	for i, a := range l.adapters {
		switch {
		case a.Architecture == "" && gguf:
			return refused("the adapter %s is a folder and the model a GGUF file; convert the adapter "+
				"(llama.cpp's convert_lora_to_gguf.py)", a.Path)
		case a.Architecture != "" && !gguf:
			return refused("the adapter %s is a GGUF file and the model is not; give the adapter's folder", a.Path)
		case gguf && a.Architecture != l.config.Family:
			return refused("the adapter %s is for models of the architecture %q; this one is %q", a.Path, a.Architecture,
				l.config.Family)
		}
		for _, name := range a.Names() {
			if !l.adaptation[a.Modules[name]] {
				return refused("the adapter %s changes %q, %s", a.Path, name, l.unchangeable(name))
			}
		}
		if name := a.Missing(l.adaptable[i]); slices.Contains(l.adaptable[i], name) {
			return refused("the adapter %s lacks the tensors of %q, which is in its target_modules", a.Path, name)
		} else if name != "" {
			return refused("target_modules of the adapter %s has %q, which is not in the model", a.Path, name)
		}
	}
	return nil
}

// unchangeable says why adapters cannot change a matrix.
func (l *loader) unchangeable(name string) string {
	has := func(part string) bool { return strings.Contains(name, part) }
	switch {
	case strings.HasSuffix(name, l.names.embed) || strings.HasSuffix(name, l.names.head):
		return "and adapters of embeddings and of the output matrix are not supported"
	case l.config.Latent != nil && (has("kv_b_proj") || has("attn_kv_b") || has("attn_k_b") || has("attn_v_b")):
		return "and adapters of the matrix that makes keys and values from latent ones are not supported"
	case l.config.Experts != nil && (has("expert") || has("_exps") || has("shexp") || has("mlp.") || has("moe.") || has("ffn_")):
		return "and adapters of experts and routers are not supported"
	}
	return "which is not in the model"
}

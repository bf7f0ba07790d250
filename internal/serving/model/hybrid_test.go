package model_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
	"llmmemory/internal/testkit/weightfile"
)

// A hybrid describes a model in which some layers have a state, for the reference.
type hybrid struct {
	norm      string // the last norm
	embed     string // embeddings; "": model.embed_tokens
	layer     func(r *reference, l int, x []float64, position int) []float64
	tensors   func(f *family, all map[string][]int)
	maxStep   float64 // of Mamba 2; 0: none
	pattern   string  // of Nemotron-H
	recurrent []bool
	kernel    int
	convBias  bool
	inputs    [][][]float64 // of the convolution, by layer and token

	// Of heads with a state, which is [rows][columns].
	heads, columns, keyHeads, rows int
	states                         map[int][][][]float64 // by layer and head

	gguf  map[string]any    // metadata of the same model as GGUF; nil: it has no such form
	parts map[string]string // of the names of tensors in GGUF, by those of folders

	// convert returns the tensors of GGUF for a tensor of the folder, whose name in GGUF is given; nil: one, unchanged.
	convert func(name string, values []float32, shape []int) []weightfile.Tensor
}

// hybridFamilies returns models in which some layers have a state.
func hybridFamilies() []family {
	lfm2 := family{name: "LFM2", tied: true, config: map[string]any{
		"model_type": "lfm2", "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 5, "num_attention_heads": 4,
		"num_key_value_heads": 2, "block_ff_dim": 100, "block_multiple_of": 16, "max_position_embeddings": length, "norm_eps": 1e-5,
		"rope_theta": 1000.0, "conv_L_cache": 3, "layer_types": []string{"conv", "conv", "full_attention", "conv", "full_attention"},
	}, ref: reference{family: "lfm2", layers: 5, heads: 4, kvHeads: 2, dim: 12, hidden: 48, inter: 80, vocab: 97, eps: 1e-5,
		theta: 1000, hybrid: &hybrid{norm: "model.embedding_norm", recurrent: []bool{true, true, false, true, false}, kernel: 3,
			gguf: map[string]any{"general.architecture": "lfm2", "lfm2.block_count": uint32(5), "lfm2.context_length": uint32(length),
				"lfm2.embedding_length": uint32(48), "lfm2.feed_forward_length": uint32(80), "lfm2.attention.head_count": uint32(6),
				"lfm2.attention.head_count_kv": []int32{0, 0, 2, 0, 2}, "lfm2.attention.layer_norm_rms_epsilon": float32(1e-5),
				"lfm2.rope.freq_base": float32(1000), "lfm2.shortconv.l_cache": uint32(3), "lfm2.vocab_size": uint32(97)},
			parts: map[string]string{"model.embed_tokens": "token_embd", "model.embedding_norm": "token_embd_norm", "operator_norm": "attn_norm",
				"feed_forward.w1": "ffn_gate", "feed_forward.w2": "ffn_down", "feed_forward.w3": "ffn_up", "self_attn.q_proj": "attn_q",
				"self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_output",
				"self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm", "conv.in_proj": "shortconv.in_proj",
				"conv.out_proj": "shortconv.out_proj", "conv.conv": "shortconv.conv"}}}}
	lfm2.ref.heads, lfm2.ref.dim = 6, 8
	lfm2.config["num_attention_heads"] = 6
	older := lfm2
	older.name = "LFM2, older names, biases"
	older.ref.hybrid = &hybrid{norm: "model.embedding_norm", recurrent: []bool{true, true, false, true, false}, kernel: 4, convBias: true}
	older.config = map[string]any{
		"model_type": "lfm2", "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 5, "num_attention_heads": 6,
		"num_key_value_heads": 2, "intermediate_size": 80, "block_auto_adjust_ff_dim": false, "max_position_embeddings": length, "norm_eps": 1e-5,
		"rope_theta": 1000.0, "conv_L_cache": 4, "conv_bias": true, "full_attn_idxs": []int{2, 4}, "tie_embedding": false,
	}
	older.tied = false
	return append([]family{lfm2, older}, append(headFamilies(), nemotronH("ME*M-E"), denseNemotronH())...)
}

func (f *family) hybridTensors(all map[string][]int) {
	r, h := &f.ref, f.ref.hybrid
	switch {
	case h.tensors != nil:
		h.tensors(f, all)
		return
	case h.heads > 0:
		f.headTensors(all)
		return
	}
	all["model.embed_tokens.weight"] = []int{r.vocab, r.hidden}
	if !f.tied {
		all["lm_head.weight"] = []int{r.vocab, r.hidden}
	}
	norm(all, h.norm, r.hidden, false)
	for l := range r.layers {
		prefix := fmt.Sprintf("model.layers.%d.", l)
		norm(all, prefix+"operator_norm", r.hidden, false)
		norm(all, prefix+"ffn_norm", r.hidden, false)
		mlpTensors(all, r.hidden, r.inter, prefix+"feed_forward.w1", prefix+"feed_forward.w3", prefix+"feed_forward.w2")
		if h.recurrent[l] {
			matrix(all, prefix+"conv.in_proj", 3*r.hidden, r.hidden, h.convBias)
			matrix(all, prefix+"conv.out_proj", r.hidden, r.hidden, h.convBias)
			all[prefix+"conv.conv.weight"] = []int{r.hidden, 1, h.kernel}
			if h.convBias {
				all[prefix+"conv.conv.bias"] = []int{r.hidden}
			}
			continue
		}
		norm(all, prefix+"self_attn.q_layernorm", r.dim, false)
		norm(all, prefix+"self_attn.k_layernorm", r.dim, false)
		matrix(all, prefix+"self_attn.q_proj", r.heads*r.dim, r.hidden, false)
		matrix(all, prefix+"self_attn.k_proj", r.kvHeads*r.dim, r.hidden, false)
		matrix(all, prefix+"self_attn.v_proj", r.kvHeads*r.dim, r.hidden, false)
		matrix(all, prefix+"self_attn.out_proj", r.hidden, r.heads*r.dim, false)
	}
}

func (r *reference) hybridLayer(l int, x []float64, position int) []float64 {
	h := r.hybrid
	switch {
	case h.layer != nil:
		return h.layer(r, l, x, position)
	case h.heads > 0:
		return r.headLayer(l, x, position)
	}
	named := func(name string) string { return fmt.Sprintf("model.layers.%d.%s", l, name) }
	n := r.norm(named("operator_norm"), x)
	if h.recurrent[l] {
		x = plus(x, r.shortConv(l, n))
	} else {
		q, k, v := r.times(named("self_attn.q_proj"), n, r.heads*r.dim), r.times(named("self_attn.k_proj"), n, r.kvHeads*r.dim),
			r.times(named("self_attn.v_proj"), n, r.kvHeads*r.dim)
		r.normHeads(named("self_attn.q_layernorm"), q)
		r.normHeads(named("self_attn.k_layernorm"), k)
		r.rope(q, position, r.theta, true)
		r.rope(k, position, r.theta, true)
		x = plus(x, r.times(named("self_attn.out_proj"), r.attend(l, q, k, v), r.hidden))
	}
	return plus(x, r.mlp(r.norm(named("ffn_norm"), x), r.inter, named("feed_forward.w1"), named("feed_forward.w3"), named("feed_forward.w2")))
}

func (r *reference) normHeads(name string, x []float64) {
	for h := 0; h < len(x); h += r.dim {
		copy(x[h:], r.norm(name, x[h:h+r.dim]))
	}
}

func (r *reference) shortConv(l int, x []float64) []float64 {
	named := func(name string) string { return fmt.Sprintf("model.layers.%d.conv.%s", l, name) }
	in, gated := r.times(named("in_proj"), x, 3*r.hidden), make([]float64, r.hidden)
	for c := range gated {
		gated[c] = in[c] * in[2*r.hidden+c]
	}
	y := r.convolve(l, named("conv"), gated)
	for c := range y {
		y[c] *= in[r.hidden+c]
	}
	return r.times(named("out_proj"), y, r.hidden)
}

// convolve returns the causal convolution of each channel over the tokens so far, of which x is the last.
func (r *reference) convolve(l int, name string, x []float64) []float64 {
	h := r.hybrid
	h.inputs[l] = append(h.inputs[l], x)
	y, weights, bias := make([]float64, len(x)), r.w[name+".weight"], r.w[name+".bias"]
	for k := range h.kernel {
		t := len(h.inputs[l]) - h.kernel + k
		for c := range y {
			if t >= 0 {
				y[c] += float64(weights[c*h.kernel+k]) * h.inputs[l][t][c]
			}
		}
	}
	for c, b := range bias {
		y[c] += float64(b)
	}
	return y
}

// hybridGGUF returns the model of f as a GGUF file. The weights must be known.
func hybridGGUF(f *family) []byte {
	var tensors []weightfile.Tensor
	for _, name := range slices.Sorted(maps.Keys(f.tensors())) {
		shape := slices.DeleteFunc(slices.Clone(f.tensors()[name]), func(n int) bool { return n == 1 })
		var layer int
		base, kind := name[:strings.LastIndex(name, ".")], name[strings.LastIndex(name, "."):]
		full := cmp.Or(f.ref.hybrid.parts[base], base)
		if n, _ := fmt.Sscanf(base, "model.layers.%d.", &layer); n == 1 {
			part := strings.SplitN(base, ".", 4)[3]
			if renamed := f.ref.hybrid.parts[part]; renamed != "" {
				part = renamed
			}
			full = fmt.Sprintf("blk.%d.%s", layer, part)
		}
		if convert := f.ref.hybrid.convert; convert != nil {
			tensors = append(tensors, convert(full+kind, f.ref.w[name], shape)...)
			continue
		}
		tensors = append(tensors, weightfile.F32(full+kind, f.ref.w[name], shape...))
	}
	return weightfile.GGUF(f.ref.hybrid.gguf, tensors...)
}

func TestHybridGGUFLogitsAreThoseOfTheReference(t *testing.T) {
	for _, f := range hybridFamilies() {
		if f.ref.hybrid.gguf == nil {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			f.write(t) // chooses the weights
			maxError, _, size := logitErrors(t, ggufBench(t, hybridGGUF(&f)), &f.ref)
			require.Less(t, maxError, 2e-5*max(1, size))
			require.Greater(t, size, 0.1)
		})
	}
}

func TestHybridConfigsThatAreRefused(t *testing.T) {
	for _, test := range []struct {
		name   string
		change map[string]any
		want   string
	}{
		{"a kind of layer", map[string]any{"layer_types": []string{"conv", "mamba", "full_attention", "conv", "full_attention"}}, `layer_types has "mamba"; full_attention and conv are supported`},
		{"no attention", map[string]any{"layer_types": []string{"conv", "conv", "conv", "conv", "conv"}}, "no layer has attention"},
		{"a short convolution", map[string]any{"conv_L_cache": 1}, "a convolution over 1 tokens"},
		{"a multiple", map[string]any{"block_multiple_of": 0}, "block_multiple_of is 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := maps.Clone(hybridFamilies()[0].config)
			maps.Copy(config, test.change)
			_, err := model.ParseConfig(toJSON(t, config))
			require.ErrorIs(t, err, model.ErrModel)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// Ensure that a model whose layers all have attention has no states, and that a list of layers without key heads is
// needed in GGUF.
func TestAHybridFamilyWithoutStates(t *testing.T) {
	config := maps.Clone(hybridFamilies()[0].config)
	delete(config, "layer_types")
	c, err := model.ParseConfig(toJSON(t, config))
	require.NoError(t, err)
	require.Zero(t, c.StateBytes())
	f := hybridFamilies()[0]
	f.write(t)
	f.ref.hybrid.gguf["lfm2.attention.head_count_kv"] = uint32(2)
	require.ErrorContains(t, openError(t, hybridGGUF(&f)), "head_count_kv is not a list with a number for each layer")
	f.ref.hybrid.gguf["lfm2.attention.head_count_kv"] = []int32{0, 0, 2, 0, 4}
	require.ErrorContains(t, openError(t, hybridGGUF(&f)), "the same number in all layers with attention")
}

func toJSON(t *testing.T, v any) []byte {
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}

// Ensure that a sequence can begin with a state that another sequence of the batch computes, as with mamba_cache_mode
// "all", and that a batch without blocks for states is refused.
func TestStatesOfTheSameBatch(t *testing.T) {
	for _, f := range hybridFamilies() {
		t.Run(f.name, func(t *testing.T) {
			tokens, b := randomTokens(1, 40), newBench(t, f.write(t), 3)
			want := b.step(t, part{tokens: tokens, table: randomTable(1, 1, 8)})[0]
			got := b.step(t, part{tokens[:16], 0, []int32{20, 21}}, part{tokens[16:30], 16, []int32{20, 21, 22, 23}}, part{tokens[30:], 30, []int32{20, 21, 22, 23, 24}})
			require.Equal(t, want, slices.Concat(got[0], got[1], got[2]))
		})
	}
	f := hybridFamilies()[0]
	b := newBench(t, f.write(t), 1)
	batch := model.Batch{Tokens: []int32{1}, Positions: []int32{8}, QueryStart: []int32{0, 1}, SeqLens: []int32{9},
		Blocks: model.Blocks{Slots: []int64{16}, BlockTables: []int32{1, 2}, TableStride: 2}}
	require.NoError(t, b.runner.Forward(&batch))
	for _, table := range [][]int32{{0, 2}, {1, 0}, {1, numBlocks}, {-1, 2}, {1}} {
		batch.BlockTables, batch.TableStride = table, len(table)
		require.ErrorIs(t, b.runner.Forward(&batch), model.ErrBatch, "%v", table)
	}
}

// Ensure that a config.json of Qwen3.5 with the text model in text_config is parsed to the same Config as that of the text
// model alone, and that attn_output_gate false is refused.
func TestConfigsOfQwen35(t *testing.T) {
	families := hybridFamilies()
	f := families[slices.IndexFunc(families, func(f family) bool { return f.name == "Qwen3.5" })]
	want, err := model.ParseConfig(toJSON(t, f.config))
	require.NoError(t, err)
	outer := map[string]any{"model_type": "qwen3_5", "text_config": f.config, "tie_word_embeddings": false}
	got, err := model.ParseConfig(toJSON(t, outer))
	require.NoError(t, err)
	require.Equal(t, want, got)
	f.config["attn_output_gate"] = false
	_, err = model.ParseConfig(toJSON(t, f.config))
	require.ErrorContains(t, err, "attn_output_gate is false")
}

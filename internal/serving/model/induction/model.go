// Package induction builds a small transformer by hand. Its answers are known: it finds the last earlier occurrence of
// the last three tokens, and repeats the tokens after it. Its tokens are bytes. It has two layers. They work like the
// induction heads of trained models:
//
//	layer 0: head h copies the code of the token h+1 positions earlier, so that each position has four codes
//	layer 1: attends to positions whose preceding tokens equal the last tokens, and copies the token there
//
// Tests need no download for it, and a wrong key or value can change the answer.
package induction

import (
	"math"

	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/tokenizer"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
)

const (
	code    = 128 // elements of a token's code
	lags    = 3   // earlier tokens stored beside the current one
	headDim = 256
	hidden  = code * (lags + 2) // the token, the earlier tokens, the answer
	answer  = code * (lags + 1) // index of the answer

	// Pair i of a head rotates by theta^(-i/128) per token. The pairs from stillPairs on do not rotate noticeably over
	// MaxModelLen tokens, so they can store codes. The rotation of the pairs before stillPairs encodes distances.
	theta      = 1e30
	stillPairs = 64

	// Start begins a text. Layer 0 stores the code of an earlier token beside each token. The first token has no earlier
	// token and stores its own code. Start must therefore be a token that no text contains, so that this code matches
	// nothing. Begin and End enclose a message of a chat; End also ends a sequence.
	Start = 1
	Begin = 2
	End   = 3
)

// MaxModelLen is the maximum length of a sequence.
const MaxModelLen = 4096

// New builds the model, or one worker's part of it.
func New(pool *parallel.Pool, part model.Part, options ...model.Option) (*model.Model, error) {
	c := Config(part.Size)
	return model.Build(c, tensors(c.NumHeads), pool, part, options...)
}

// Config returns the model's configuration. For several workers it has a fourth head. This head does nothing, but the
// workers can then share the heads.
func Config(workers int) model.Config {
	heads := lags
	if workers > 1 {
		heads = 4
	}
	return model.Config{
		Family: "qwen2", VocabSize: 256, HiddenSize: hidden, NumLayers: 2, NumHeads: heads, NumKVHeads: heads,
		HeadDim: headDim, IntermediateSize: 16, MaxModelLen: MaxModelLen, NormEps: 1e-6, Activation: model.SiLU,
		Rope: &model.Rope{Theta: theta}, QKVBias: true, End: []int32{End},
	}
}

// Tokenizer returns the model's tokenizer, whose tokens are bytes.
func Tokenizer() *tokenizer.Tokenizer { return tokenizer.Bytes(Start, Begin, End) }

// Template is a chat template with which the model repeats the last message. It writes each tool and each message
// between Begin and End, and a Begin before the answer.
const Template = "\x01{% for tool in tools or [] %}\x02{{ tool | tojson }}\x03{% endfor %}" +
	"{% for message in messages %}\x02{{ message['content'] }}\x03{% endfor %}{% if add_generation_prompt %}\x02{% endif %}"

// A matrix is [out, in].
type matrix struct {
	name            string
	outputs, inputs int
	elements        []float32
}

func newMatrix(name string, outputs, inputs int) *matrix {
	return &matrix{name, outputs, inputs, make([]float32, outputs*inputs)}
}

func (m *matrix) set(output, input int, v float32) { m.elements[output*m.inputs+input] = v }

func (m *matrix) tensor() *weights.Tensor {
	return weights.FromFloats(m.name, m.outputs, m.inputs, m.elements)
}

func tensors(heads int) *weights.Tensors {
	embed, head := newMatrix("model.embed_tokens.weight", 256, hidden), newMatrix("lm_head.weight", 256, hidden)
	for b := range 256 {
		for i := range code {
			embed.set(b, i, sign(b, i))
			head.set(b, answer+i, sign(b, i)*sharpness)
		}
	}
	all := []*weights.Tensor{embed.tensor(), head.tensor(), ones("model.norm.weight")}
	all = append(all, layer("model.layers.0.", heads, lookBack)...)
	all = append(all, layer("model.layers.1.", heads, match)...)
	return weights.Collect(all...)
}

// sign returns element i of the code of a byte. The codes are the 128 rows of a Hadamard matrix and the negatives of
// these rows. The product of two codes is therefore 128, 0 or −128.
func sign(b, i int) float32 {
	odd := b >> 7
	for bits := b & i & 127; bits > 0; bits &= bits - 1 {
		odd ^= 1
	}
	return float32(1 - 2*odd)
}

// codeIndex returns where a head stores element i of a code. The elements of a code are in the pairs of the head that
// do not rotate: (64, 192), (65, 193), and so on.
func codeIndex(i int) int {
	if i < code/2 {
		return stillPairs + i
	}
	return headDim/2 + stillPairs + i - code/2
}

func ones(name string) *weights.Tensor {
	m := newMatrix(name, 1, hidden)
	for i := range m.elements {
		m.elements[i] = 1
	}
	return m.tensor()
}

// An attention has the matrices of a layer's attention. All other matrices of the layer are zero.
type attention struct {
	q, k, v, out        *matrix
	qBias, kBias, vBias *matrix
}

func layer(name string, heads int, fill func(*attention)) []*weights.Tensor {
	width := heads * headDim
	a := &attention{
		q: newMatrix(name+"self_attn.q_proj.weight", width, hidden), qBias: newMatrix(name+"self_attn.q_proj.bias", 1, width),
		k: newMatrix(name+"self_attn.k_proj.weight", width, hidden), kBias: newMatrix(name+"self_attn.k_proj.bias", 1, width),
		v: newMatrix(name+"self_attn.v_proj.weight", width, hidden), vBias: newMatrix(name+"self_attn.v_proj.bias", 1, width),
		out: newMatrix(name+"self_attn.o_proj.weight", hidden, width),
	}
	fill(a)
	const inner = 16
	return []*weights.Tensor{
		a.q.tensor(), a.k.tensor(), a.v.tensor(), a.out.tensor(), a.qBias.tensor(), a.kBias.tensor(), a.vBias.tensor(),
		ones(name + "input_layernorm.weight"), ones(name + "post_attention_layernorm.weight"),
		newMatrix(name+"mlp.gate_proj.weight", inner, hidden).tensor(),
		newMatrix(name+"mlp.up_proj.weight", inner, hidden).tensor(),
		newMatrix(name+"mlp.down_proj.weight", hidden, inner).tensor(),
	}
}

// inverseRMS returns the inverse of the root mean square of a hidden vector. The vector has the given number of codes
// with elements ±1, and zeros elsewhere.
func inverseRMS(codes float64) float64 { return math.Sqrt(hidden / (codes * code)) }

// Settings of the heads, as differences of logits.
const (
	distance  = 60.0 // between the distance sought and adjacent distances, approximately
	unit      = 40.0 // for each equal earlier token
	nearest   = 1.5  // factor of unit for the nearest token
	recency   = 0.5  // for each pair of elements that encodes distances
	sharpness = 0.12 // factor of the answer: the product of equal codes becomes 15.4
)

// lookBack sets the attention of layer 0. Queries and keys do not depend on the token. They are rotated so that head
// h attends to the token h+1 positions back.
func lookBack(a *attention) {
	amplitude := math.Sqrt(distance * math.Sqrt(headDim))
	for h := range lags {
		start := h * headDim
		for i := range stillPairs {
			angle := float64(h+1) * math.Pow(theta, -float64(i)/(headDim/2))
			s, c := math.Sincos(-angle)
			a.kBias.set(0, start+i, float32(amplitude))
			a.qBias.set(0, start+i, float32(amplitude*c))
			a.qBias.set(0, start+i+headDim/2, float32(amplitude*s))
		}
		for i := range code {
			a.v.set(start+i, i, float32(1/inverseRMS(1)))
			a.out.set((h+1)*code+i, start+i, 1)
		}
	}
}

// match sets the first head of layer 1. The query is the sum of the codes of the last three tokens; the code of the
// last one is multiplied by nearest. The key of a position is the sum of the codes of the three tokens before this
// position. The lag of a token is its distance from the last of the three tokens. The biases favor near positions, so
// that the last of several equal matches counts.
//
// Before codes are added, each element of a code is multiplied by a sign. The function scramble chooses the signs, and
// chooses other signs for each lag. A code in the query therefore matches only a code with the same lag in a key.
func match(a *attention) {
	scale := math.Sqrt(unit*math.Sqrt(headDim)/code) / inverseRMS(lags+1)
	for lag := range lags {
		for i := range code {
			v := float32(scale) * scramble(lag, i)
			weight := float32(1)
			if lag == 0 {
				weight = nearest
			}
			a.q.set(codeIndex(i), lag*code+i, v*weight)
			a.k.set(codeIndex(i), (lag+1)*code+i, v)
		}
	}
	for i := range stillPairs {
		v := float32(math.Sqrt(recency * math.Sqrt(headDim)))
		a.qBias.set(0, i, v)
		a.kBias.set(0, i, v)
	}
	for i := range code {
		a.v.set(i, i, float32(1/inverseRMS(lags+1)))
		a.out.set(answer+i, i, 1)
	}
}

// scramble returns a pseudorandom ±1 for a lag and an element.
func scramble(lag, i int) float32 {
	x := uint64(lag*code+i+1) * 0x9e3779b97f4a7c15
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	return float32(1 - 2*int(x>>40&1))
}

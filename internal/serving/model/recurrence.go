package model

import (
	"math"
	"slices"
)

// RecurrenceKind is what a layer computes that keeps a state.
type RecurrenceKind uint8

const (
	ShortConv RecurrenceKind = iota // a gated causal convolution (LFM2)
	Mamba2                          // a convolution and a state space with one decay for each head
	DeltaNet                        // a convolution and the gated delta rule (Qwen3-Next)
)

// A Recurrence describes layers that keep a state of fixed size instead of keys and values (vLLM's Mamba layers). A
// state has numbers of type float32: for each channel of a causal convolution, its last Kernel - 1 inputs; and, unless
// Kind is ShortConv, for each head a matrix of KeyDim rows and HeadDim columns.
type Recurrence struct {
	Kind     RecurrenceKind
	Layers   []bool // which layers have a state
	Kernel   int    // tokens that the convolution reads
	ConvBias bool
	Bias     bool // of the projections

	Heads, HeadDim   int
	KeyHeads, KeyDim int     // of keys and queries (Mamba 2: groups and the state's size)
	MaxStep          float64 // Mamba 2: limits of time steps; a MaxStep of 0 is none
	MinStep          float64
}

// Half says which parts of a layer there are.
type Half uint8

const (
	Both        Half = iota
	Mixer            // only attention or a state
	FeedForward      // only an MLP or experts
)

// Mixes reports whether a layer has attention or a state, and so keys and values, or states, in blocks.
func (c *Config) Mixes(layer int) bool { return c.Halves == nil || c.Halves[layer] != FeedForward }

func (c *Config) feeds(layer int) bool { return c.Halves == nil || c.Halves[layer] != Mixer }

// Recurrent reports whether a layer has a state instead of keys and values.
func (c *Config) Recurrent(layer int) bool {
	return c.Recurrence != nil && c.Recurrence.Layers[layer] && c.Mixes(layer)
}

// StateBytes returns the size of the state of one sequence in one layer, or 0 if no layer has a state.
func (c *Config) StateBytes() int {
	if c.Recurrence == nil {
		return 0
	}
	return 4 * (c.matrixOffset() + c.Recurrence.Heads*c.Recurrence.matrixSize())
}

// matrixOffset returns where the matrices of the heads begin in a state, behind the inputs of the convolution.
func (c *Config) matrixOffset() int { return c.stateRows() * c.convWidth() }

func (r *Recurrence) matrixSize() int { return r.KeyDim * r.HeadDim }

// stateRows returns how many inputs of the convolution are in a state.
func (c *Config) stateRows() int { return c.Recurrence.Kernel - 1 }

// convWidth returns the number of channels of the convolution.
func (c *Config) convWidth() int {
	if c.Recurrence.Kind == ShortConv {
		return c.HiddenSize
	}
	return c.Recurrence.inner() + 2*c.Recurrence.keyWidth()
}

// inner returns the number of inputs of the output projection of layers with heads.
func (r *Recurrence) inner() int { return r.Heads * r.HeadDim }

func (r *Recurrence) keyWidth() int { return r.KeyHeads * r.KeyDim }

// dropUnusedRecurrence sets c.Recurrence to nil if all layers have attention.
func (c *Config) dropUnusedRecurrence() {
	if c.Recurrence != nil && !slices.Contains(c.Recurrence.Layers, true) {
		c.Recurrence = nil
	}
}

func (c *Config) attends() bool {
	for i := range c.NumLayers {
		if c.Mixes(i) && !c.Recurrent(i) {
			return true
		}
	}
	return false
}

func (c *Config) checkRecurrence() error {
	r := c.Recurrence
	if r == nil {
		return nil
	}
	switch {
	case len(r.Layers) != c.NumLayers || c.Halves != nil && len(c.Halves) != c.NumLayers:
		return refused("%d layers are described, there are %d", max(len(r.Layers), len(c.Halves)), c.NumLayers)
	case !c.attends():
		return refused("no layer has attention; models with states have some such layers")
	case r.Kernel < 2 || r.Kernel > 16:
		return refused("a convolution over %d tokens; 2 to 16 are possible", r.Kernel)
	case r.Kind == ShortConv:
		return nil
	}
	const limit = 1 << 12
	for _, n := range []int{r.Heads, r.HeadDim, r.KeyHeads, r.KeyDim} {
		if n < 1 || n > limit {
			return refused("layers with states have %d heads of %d and %d key heads of %d", r.Heads, r.HeadDim, r.KeyHeads, r.KeyDim)
		}
	}
	switch {
	case r.Heads%r.KeyHeads != 0:
		return refused("%d heads of states on %d key heads: want a multiple", r.Heads, r.KeyHeads)
	case !(r.MinStep >= 0) || !(r.MaxStep >= 0) || r.MaxStep > 0 && r.MaxStep < r.MinStep:
		return refused("time steps from %v to %v", r.MinStep, r.MaxStep)
	}
	return nil
}

// A recurrent has the weights of a layer with a state. Its projection has, for each token:
//
//	ShortConv: a gate of the input of the convolution, a gate of its output, and the input
//	others: a gate of the output, the inputs of the convolution, and one number (DeltaNet: two) for each head
type recurrent struct {
	input    linear
	output   linear
	conv     []float32 // [Kernel][channels]
	convBias []float32 // of each channel, or nil

	decay    []float32 // of each head: how fast its state decays
	stepBias []float32 // of each head
	skip     []float32 // Mamba2: of each head: the factor of the value that is added to the output
	norm     []float32 // Mamba2: of all heads; DeltaNet: of one
}

func (l *loader) recurrent(i int) *recurrent {
	c, n := l.config, l.names
	r, named := c.Recurrence, func(name string) string { return tensorName(name, i) }
	x := &recurrent{}
	inner := r.inner()
	switch r.Kind {
	case ShortConv:
		inner = c.HiddenSize
		x.input = l.linear(shape{inputs: c.HiddenSize, outputs: []int{3 * inner}, bias: r.Bias, adapts: true}, named(n.recurrentIn))
	case Mamba2:
		x.input = l.linear(shape{inputs: c.HiddenSize, outputs: []int{inner + c.convWidth() + r.Heads}, bias: r.Bias, adapts: true}, named(n.recurrentIn))
		x.skip, x.norm = l.numbers(named(n.skip), r.Heads), l.numbers(named(n.recurrentNorm)+".weight", inner)
	case DeltaNet:
		x.input = l.deltaInput(i)
		x.norm = l.numbers(named(n.recurrentNorm)+".weight", r.HeadDim)
	}
	x.output = l.linear(shape{inputs: inner, outputs: []int{c.HiddenSize}, bias: r.Bias, adapts: true}, named(n.recurrentOut))
	l.convolution(x, named(n.conv))
	if r.Kind != ShortConv {
		x.decay, x.stepBias = l.numbers(named(n.decay), r.Heads), l.numbers(named(n.stepBias), r.Heads)
		for h, v := range x.decay {
			if x.decay[h] = float32(math.Exp(float64(v))); n.negative {
				x.decay[h] = -v
			}
		}
	}
	return x
}

// numbers loads n numbers, from a tensor of any shape.
func (l *loader) numbers(name string, n int) []float32 {
	t := l.tensor(name)
	if t != nil && t.Rows*t.Cols != n {
		l.fail("the tensor %q is %d × %d, the configuration says %d", t.Name, t.Rows, t.Cols, n)
	}
	if l.err != nil {
		return nil
	}
	return t.Vector()
}

// convolution loads the weights of a convolution. In the file they are [channels][Kernel].
func (l *loader) convolution(x *recurrent, name string) {
	kernel, width := l.config.Recurrence.Kernel, l.config.convWidth()
	t := l.tensor(name + ".weight")
	l.expect(t, width, kernel)
	if l.err != nil {
		return
	}
	file := t.Vector()
	x.conv = make([]float32, len(file))
	for channel := range width {
		for k := range kernel {
			x.conv[k*width+channel] = file[channel*kernel+k]
		}
	}
	if l.config.Recurrence.ConvBias {
		x.convBias = l.vector(name+".bias", width)
	}
}

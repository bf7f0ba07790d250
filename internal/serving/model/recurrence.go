package model

import "slices"

// RecurrenceKind is what a layer computes that keeps a state.
type RecurrenceKind uint8

const (
	ShortConv RecurrenceKind = iota // a gated causal convolution (LFM2)
)

// A Recurrence describes layers that keep a state of fixed size instead of keys and values (vLLM's Mamba layers). A
// state has numbers of type float32: for each channel, the last Kernel - 1 inputs of a causal convolution.
type Recurrence struct {
	Kind     RecurrenceKind
	Layers   []bool // which layers have a state
	Kernel   int    // tokens that the convolution reads
	ConvBias bool
	Bias     bool // of the projections
}

// Recurrent reports whether a layer has a state instead of keys and values.
func (c *Config) Recurrent(layer int) bool { return c.Recurrence != nil && c.Recurrence.Layers[layer] }

// StateBytes returns the size of the state of one sequence in one layer, or 0 if no layer has a state.
func (c *Config) StateBytes() int {
	if c.Recurrence == nil {
		return 0
	}
	return 4 * c.stateRows() * c.convWidth()
}

// stateRows returns how many inputs of the convolution are in a state.
func (c *Config) stateRows() int { return c.Recurrence.Kernel - 1 }

// convWidth returns the number of channels of the convolution.
func (c *Config) convWidth() int { return c.HiddenSize }

// dropUnusedRecurrence sets c.Recurrence to nil if all layers have attention.
func (c *Config) dropUnusedRecurrence() {
	if c.Recurrence != nil && !slices.Contains(c.Recurrence.Layers, true) {
		c.Recurrence = nil
	}
}

func (c *Config) checkRecurrence() error {
	r := c.Recurrence
	if r == nil {
		return nil
	}
	switch {
	case len(r.Layers) != c.NumLayers:
		return refused("%d layers are described, there are %d", len(r.Layers), c.NumLayers)
	case !slices.Contains(r.Layers, false):
		return refused("no layer has attention; models with states have some such layers")
	case r.Kernel < 2 || r.Kernel > 16:
		return refused("a convolution over %d tokens; 2 to 16 are possible", r.Kernel)
	}
	return nil
}

// A recurrent has the weights of a layer with a state.
type recurrent struct {
	input    linear
	output   linear
	conv     []float32 // [Kernel][channels]
	convBias []float32 // of each channel, or nil
}

func (l *loader) recurrent(i int) *recurrent {
	c, n := l.config, l.names
	r, named := c.Recurrence, func(name string) string { return tensorName(name, i) }
	x := &recurrent{
		input:  l.linear(shape{inputs: c.HiddenSize, outputs: []int{3 * c.HiddenSize}, bias: r.Bias}, named(n.recurrentIn)),
		output: l.linear(shape{inputs: c.HiddenSize, outputs: []int{c.HiddenSize}, bias: r.Bias}, named(n.recurrentOut)),
	}
	l.convolution(x, named(n.conv))
	return x
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

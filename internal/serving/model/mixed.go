package model

import (
	"llmmemory/internal/serving/attention"
)

// Mixed describes a model whose layers without a window, the full layers, have other heads than the layers with one, and
// whose last layers have no keys and values of their own (Gemma 4). Queries, keys and values are normalized.
type Mixed struct {
	Full        []bool // the full layers
	HeadDim     int    // of full layers
	NumKVHeads  int    // of full layers
	KeyIsValue  bool   // the values of full layers are the keys before their norm and rotation
	Shared      int    // number of last layers that use the keys and values of the last layer of the same kind before them
	WideMLP     bool   // the MLPs of these last layers are twice as wide
	PerLayerDim int    // size of a token's vector for each layer, beside its embedding; 0 means none
	Vocabulary  int    // tokens with such vectors
}

func (x *Mixed) check(c *Config) error {
	first := c.NumLayers - x.Shared
	switch {
	case len(x.Full) != c.NumLayers:
		return refused("%d layers are described, there are %d", len(x.Full), c.NumLayers)
	case x.HeadDim < 8 || x.HeadDim > attention.MaxHeadSize || x.HeadDim%8 != 0:
		return refused("heads of %d elements in full layers: want a multiple of 8 up to %d", x.HeadDim, attention.MaxHeadSize)
	case x.NumKVHeads < 1 || c.NumHeads%x.NumKVHeads != 0:
		return refused("%d query heads on %d key heads in full layers: want a multiple", c.NumHeads, x.NumKVHeads)
	case x.Shared < 0 || first < 1:
		return refused("%d of %d layers share keys and values", x.Shared, c.NumLayers)
	case x.PerLayerDim < 0 || x.PerLayerDim > 1<<16 || x.PerLayerDim > 0 && x.Vocabulary < c.VocabSize:
		return refused("vectors of %d elements for each layer, of %d tokens", x.PerLayerDim, x.Vocabulary)
	case c.Experts != nil || c.Recurrence != nil || c.Sinks || c.QKVBias || c.OutBias || c.MLPBias:
		return refused("layers with different heads beside experts, states, sinks or biases are not supported")
	}
	for i := first; i < c.NumLayers; i++ {
		if c.KVSource(i) < 0 {
			return refused("layer %d has no keys and values, and no layer before it has any of the same kind", i)
		}
	}
	return nil
}

// largestHead returns the number of elements of the largest head.
func (c *Config) largestHead() int {
	if c.Mixed != nil {
		return max(c.HeadDim, c.Mixed.HeadDim)
	}
	return c.HeadDim
}

// headsOf returns the size of a layer's heads, and their number of keys and values.
func (c *Config) headsOf(layer int) (dim, kvHeads int) {
	if c.Mixed != nil && c.Mixed.Full[layer] {
		return c.Mixed.HeadDim, c.Mixed.NumKVHeads
	}
	return c.HeadDim, c.NumKVHeads
}

// KVSource returns the layer whose keys and values a layer uses: itself, an earlier one, or -1 if there is none.
func (c *Config) KVSource(layer int) int {
	if c.Mixed == nil || layer < c.NumLayers-c.Mixed.Shared {
		return layer
	}
	for i := c.NumLayers - c.Mixed.Shared - 1; i >= 0; i-- {
		if c.Mixed.Full[i] == c.Mixed.Full[layer] {
			return i
		}
	}
	return -1
}

// LayerShape returns the shape of the keys and values of a layer. It is KVShapeOf for all layers unless Mixed is set.
func (c *Config) LayerShape(layer int, p Part, blockSize int, dtype attention.DType) attention.Shape {
	s := c.KVShapeOf(p, blockSize, dtype)
	if c.Mixed != nil {
		s.HeadSize, s.NumKVHeads = c.headsOf(layer)
	}
	return s
}

// intermediate returns the size of a layer's MLP.
func (c *Config) intermediate(layer int) int {
	if c.Mixed != nil && c.Mixed.WideMLP && c.KVSource(layer) != layer {
		return 2 * c.IntermediateSize
	}
	return c.IntermediateSize
}

// A mixed has the weights that only layers of a model with Mixed have. After the MLP, with PerLayerDim,
//
//	x += norm(projection · (gelu(gate · x) × the vector of the token and the layer))
//
// and then x is multiplied by scale.
type mixed struct {
	gate, projection linear
	norm             norm
	scale            float32
}

// mixed loads the attention of a layer, and its mixed.
func (l *loader) mixed(dst *layer, i int) {
	c, x, n := l.config, l.config.Mixed, l.names
	named := func(name string) string { return tensorName(name, i) }
	dim, kvHeads := c.headsOf(i)
	query, kv := c.NumHeads*dim, kvHeads*dim
	dst.qNorm = l.normWeights(named(n.qNorm), dim)
	qkv, s := []string{named(n.q)}, shape{inputs: c.HiddenSize, outputs: []int{query}, adapts: true}
	switch {
	case c.KVSource(i) != i:
		l.ignore(named(n.k)+".weight", named(n.v)+".weight", named(n.kNorm)+".weight")
	case x.Full[i] && x.KeyIsValue:
		qkv, s.outputs = append(qkv, named(n.k)), append(s.outputs, kv)
		dst.kNorm = l.normWeights(named(n.kNorm), dim)
	default:
		qkv, s.outputs = append(qkv, named(n.k), named(n.v)), append(s.outputs, kv, kv)
		dst.kNorm = l.normWeights(named(n.kNorm), dim)
	}
	dst.qkv = l.linear(s, qkv...)
	dst.out = l.rowParallel(shape{inputs: query, outputs: []int{c.HiddenSize}, adapts: true}, named(n.out))
	dst.mixed = &mixed{scale: 1}
	if v := l.vector(named(n.layerScale), 1); v != nil {
		dst.mixed.scale = v[0]
	}
	if x.PerLayerDim > 0 {
		dst.mixed.gate = l.linear(shape{inputs: c.HiddenSize, outputs: []int{x.PerLayerDim}}, named(n.perLayerGate))
		dst.mixed.projection = l.linear(shape{inputs: x.PerLayerDim, outputs: []int{c.HiddenSize}}, named(n.perLayerOut))
		dst.mixed.norm = norm{weight: l.normWeights(named(n.perLayerPost), c.HiddenSize)}
	}
}

// ignore marks tensors as used that the model does not need.
func (l *loader) ignore(names ...string) {
	for _, name := range names {
		for _, full := range l.places(name) {
			l.used[full] = true
		}
	}
}

// perLayer has the tensors from which the vectors of the layers are made.
type perLayer struct {
	embed      *table
	projection linear
	norm       []float32
}

func (l *loader) perLayer(m *Model) {
	c, x := l.config, l.config.Mixed
	if x == nil || x.PerLayerDim == 0 {
		return
	}
	width := c.NumLayers * x.PerLayerDim
	m.perLayer.embed = l.tableOf(l.names.perLayerEmbed, x.Vocabulary, width)
	m.perLayer.projection = l.linear(shape{inputs: c.HiddenSize, outputs: []int{width}}, l.names.perLayerIn)
	m.perLayer.norm = l.normWeights(l.names.perLayerNorm, x.PerLayerDim)
}

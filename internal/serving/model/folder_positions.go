package model

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"

	"llmmemory/internal/serving/model/pyjson"
)

func (p *published) positions(c *Config, f *family) (err error) {
	if f.learned {
		return nil
	}
	if f.noRopeEvery > 0 {
		c.NoRope = p.noRope(f)
	}
	if err := p.windows(c, f); err != nil {
		return err
	}
	if c.Rope, err = p.rope(c, f); err != nil {
		return err
	}
	if f.localRope {
		c.LocalRope = p.windowRope(c, f)
	}
	return nil
}

// windows sets the size of the sliding window, and which layers have it, as transformers' configuration of the
// family does.
func (p *published) windows(c *Config, f *family) error {
	w := cmp.Or(f.window, &window{})
	size := w.size
	tokens := &size
	if size == 0 {
		tokens = nil
	}
	if p.Window != nil && json.Unmarshal(p.Window, &tokens) != nil {
		return refused("config.json: sliding_window has the wrong type: %s", pyjson.Text(p.Window))
	}
	if f.window == nil || w.optional && !p.UseWindow || tokens == nil { // null
		return nil
	}
	full := make([]bool, max(0, min(p.Layers, 1<<24)))
	switch {
	case p.LayerTypes != nil:
		var err error
		if full, err = layersOf("layer_types", p.LayerTypes, "full_attention", "sliding_attention"); err != nil {
			return err
		}
	case w.upperLayers:
		first := 28 // transformers' default
		if p.FirstWindow != nil {
			first = *p.FirstWindow
		}
		for i := range full {
			full[i] = i < first
		}
	case w.period > 0:
		full = everyFrom(p.Layers, cmp.Or(p.WindowPattern, w.period))
	case f.noRopeEvery > 0:
		for i, noRope := range c.NoRope {
			full[i] = !noRope
		}
	}
	if slices.Contains(full, false) {
		c.SlidingWindow = *tokens
	}
	if c.SlidingWindow > 0 && slices.Contains(full, true) {
		c.Full = full
	}
	return nil
}

// layersOf reports, for each layer, whether a list of config.json has the first of two kinds.
func layersOf(field string, list []string, first, second string) (layers []bool, err error) {
	for _, kind := range list {
		if kind != first && kind != second {
			return nil, refused("%s has %q; %s and %s are supported", field, kind, first, second)
		}
		layers = append(layers, kind == first)
	}
	return layers, nil
}

// noRope reports, for each layer, whether it has no rotary embedding. Layers without one have a 0 in no_rope_layers; if
// config.json lacks that field, every n-th layer has none.
func (p *published) noRope(f *family) []bool {
	if p.RopeLayers == nil {
		return everyFrom(p.Layers, cmp.Or(p.NoRopeEvery, f.noRopeEvery))
	}
	var noRope []bool
	for _, v := range p.RopeLayers {
		noRope = append(noRope, v == 0)
	}
	return noRope[:min(len(noRope), max(p.Layers, 0))]
}

// rope returns the rotary embedding of the layers that do not use a LocalRope. For dynamic scaling and YaRN, it also
// sets MaxModelLen to the length that the scaling allows.
func (p *published) rope(c *Config, f *family) (*Rope, error) {
	s := cmp.Or(p.RopeParams, p.Scaling, &scaling{})
	if s.Full != nil {
		s = s.Full
	}
	r := &Rope{Theta: *cmp.Or(s.Theta, p.Theta, number(cmp.Or(f.folder.theta, 10000)))}
	if part := cmp.Or(s.Partial, p.Partial, 1); part != 1 {
		if r.Dim = int(float64(c.HeadDim) * part); r.Dim == 0 {
			return nil, refused("partial_rotary_factor is %v", part)
		}
	}
	original := cmp.Or(s.OriginalLength, p.Original, float64(c.MaxModelLen))
	kind := cmp.Or(s.Rope, s.Type, "default")
	if slices.Contains(f.folder.longRope, kind) {
		kind = "longrope"
	}
	if s.Factor == 0 && slices.Contains([]string{"linear", "llama3", "dynamic", "yarn"}, kind) {
		return nil, refused("rope_scaling of type %s has no factor", kind)
	}
	switch kind {
	case "default":
	case "linear":
		r.Linear = s.Factor
	case "llama3":
		r.Llama3 = &s.Llama3
		r.Llama3.Factor = s.Factor
	case "dynamic":
		return r, s.dynamic(c, r)
	case "yarn":
		s.yarn(c, r, original)
	case "longrope":
		s.long(c, r, original, p.Original != 0)
	default:
		return nil, refused("rope scaling of type %q; linear, llama3, dynamic, yarn and longrope are supported", kind)
	}
	return r, nil
}

// dynamic sets the theta of dynamic scaling. As in vLLM, sequences of all lengths use the theta for the longest
// sequence.
func (s *scaling) dynamic(c *Config, r *Rope) error {
	size := float64(r.Rotated(c.HeadDim))
	if !(s.Factor >= 1) || size <= 2 {
		return refused("dynamic rope scaling by %v", s.Factor)
	}
	r.Theta *= math.Pow(s.Factor*s.Factor-(s.Factor-1), size/(size-2))
	c.MaxModelLen = int(float64(c.MaxModelLen) * s.Factor)
	return nil
}

func (s *scaling) yarn(c *Config, r *Rope, original float64) {
	r.Yarn = &Yarn{Factor: s.Factor, OriginalLength: original, BetaFast: cmp.Or(s.BetaFast, 32),
		BetaSlow: cmp.Or(s.BetaSlow, 1), Exact: s.Truncate != nil && !*s.Truncate}
	switch {
	case s.Attention != nil:
		r.Attention = *s.Attention
	case s.Scale != 0 && s.ScaleAllDims != 0:
		r.Attention = yarnAttention(s.Factor, s.Scale) / yarnAttention(s.Factor, s.ScaleAllDims)
	default:
		r.Attention = yarnAttention(s.Factor, 1)
	}
	if n := original * s.Factor; n >= 1 && n < math.MaxInt32 {
		c.MaxModelLen = int(n)
	}
}

// long sets r to longrope. stated reports that config.json itself has the original length; the factor in
// rope_scaling is then ignored.
func (s *scaling) long(c *Config, r *Rope, original float64, stated bool) {
	r.Long = &LongRope{Short: s.Short, Long: s.Long, OriginalLength: int(original)}
	factor := s.Factor
	if stated || factor == 0 {
		factor = float64(c.MaxModelLen) / original
	}
	switch {
	case s.Attention != nil:
		r.Attention = *s.Attention
	case factor > 1:
		r.Attention = math.Sqrt(1 + math.Log(factor)/math.Log(original))
	}
}

func (p *published) windowRope(c *Config, f *family) *Rope {
	r := &Rope{Theta: cmp.Or(f.localTheta, c.Rope.Theta)}
	if f.localTheta != 0 {
		r.Theta = cmp.Or(p.LocalTheta, r.Theta)
		if s := p.RopeParams; s != nil && s.Sliding != nil {
			r.Theta = *cmp.Or(s.Sliding.Theta, &f.localTheta)
		}
	}
	return r
}

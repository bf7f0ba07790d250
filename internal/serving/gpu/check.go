package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/model"
)

// ErrUnsupported is wrapped when the kernels cannot compute a model.
var ErrUnsupported = errors.New("the model cannot run on a GPU")

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnsupported, fmt.Errorf(format, args...))
}

// unit is the number of elements that kernels load at a time. The size of every row is a multiple of unit.
const unit = 8

// functions has the kernel of each activation.
var functions = map[model.Activation]kernels.Function{
	model.SiLU: kernels.SiLUAndMul, model.GELU: kernels.GELUNew, model.ReLU: kernels.ReLU, model.GatedGELU: kernels.GELUTanhAndMul,
}

// Check returns an error if the kernels cannot compute a model.
func Check(c *model.Config) error {
	_, known := functions[c.Activation]
	switch {
	case c.Mixed != nil:
		return unsupported("models whose layers have different heads, such as Gemma 4, run on the CPU only")
	case c.Latent != nil:
		return unsupported("latent attention (MLA) runs on the CPU only")
	case c.Recurrence != nil || c.Gate:
		return unsupported("models of the family %s have layers with states, which run on the CPU only", c.Family)
	case c.Experts != nil:
		return unsupported("models with experts run on the CPU only, and this one has %d experts in a layer", c.Experts.Count)
	case c.AttentionChunk > 0 || c.QKNorm == model.RotatedNorm || c.Temperature != nil:
		return unsupported("attention of the family %s runs on the CPU only", c.Family)
	case !known:
		return unsupported("the activation of %s has no kernel", c.Family)
	case c.NumHeads/c.NumKVHeads > kernels.MaxQueryHeads:
		return unsupported("each key head serves %d query heads; at most %d are possible", c.NumHeads/c.NumKVHeads, kernels.MaxQueryHeads)
	case c.HiddenSize%unit != 0 || c.IntermediateSize%unit != 0:
		return unsupported("hidden_size is %d and intermediate_size %d; both must be multiples of %d", c.HiddenSize, c.IntermediateSize, unit)
	}
	return nil
}

// A shape has the sizes of a model on the GPU.
type shape struct {
	*model.Config
	kind             kernels.Type      // of activations
	cacheType        kernels.CacheType // of keys and values
	size             int               // elements of a head, with padding
	query, kv, width int               // elements of the queries, of the keys, and of queries, keys and values of a token
	residual         float32           // factor of what attention and the MLP add
}

func shapeOf(c *model.Config, kind kernels.Type, cache kernels.CacheType) shape {
	s := shape{Config: c, kind: kind, cacheType: cache, residual: float32(cmp.Or(c.ResidualScale, 1))}
	s.size = kernels.HeadSizeFor(c.HeadDim)
	s.query, s.kv = s.NumHeads*s.size, s.NumKVHeads*s.size
	s.width = s.query + 2*s.kv
	return s
}

func (s *shape) attention(blockSize int) kernels.AttentionShape {
	return kernels.AttentionShape{Type: s.kind, Cache: s.cacheType, HeadSize: s.size, Heads: s.NumHeads, KVHeads: s.NumKVHeads, BlockSize: blockSize}
}

// ropes returns the rotations of the layers.
func (s *shape) ropes() map[*model.Rope]bool {
	all := map[*model.Rope]bool{}
	for i := range s.NumLayers {
		if rope := s.RopeOf(i); rope != nil {
			all[rope] = true
		}
	}
	return all
}

// headEpsilon returns the epsilon of the norms of padded heads. The zeros of the padding reduce the mean of
// the squares of a head. The smaller epsilon, with weights multiplied by headWeight, gives the results of the
// head without padding.
func (s *shape) headEpsilon() float32 {
	return float32(s.NormEps * float64(s.HeadDim) / float64(s.size))
}

func (s *shape) headWeight() float32 { return float32(math.Sqrt(float64(s.HeadDim) / float64(s.size))) }

// padHeads returns values with each head padded with zeros.
func (s *shape) padHeads(values []float32) []float32 {
	if s.size == s.HeadDim || values == nil {
		return values
	}
	padded := make([]float32, len(values)/s.HeadDim*s.size)
	for h := range len(values) / s.HeadDim {
		copy(padded[h*s.size:], values[h*s.HeadDim:(h+1)*s.HeadDim])
	}
	return padded
}

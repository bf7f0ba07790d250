package engine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/memplan"
	"llmmemory/internal/scheduling/vllm/v1/pool"
	"llmmemory/internal/scheduling/vllm/v1/sched"
	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvoffload"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/tokenizer"
	"llmmemory/internal/serving/parallel"
)

// ErrConfig is wrapped when an engine cannot be made.
var ErrConfig = errors.New("bad configuration")

// Config says what an engine serves and with which limits. Names are vLLM's.
type Config struct {
	Model     *model.Model
	Tokenizer *tokenizer.Tokenizer
	Pool      *parallel.Pool
	Peers     []Peer // workers that have the other parts of the model, by rank
	Remote    Remote // processes that have the other parts; nil: none

	BlockSize           int   // tokens; 0: 16
	KVCacheBytes        int64 // memory for keys and values
	KVCacheDType        attention.DType
	MaxModelLen         int // 0: what the model knows, or the memory holds if that is less
	MaxNumSeqs          int // 0: 64
	MaxNumBatchedTokens int // 0: 512
	NoPrefixCaching     bool

	// NumSpeculativeTokens is how many tokens are proposed for a sequence by
	// looking up its last ones in what it has; 0: none.
	NumSpeculativeTokens int

	// NoAsyncScheduling schedules a step only when the one before has been delivered. With
	// speculation this is always so: proposals need the tokens of the step before.
	NoAsyncScheduling bool

	// KVEvents gets the events of the prefix cache after each step; nil: nobody.
	KVEvents EventPublisher

	// Hash names the contents of blocks; nil: SHA-256 under a random seed.
	Hash blockhash.Function

	// Offload says how blocks are kept outside the process; nil: they are not. The engine fills in
	// BlockBytes, and closes the tier. Hash must be stable then.
	Offload *kvoffload.Config

	MaxWaiting int // requests that may wait when MaxNumSeqs run, each as often as it has answers; 0: 1,024

	// End are the tokens that end an answer. New adds those of the model and of the tokenizer.
	End []int32

	fit    bool // MaxModelLen is what fits
	asked  int  // MaxModelLen as it was given, or else what the model knows
	groups []kvcache.Group
	places []model.Place // of each layer
}

// An EventPublisher takes the events of a step, which it must not keep. Before that it gets the groups
// that events name.
type EventPublisher interface {
	SetGroups(groups []kvcache.Group)
	Publish(at time.Time, events *pool.Events) error
}

// maxSpeculative keeps the logits of a step small.
const maxSpeculative = 16

// workers is how many have a part of the model.
func (c *Config) workers() int {
	if c.Remote != nil {
		return c.Remote.Size()
	}
	return 1 + len(c.Peers)
}

// Check tells whether the engine could serve a model of the given shape, without the model:
// Model, Tokenizer, Pool and Peers are not looked at. It returns the longest sequence.
func (c Config) Check(m *model.Config, workers int) (maxModelLen int, err error) {
	if err := (model.Part{Size: workers}).Check(m); err != nil {
		return 0, err
	}
	_, err = c.complete(m, workers)
	return c.MaxModelLen, err
}

// complete fills in defaults, refuses what cannot work, and sizes the memory for keys and values.
func (c *Config) complete(m *model.Config, workers int) (kvstore.Config, error) {
	if err := c.defaults(m); err != nil {
		return kvstore.Config{}, err
	}
	return c.stores(m, workers)
}

func (c *Config) defaults(m *model.Config) error {
	c.fit = c.MaxModelLen == 0
	for _, d := range []struct {
		value     *int
		otherwise int
		name      string
	}{
		{&c.BlockSize, 16, "block size"}, {&c.MaxModelLen, m.MaxModelLen, "longest sequence"},
		{&c.MaxNumSeqs, 64, "number of sequences"}, {&c.MaxNumBatchedTokens, 512, "number of tokens in a step"},
		{&c.MaxWaiting, 1024, "number of waiting requests"},
	} {
		if *d.value == 0 {
			*d.value = d.otherwise
		}
		if *d.value < 1 {
			return fmt.Errorf("%w: the %s is %d", ErrConfig, d.name, *d.value)
		}
	}
	c.asked = c.MaxModelLen
	if n := c.NumSpeculativeTokens; n < 0 || n > maxSpeculative {
		return fmt.Errorf("%w: %d speculative tokens; 0 to %d are possible", ErrConfig, n, maxSpeculative)
	}
	if c.MaxModelLen < 2 {
		return fmt.Errorf("%w: the longest sequence is %d; it has at least a token of the prompt and one of the answer", ErrConfig, c.MaxModelLen)
	}
	if c.MaxModelLen > m.MaxModelLen {
		return fmt.Errorf("%w: sequences of %d tokens, the model knows positions up to %d", ErrConfig, c.MaxModelLen, m.MaxModelLen)
	}
	return nil
}

// setEnd adds the tokens that end an answer by the model's configuration and by its tokenizer, as vLLM does.
func (c *Config) setEnd() {
	all := slices.Concat(c.End, c.Model.End, c.Tokenizer.Ends())
	slices.Sort(all)
	c.End = slices.DeleteFunc(slices.Compact(all), func(id int32) bool { return int(id) >= c.Model.VocabSize })
}

// stores sizes the memory for keys and values of each worker. The scheduler keeps one
// block, the null block, for itself.
func (c *Config) stores(m *model.Config, workers int) (kvstore.Config, error) {
	k := kvstore.Config{Shape: m.KVShapeOf(model.Part{Size: workers}, c.BlockSize, c.KVCacheDType), Layers: m.NumLayers}
	if err := k.Shape.Check(); err != nil {
		return k, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	all := int64(workers)
	plan, err := c.share(m, k.Shape.BlockBytes(), c.KVCacheBytes/all)
	if err != nil {
		return k, err
	}
	k.Layers = len(plan.Tensors)
	k.NumBlocks = k.BlocksIn(c.KVCacheBytes / all)
	if len(c.groups) > 1 {
		return k, c.fits(plan)
	}
	if c.fit && k.NumBlocks > 1 {
		c.MaxModelLen = min(c.MaxModelLen, (k.NumBlocks-1)*c.BlockSize)
	}
	if need := (c.MaxModelLen+c.BlockSize-1)/c.BlockSize + 1; k.NumBlocks < need {
		return k, fmt.Errorf("%w: %d MB for keys and values hold %d blocks of %d tokens; a sequence of %d tokens needs %d, which take %d MB: give more memory, or a smaller length of the longest sequence",
			ErrConfig, c.KVCacheBytes>>20, k.NumBlocks, c.BlockSize, c.MaxModelLen, need, (int64(need)*int64(k.BlockBytes())*all+1<<20-1)>>20)
	}
	return k, nil
}

// share decides which layers share a block table and which a layer of the store, as vLLM does.
func (c *Config) share(m *model.Config, page int, bytes int64) (*memplan.Plan, error) {
	layers, numbers := make([]memplan.Layer, m.NumLayers), make([]int, m.NumLayers)
	for i := range layers {
		group := kvcache.Group{Kind: kvcache.Full, BlockSize: c.BlockSize}
		if w := m.Window(i); w > 0 && w < c.MaxModelLen {
			group.Kind, group.Window = kvcache.SlidingWindow, w
		}
		layers[i], numbers[i] = memplan.Layer{Group: group, Page: page}, i
	}
	plans, err := memplan.Make(layers, []memplan.Worker{{Bytes: int(bytes), Layers: numbers}}, memplan.Options{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	plan := plans[0]
	c.places = make([]model.Place, m.NumLayers)
	for g, group := range plan.Groups {
		c.groups = append(c.groups, group.Group)
		for _, l := range group.Layers {
			c.places[l].Group = g
		}
	}
	for t, tensor := range plan.Tensors {
		for _, l := range tensor.Layers {
			c.places[l].Layer = t
		}
	}
	if len(c.groups) > 1 && c.Offload != nil {
		return nil, fmt.Errorf("%w: some layers of the model have a window and others have none; blocks of such models cannot be kept outside the process", ErrConfig)
	}
	return plan, nil
}

// inFlight is how many tokens are scheduled and not delivered, at most, in how many steps.
func (c *Config) inFlight() (tokens, steps int) {
	if c.asyncScheduling() {
		return 2 * c.MaxNumBatchedTokens, 2
	}
	return c.MaxNumBatchedTokens, 1
}

// fits refuses a longest sequence that the blocks of several groups cannot hold, or makes it what they hold.
func (c *Config) fits(plan *memplan.Plan) error {
	tokens, steps := c.inFlight()
	longest, err := plan.LongestModelLen(c.MaxModelLen, tokens, steps)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if c.fit && longest > 1 {
		c.MaxModelLen = longest
	}
	if err := plan.CheckModelLen(c.MaxModelLen, tokens, longest); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

func (c *Config) asyncScheduling() bool {
	return !c.NoAsyncScheduling && c.NumSpeculativeTokens == 0
}

func (c *Config) scheduler(blocks int) (*sched.Scheduler, error) {
	cache := kvcache.Config{
		NumGPUBlocks: blocks, Groups: c.groups, MaxModelLen: c.MaxModelLen, EnablePrefixCaching: !c.NoPrefixCaching,
	}
	if len(c.groups) > 1 {
		cache.MaxInFlightTokens, _ = c.inFlight()
	}
	if cache.EnablePrefixCaching {
		cache.Hash, cache.EnableEvents = c.Hash, c.KVEvents != nil
		if c.Hash == nil {
			cache.Hash = blockhash.CBOR(rand.Text())
		}
	}
	if c.KVEvents != nil {
		c.KVEvents.SetGroups(cache.Groups)
	}
	return sched.New(sched.Config{
		Cache: cache, Connector: sched.Connector{Consumer: c.Offload != nil && c.Offload.Loads}, MaxNumSeqs: c.MaxNumSeqs, MaxNumBatchedTokens: c.MaxNumBatchedTokens,
		NumSpeculativeTokens: c.NumSpeculativeTokens, AsyncScheduling: c.asyncScheduling(),
	})
}

package engine

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
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

// ErrConfig is wrapped by errors of New about its configuration.
var ErrConfig = errors.New("bad configuration")

// Config describes an engine. The names are vLLM's.
type Config struct {
	Model     *model.Model
	Tokenizer *tokenizer.Tokenizer
	Pool      *parallel.Pool
	Peers     []Peer // workers with the other parts of the model, by rank
	Remote    Remote // processes with the other parts of the model; nil if there are none
	Device    Device // computes the model instead of this process; nil if none does

	BlockSize           int   // tokens; 0 means 16
	KVCacheBytes        int64 // memory for keys and values
	KVCacheDType        attention.DType
	MaxModelLen         int // 0 means the model's longest sequence, or what fits into memory if that is less
	MaxNumSeqs          int // 0 means 64
	MaxNumBatchedTokens int // 0 means 512
	MaxLoRAs            int // adapters whose requests may run at a time; 0 means all of them
	NoPrefixCaching     bool

	// AllStates keeps the state after each block of a sequence for later prompts (vLLM's mamba_cache_mode "all", with a
	// prefix_cache_retention_interval of None). Otherwise these are kept: the state at the end of each prompt, and the one
	// where a prompt leaves an earlier one ("align", with vLLM's default interval of 0; scheduling/vllm/v1/RULES.md §9).
	// Without prefix caching, only the last state is kept ("none").
	AllStates bool

	NumSpeculativeTokens int // drafts for each sequence in a step, by prompt lookup

	// NoAsyncScheduling makes the engine deliver the tokens of a step before it schedules the next step.
	// With speculation the engine always does so, because the drafts for a step depend on the tokens of the
	// step before.
	NoAsyncScheduling bool

	KVEvents EventPublisher // gets the events of the prefix cache after each step, unless nil

	// Adapters has a text for each adapter of the model. Requests with different adapters share no blocks, because the
	// hashes of their blocks depend on these texts. Without tiers, the name of an adapter suffices (vLLM's lora_name). With
	// tiers, the text must identify the contents of the adapter.
	Adapters []string

	Hash blockhash.Function // of the contents of blocks; nil means SHA-256 with a random seed

	// Offload configures the tiers of blocks outside the process. If it is nil, there are none. The engine sets
	// Offload.BlockBytes and closes its tier. All processes that use the tier need the same Hash.
	Offload *kvoffload.Config

	Weights    WeightStore   // nil if the engine cannot sleep; it has the models' memory
	IdleUnload time.Duration // how long the engine has no requests before it sleeps; 0 means that it does not

	MaxWaiting int // answers that may wait while MaxNumSeqs run; 0 means 1,024

	End []int32 // end tokens; New adds the end tokens of the model and of the tokenizer

	fitModelLen   bool // MaxModelLen was not given, so it becomes what fits
	askedModelLen int  // MaxModelLen before that
	hashBlockSize int  // BlockSize before states raised it, or 0
	groups        []kvcache.Group
	places        []model.Place // of each layer
}

// An EventPublisher publishes the events of each step. The engine calls SetGroups once, before the first Publish.
// Publish must not keep the events after it returns.
type EventPublisher interface {
	SetGroups(groups []kvcache.Group)
	Publish(now time.Time, events *pool.Events) error
}

// maxSpeculative limits NumSpeculativeTokens, and so the logits of a step.
const maxSpeculative = 16

// workers returns the number of parts of the model.
func (c *Config) workers() int {
	if c.Remote != nil {
		return c.Remote.Size()
	}
	return 1 + len(c.Peers)
}

// Check returns the longest sequence that an engine can serve with a model of the given configuration, or an error if
// the two configurations do not fit together. It ignores Model, Tokenizer, Pool and Peers.
func (c Config) Check(m *model.Config, workers int) (maxModelLen int, err error) {
	if err := (model.Part{Size: workers}).Check(m); err != nil {
		return 0, err
	}
	_, err = c.complete(m, workers)
	return c.MaxModelLen, err
}

// MinKVCacheBytes returns the smallest KVCacheBytes that Check accepts for the model m with one worker. If MaxModelLen
// is not given, these bytes are enough for a short sequence. MinKVCacheBytes also returns the size of a token's keys
// and values in one group of layers.
func (c Config) MinKVCacheBytes(m *model.Config) (bytes int64, token int, err error) {
	const limit = math.MaxInt32 << 16
	storeOf := func(bytes int) (kvstore.Config, error) {
		c := c
		c.KVCacheBytes = int64(bytes)
		return c.complete(m, 1)
	}
	store, err := storeOf(limit)
	if err != nil {
		return 0, 0, err
	}
	minimum := sort.Search(limit, func(n int) bool {
		_, err := storeOf(n)
		return err == nil
	})
	return int64(minimum), store.BlockBytes() / store.Shape.BlockSize, nil
}

// complete fills in defaults, checks the values, and returns the configuration of each worker's store.
func (c *Config) complete(m *model.Config, workers int) (kvstore.Config, error) {
	if err := c.defaults(m); err != nil {
		return kvstore.Config{}, err
	}
	return c.store(m, workers)
}

func (c *Config) defaults(m *model.Config) error {
	c.fitModelLen = c.MaxModelLen == 0
	for _, d := range []struct {
		value     *int
		byDefault int
		name      string
	}{
		{&c.BlockSize, 16, "block size"}, {&c.MaxModelLen, m.MaxModelLen, "longest sequence"},
		{&c.MaxNumSeqs, 64, "number of sequences"}, {&c.MaxNumBatchedTokens, 512, "number of tokens in a step"},
		{&c.MaxWaiting, 1024, "number of waiting requests"},
	} {
		if *d.value = cmp.Or(*d.value, d.byDefault); *d.value < 1 {
			return fmt.Errorf("%w: the %s is %d; it must be at least 1", ErrConfig, d.name, *d.value)
		}
	}
	c.askedModelLen = c.MaxModelLen
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

// store returns the configuration of each worker's store. One block of the store is the scheduler's null block and has
// no contents.
func (c *Config) store(m *model.Config, workers int) (kvstore.Config, error) {
	if err := c.fitState(m); err != nil {
		return kvstore.Config{}, err
	}
	k := kvstore.Config{Shape: m.KVShapeOf(model.Part{Size: workers}, c.BlockSize, c.KVCacheDType), Layers: m.NumLayers}
	if c.Device != nil {
		var err error
		if k.Shape, err = c.Device.KVShape(c.BlockSize); err != nil {
			return k, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	if err := k.Shape.Check(); err != nil {
		return k, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	all := int64(workers)
	plan, err := c.share(m, k.Shape.BlockBytes(), c.KVCacheBytes/all)
	if err != nil {
		return k, err
	}
	if m.Mixed != nil {
		k.Shape = m.LayerShape(0, model.Part{}, c.places[0].BlockSize, c.KVCacheDType)
	}
	k.Layers = len(plan.Tensors)
	k.NumBlocks = k.BlocksIn(c.KVCacheBytes / all)
	if len(c.groups) > 1 {
		return k, c.fits(plan)
	}
	if c.fitModelLen && k.NumBlocks > 1 {
		c.MaxModelLen = min(c.MaxModelLen, (k.NumBlocks-1)*c.BlockSize)
	}
	if need := (c.MaxModelLen+c.BlockSize-1)/c.BlockSize + 1; k.NumBlocks < need {
		return k, fmt.Errorf("%w: %d MB for keys and values hold %d blocks of %d tokens; a sequence of %d tokens needs %d, which take %d MB: give more memory, or a smaller length of the longest sequence",
			ErrConfig, c.KVCacheBytes>>20, k.NumBlocks, c.BlockSize, c.MaxModelLen, need, (int64(need)*int64(k.BlockBytes())*all+1<<20-1)>>20)
	}
	return k, nil
}

// share divides the layers of the model into groups, as vLLM does. The layers of a group share a block table. Layers of
// different groups can use the same layer of the store.
func (c *Config) share(m *model.Config, page int, bytes int64) (*memplan.Plan, error) {
	var own []int // the layers that have keys and values, or states
	for i := range m.NumLayers {
		if m.Mixes(i) && m.KVSource(i) == i {
			own = append(own, i)
		}
	}
	layers, numbers := make([]memplan.Layer, len(own)), make([]int, len(own))
	for k, i := range own {
		numbers[k] = k
		if m.Recurrent(i) {
			layers[k] = memplan.Layer{Group: c.stateGroup(), StateBytes: m.StateBytes()}
			continue
		}
		group := kvcache.Group{Kind: kvcache.Full, BlockSize: c.BlockSize}
		if w := m.Window(i); w > 0 && (w < c.MaxModelLen || m.Mixed != nil) { // one group would have blocks of different bytes
			group.Kind, group.Window = kvcache.SlidingWindow, w
		} else if n := m.Chunk(i); n > 0 && n < c.MaxModelLen {
			group.Kind, group.Chunk = kvcache.ChunkedLocal, n
		}
		if m.Mixed != nil {
			shape := m.LayerShape(i, model.Part{}, c.BlockSize, c.KVCacheDType)
			if err := shape.Check(); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrConfig, err)
			}
			page = shape.BlockBytes()
		}
		layers[k] = memplan.Layer{Group: group, Page: page}
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
			c.places[own[l]].Group, c.places[own[l]].BlockSize = g, group.BlockSize
		}
	}
	for t, tensor := range plan.Tensors {
		for _, l := range tensor.Layers {
			c.places[own[l]].Layer = t
		}
	}
	for i := range c.places {
		c.places[i] = c.places[m.KVSource(i)]
	}
	return plan, c.checkTiers(m)
}

// checkTiers returns an error if blocks of the model's groups cannot be kept outside the process.
func (c *Config) checkTiers(m *model.Config) error {
	windows := slices.ContainsFunc(c.groups, func(g kvcache.Group) bool { return g.Kind != kvcache.Full && g.Kind != kvcache.Mamba })
	switch {
	case c.Offload == nil || len(c.groups) == 1:
		return nil
	case windows || m.Mixed != nil:
		return fmt.Errorf("%w: some layers of the model have a window, chunks or other heads and others have none; blocks of such models cannot be kept outside the process", ErrConfig)
	case c.AllStates:
		return fmt.Errorf("%w: states after all blocks cannot be kept outside the process; those at the ends of prompts can", ErrConfig)
	}
	return nil
}

// fitState increases the size of blocks, so that a block of keys and values has space for a state (vLLM
// changes block_size in the same way).
func (c *Config) fitState(m *model.Config) error {
	state := m.StateBytes()
	if state == 0 {
		return nil
	}
	if c.NumSpeculativeTokens > 0 {
		return fmt.Errorf("%w: %d speculative tokens for a model whose layers have states; a state cannot go back if a draft is rejected",
			ErrConfig, c.NumSpeculativeTokens)
	}
	k := m.KVShapeOf(model.Part{}, c.BlockSize, c.KVCacheDType)
	block := k.BlockBytes()
	c.hashBlockSize = c.BlockSize
	c.BlockSize *= (state + block - 1) / block
	if c.BlockSize > attention.MaxBlockSize {
		return fmt.Errorf("%w: a state takes %d bytes, as much as the keys and values of %d tokens; a block has at most %d",
			ErrConfig, state, c.BlockSize, attention.MaxBlockSize)
	}
	return nil
}

// stateGroup returns the group of a layer with states.
func (c *Config) stateGroup() kvcache.Group {
	if c.NoPrefixCaching {
		return kvcache.Group{Kind: kvcache.Mamba, BlockSize: c.MaxModelLen}
	}
	return kvcache.Group{Kind: kvcache.Mamba, BlockSize: c.BlockSize, Align: !c.AllStates}
}

// inFlight returns the largest number of tokens in the steps that are in flight, and the largest number of these steps.
func (c *Config) inFlight() (tokens, steps int) {
	if c.asyncScheduling() {
		return 2 * c.MaxNumBatchedTokens, 2
	}
	return c.MaxNumBatchedTokens, 1
}

// fits returns an error if the memory for blocks is too small for a sequence of MaxModelLen tokens. store calls it for
// models with several groups of layers. If MaxModelLen was not given, fits sets it to the longest sequence for which
// the memory is enough.
func (c *Config) fits(plan *memplan.Plan) error {
	tokens, steps := c.inFlight()
	if c.hitsInsideBlocks() { // the block is copied
		smaller := *plan
		smaller.NumGPUBlocks = max(plan.NumGPUBlocks-len(plan.Groups), 1)
		plan = &smaller
	}
	longest, err := plan.LongestModelLen(c.MaxModelLen, tokens, steps)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if c.fitModelLen && longest > 1 {
		c.MaxModelLen = longest
	}
	if err := plan.CheckModelLen(c.MaxModelLen, tokens, longest); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// hitsInsideBlocks reports whether a hit can end inside a block, because states made blocks larger than BlockSize was.
func (c *Config) hitsInsideBlocks() bool {
	return c.hashBlockSize > 0 && c.hashBlockSize < c.BlockSize && !c.AllStates && !c.NoPrefixCaching
}

// asyncScheduling reports whether two steps may be in flight. With states at the ends of chunks there is one: with two, a
// request would keep the states of all chunks of its prompt until it ends (scheduling/vllm/v1/RULES.md §13).
func (c *Config) asyncScheduling() bool {
	aligned := c.hashBlockSize > 0 && !c.AllStates && !c.NoPrefixCaching
	return !c.NoAsyncScheduling && c.NumSpeculativeTokens == 0 && !aligned
}

func (c *Config) scheduler(blocks int) (*sched.Scheduler, error) {
	cache := kvcache.Config{
		NumGPUBlocks: blocks, Groups: c.groups, MaxModelLen: c.MaxModelLen, EnablePrefixCaching: !c.NoPrefixCaching,
	}
	if len(c.groups) > 1 {
		cache.MaxInFlightTokens, _ = c.inFlight()
	}
	if cache.EnablePrefixCaching {
		if c.hitsInsideBlocks() {
			cache.HashBlockSize = c.hashBlockSize
		}
		if c.AllStates && c.hashBlockSize > 0 {
			cache.RetentionInterval = kvcache.RetainAll
		}
		cache.Hash, cache.EnableEvents = c.Hash, c.KVEvents != nil
		if c.Hash == nil {
			cache.Hash = blockhash.CBOR(rand.Text())
		}
	}
	if c.KVEvents != nil {
		c.KVEvents.SetGroups(cache.Groups)
	}
	maxLoRAs := c.MaxLoRAs
	if len(c.Adapters) <= maxLoRAs {
		maxLoRAs = 0 // no limit
	}
	return sched.New(sched.Config{
		Cache:       cache,
		Connector:   sched.Connector{Consumer: c.Offload != nil && c.Offload.Loads},
		Limits:      sched.Limits{MaxNumSeqs: c.MaxNumSeqs, MaxNumBatchedTokens: c.MaxNumBatchedTokens},
		Speculation: sched.Speculation{NumSpeculativeTokens: c.NumSpeculativeTokens},
		Batches:     sched.Batches{AsyncScheduling: c.asyncScheduling()},
		MaxLoRAs:    maxLoRAs,
	})
}

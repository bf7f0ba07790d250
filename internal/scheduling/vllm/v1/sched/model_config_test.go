package sched

import (
	"pgregory.net/rapid"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/testkit/level"
)

var layouts = [][]kvcache.Group{
	{{Kind: kvcache.Full, BlockSize: 4}},
	{{Kind: kvcache.SlidingWindow, BlockSize: 4, Window: 7}},
	{{Kind: kvcache.Full, BlockSize: 4}, {Kind: kvcache.SlidingWindow, BlockSize: 2, Window: 5}},
	{{Kind: kvcache.Full, BlockSize: 4}, {Kind: kvcache.ChunkedLocal, BlockSize: 4, Chunk: 8}},
	{{Kind: kvcache.Full, BlockSize: 4}, {Kind: kvcache.Mamba, BlockSize: 4, Align: true}},
	{{Kind: kvcache.Full, BlockSize: 8}, {Kind: kvcache.Mamba, BlockSize: 8, Align: true}},
}

const longest = 40

var connectors = []Connector{{}, {}, {Consumer: true}, {Producer: true}, {Consumer: true, Producer: true}, {Consumer: true, Producer: true, BestEffort: true}}

func drawConfig(t *rapid.T) Config {
	layout := rapid.SampledFrom(layouts).Draw(t, "layout")
	c := Config{
		Policy: rapid.SampledFrom([]Policy{FCFS, Priority}).Draw(t, "policy"),
		Limits: Limits{
			MaxNumSeqs:                rapid.IntRange(1, 6).Draw(t, "seqs"),
			MaxNumBatchedTokens:       rapid.IntRange(4, 24).Draw(t, "tokens"),
			LongPrefillTokenThreshold: rapid.SampledFrom([]int{0, 0, 2, 5}).Draw(t, "long prefill"),
			AdmitChunks:               rapid.Bool().Draw(t, "admit chunks"),
		},
		Speculation: Speculation{NumSpeculativeTokens: rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "drafts")},
		Batches: Batches{
			AsyncScheduling:      rapid.Bool().Draw(t, "async"),
			PipelineParallelSize: rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "stages"),
		},
		Cache: kvcache.Config{
			NumGPUBlocks: rapid.SampledFrom([]int{6, 8, 11, 14, 18, 25, 40}).Draw(t, "blocks"), Groups: layout, MaxModelLen: longest,
			EnablePrefixCaching: rapid.SampledFrom([]bool{true, true, false}).Draw(t, "caching"), Hash: blockhash.LE{},
			RetentionInterval: rapid.SampledFrom([]int{kvcache.RetainAll, 0}).Draw(t, "retention"),
			Watermark:         rapid.SampledFrom([]float64{0, 0, 0.1}).Draw(t, "watermark"),
		},
	}
	c.EncoderCacheSize = rapid.SampledFrom([]int{0, 12, 20, 30}).Draw(t, "encoder cache")
	if c.EncoderCacheSize > 0 {
		c.MaxNumEncoderInputTokens = rapid.SampledFrom([]int{0, 8, 40}).Draw(t, "encoder budget")
		c.DisableChunkedMMInput = rapid.IntRange(0, 3).Draw(t, "whole items") == 0 && layout[len(layout)-1].Kind != kvcache.Mamba
	}
	c.ZeroNewBlocks = rapid.Bool().Draw(t, "zero")
	c.MaxLoRAs = rapid.SampledFrom([]int{0, 1}).Draw(t, "adapters")
	if rapid.IntRange(0, 3).Draw(t, "eagle") == 0 && layout[len(layout)-1].Kind != kvcache.ChunkedLocal {
		c.Cache.Eagle, c.NumLookaheadTokens = true, c.NumSpeculativeTokens
	}
	c.DisableChunkedPrefill = rapid.IntRange(0, 3).Draw(t, "whole prefills") == 0
	if c.DisableChunkedPrefill {
		c.MaxNumBatchedTokens = longest
	}
	if layout[0].BlockSize == 8 && c.Cache.EnablePrefixCaching {
		c.Cache.HashBlockSize = 4 // hits inside a block
	}
	c.Connector = rapid.SampledFrom(connectors).Draw(t, "connector")
	if layout[len(layout)-1].Kind != kvcache.Mamba && !c.AsyncScheduling && c.PipelineParallelSize == 1 {
		c.ReturnDrafts = rapid.Bool().Draw(t, "return drafts")
	}
	return c
}

// underPressure draws a configuration in which requests often lose their blocks and often hit each other's blocks. A
// connector that keeps blocks makes preemptions rare. So, except in make exhaustive, half of the configurations have no
// connector.
func underPressure(t *rapid.T) Config {
	return Config{
		Policy: rapid.SampledFrom([]Policy{Priority, Priority, FCFS}).Draw(t, "policy"),
		Limits: Limits{
			MaxNumSeqs:          4,
			MaxNumBatchedTokens: rapid.IntRange(4, 12).Draw(t, "tokens"),
			AdmitChunks:         true,
		},
		Batches: Batches{
			AsyncScheduling:      rapid.IntRange(0, 2).Draw(t, "async") == 0,
			PipelineParallelSize: rapid.SampledFrom([]int{1, 1, 2}).Draw(t, "stages"),
		},
		Connector: rapid.SampledFrom(level.Pick(connectors[1:3], connectors)).Draw(t, "connector"),
		Cache: kvcache.Config{
			NumGPUBlocks: rapid.SampledFrom([]int{11, 12, 14}).Draw(t, "blocks"),
			Groups:       []kvcache.Group{{Kind: kvcache.Full, BlockSize: 4}}, MaxModelLen: longest,
			EnablePrefixCaching: true, Hash: blockhash.LE{},
		},
		Encoder: Encoder{EncoderCacheSize: rapid.SampledFrom([]int{0, 12}).Draw(t, "encoder cache")},
	}
}

// contended draws a configuration in which requests compete. A request can wait for an encoder output or an adapter,
// because other requests use the space. It can wait for a block, because blocks that are being loaded or sent are not
// free.
func contended(t *rapid.T) Config {
	return Config{
		Policy: rapid.SampledFrom([]Policy{Priority, FCFS}).Draw(t, "policy"),
		Limits: Limits{
			MaxNumSeqs:                rapid.IntRange(2, 4).Draw(t, "seqs"),
			MaxNumBatchedTokens:       rapid.IntRange(6, 16).Draw(t, "tokens"),
			LongPrefillTokenThreshold: rapid.SampledFrom([]int{4, 5, 0}).Draw(t, "long prefill"),
			AdmitChunks:               rapid.Bool().Draw(t, "admit chunks"),
		},
		Batches:   Batches{AsyncScheduling: rapid.IntRange(0, 3).Draw(t, "async") == 0},
		Connector: rapid.SampledFrom(connectors).Draw(t, "connector"),
		MaxLoRAs:  rapid.SampledFrom([]int{0, 1}).Draw(t, "adapters"),
		Encoder:   Encoder{EncoderCacheSize: rapid.SampledFrom([]int{10, 12, 16}).Draw(t, "encoder cache")},
		Cache: kvcache.Config{
			NumGPUBlocks: rapid.SampledFrom([]int{11, 14, 30}).Draw(t, "blocks"),
			Groups:       []kvcache.Group{{Kind: kvcache.Full, BlockSize: 4}}, MaxModelLen: longest,
			EnablePrefixCaching: true, Hash: blockhash.LE{}, Eagle: rapid.Bool().Draw(t, "eagle"),
		},
	}
}

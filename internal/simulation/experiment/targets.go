package experiment

import (
	_ "embed"
	"encoding/json"
)

//go:embed targets.json
var targetsJSON []byte

// targets are the values that the paper prints (simulation/PAPER.md §2).
var targets = embedded[struct {
	Model struct {
		KVBytes int64 `json:"kv_bytes_per_token"`
		Blocks  int   `json:"num_gpu_blocks"`
		Slots   int   `json:"slots"`
	} `json:"model"`
	Fig2 struct {
		Rate     float64    `json:"rate"`
		Duration float64    `json:"duration"`
		Window   [2]float64 `json:"window"`
		Max      [4]float64 `json:"max"`
		Pow2     [4]float64 `json:"pow2"`
		Oracle   [4]float64 `json:"oracle"`
		VLLM     []*float64 `json:"vllm"`
	} `json:"fig2"`
	Fig13 struct { // by system
		ShareGPT map[string]float64 `json:"sharegpt_rate2"`
		Alpaca   map[string]float64 `json:"alpaca_rate30"`
	} `json:"fig13"`
	Fig15 struct {
		Parallel map[string]float64 `json:"parallel"`
		Beam     map[string]float64 `json:"beam"`
	} `json:"fig15_alpaca_saving_pct"`
	Fig18a struct {
		Contexts []int      `json:"contexts"`
		Ratio    [2]float64 `json:"paged_against_contiguous"`
	} `json:"fig18a"`
	ShareGPTSaving struct {
		Parallel [2]float64 `json:"parallel_range"`
		Beam     [2]float64 `json:"beam_range"`
	} `json:"text_sharegpt_saving_pct"`
	Lengths map[string]struct {
		Prompt float64 `json:"mean_in"`
		Output float64 `json:"mean_out"`
	} `json:"lengths"`
	Ratio struct {
		Oracle       [2]float64 `json:"sharegpt_oracle"`
		Max          [2]float64 `json:"sharegpt_max"`
		Static       float64    `json:"ft_upto"`
		AlpacaOracle float64    `json:"alpaca13b_oracle"`
		Beam6        float64    `json:"beam6_alpaca_oracle"`
		Samples      [3]float64 `json:"samples_alpaca_oracle"` // read off the drawn curves
		OneShot      float64    `json:"prefix_1shot"`
		OneShotRates [2]float64 `json:"prefix_1shot_rates"` // of vLLM and Orca (Oracle), read off the drawn curves
		FiveShot     float64    `json:"prefix_5shot"`
		Chat         float64    `json:"chat"`
	} `json:"rate_ratio_vs"`
}](targetsJSON)

// embedded decodes an embedded file and panics if it is not valid.
func embedded[T any](text []byte) (v T) {
	if err := json.Unmarshal(text, &v); err != nil {
		panic(err)
	}
	return v
}

package model

import "encoding/json"

// expertFields has fields of config.json that only DeepSeek, GLM, Llama 4, Gemma 4, ERNIE and families like them have.
type expertFields struct {
	// DeepSeek
	QueryRank     *int    `json:"q_lora_rank"`
	KVRank        int     `json:"kv_lora_rank"`
	NopeDim       int     `json:"qk_nope_head_dim"`
	RopeDim       int     `json:"qk_rope_head_dim"`
	ValueDim      int     `json:"v_head_dim"`
	Interleaved   *bool   `json:"rope_interleave"`
	RoutedExperts *int    `json:"n_routed_experts"`
	SharedExperts *int    `json:"n_shared_experts"`
	RoutedScale   float64 `json:"routed_scaling_factor"`
	FirstDense    int     `json:"first_k_dense_replace"`
	MixtureEvery  int     `json:"moe_layer_freq"`
	Groups        *int    `json:"n_group"`
	ChosenGroups  *int    `json:"topk_group"`
	DraftLayers   int     `json:"num_nextn_predict_layers"`
	ChoiceMethod  string  `json:"topk_method"`
	Scoring       string  `json:"scoring_func"`

	HeadNorms     *bool    `json:"use_qk_norm"`     // GLM and Llama 4
	MLPLayerTypes []string `json:"mlp_layer_types"` // GLM: dense or sparse

	// Llama 4
	DenseIntermediate int             `json:"intermediate_size_mlp"`
	MixtureStep       int             `json:"interleave_moe_layer_step"`
	MixtureLayers     []int           `json:"moe_layers"`
	ChunkSize         json.RawMessage `json:"attention_chunk_size"`
	Tuning            json.RawMessage `json:"attn_temperature_tuning"`
	FloorScale        float64         `json:"floor_scale"`
	AttnScale         float64         `json:"attn_scale"`

	// Gemma 4
	GlobalHeadDim int    `json:"global_head_dim"`
	GlobalKVHeads int    `json:"num_global_key_value_heads"`
	KeyIsValue    bool   `json:"attention_k_eq_v"`
	SharedLayers  int    `json:"num_kv_shared_layers"`
	WideMLP       bool   `json:"use_double_wide_mlp"`
	PerLayerDim   *int   `json:"hidden_size_per_layer_input"`
	PerLayerVocab int    `json:"vocab_size_per_layer_input"`
	MoEBlock      bool   `json:"enable_moe_block"`
	Bidirectional string `json:"use_bidirectional_attention"`
	ropes         *scaling

	// ERNIE
	Bias        bool `json:"use_bias"`
	MoECount    int  `json:"moe_num_experts"`
	MoEPerToken int  `json:"moe_k"`
	MoEShared   int  `json:"moe_num_shared_experts"`
	MoEFirst    *int `json:"moe_layer_start_index"`
	MoELast     *int `json:"moe_layer_end_index"`
	MoEInterval int  `json:"moe_layer_interval"`
}

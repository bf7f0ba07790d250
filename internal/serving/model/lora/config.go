package lora

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"llmmemory/internal/serving/model/pyjson"
)

const configFile = "adapter_config.json"

// A config has what adapter_config.json says about ranks, scales and modules. The names are PEFT's.
type config struct {
	Type         string          `json:"peft_type"`
	R            int             `json:"r"`
	Alpha        float64         `json:"lora_alpha"`
	RSLoRA       bool            `json:"use_rslora"`
	RankPattern  patterns        `json:"rank_pattern"`
	AlphaPattern patterns        `json:"alpha_pattern"`
	Targets      json.RawMessage `json:"target_modules"`
	Layers       json.RawMessage `json:"layers_to_transform"`
	Excluded     json.RawMessage `json:"exclude_modules"`
	Initial      json.RawMessage `json:"init_lora_weights"`

	targets []string // nil if target_modules is missing, a regular expression or all-linear
	partial bool     // of the modules in targets, only some are changed
}

// unsupported lists the fields that change what an adapter computes and that are not supported, with what they ask for.
// null, false, empty and "none" are accepted.
var unsupported = []struct{ field, feature string }{
	{"use_dora", "DoRA"}, {"modules_to_save", "modules beside the adapter"}, {"bias", "trained biases"}, {"lora_bias", "biases of B"},
	{"trainable_token_indices", "trained embeddings"}, {"target_parameters", "adapters of parameters, such as experts"},
	{"layer_replication", "repeated layers"}, {"use_qalora", "QALoRA"}, {"use_bdlora", "BD-LoRA"},
	{"alora_invocation_tokens", "activated adapters (aLoRA)"}, {"arrow_config", "Arrow"},
}

// readConfig reads adapter_config.json. PEFT's defaults are r = 8 and lora_alpha = 8.
func readConfig(dir string) (*config, error) {
	data, err := os.ReadFile(filepath.Join(dir, configFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, refused("%s has no %s; an adapter is a folder of PEFT or a GGUF file", dir, configFile)
	}
	if err != nil {
		return nil, refused("%w", err)
	}
	c := &config{R: 8, Alpha: 8}
	var fields map[string]json.RawMessage
	if err := errors.Join(pyjson.Unmarshal(data, &fields), pyjson.Unmarshal(data, c)); err != nil {
		return nil, refused("%s: %w", configFile, err)
	}
	for _, u := range unsupported {
		if value := fields[u.field]; !empty(value) {
			return nil, refused("%s has %s %s (%s), which is not supported", configFile, u.field, shortened(value), u.feature)
		}
	}
	return c, c.check()
}

// empty reports whether a field is missing or has a value that changes nothing.
func empty(value json.RawMessage) bool {
	switch string(bytes.Join(bytes.Fields(value), nil)) {
	case "", "null", "false", "[]", "{}", `""`, `"none"`:
		return true
	}
	return false
}

func shortened(value json.RawMessage) string {
	text := pyjson.Text(value)
	return text[:min(len(text), 80)]
}

func (c *config) check() error {
	var initial string
	_ = json.Unmarshal(c.Initial, &initial) // also true, false or missing
	// PEFT subtracts the initial B A of these from the weights of the model.
	for _, name := range []string{"pissa", "olora", "corda", "loftq"} {
		if strings.HasPrefix(strings.ToLower(initial), name) {
			return refused("%s has init_lora_weights %q: the adapter is for a changed model; convert it to a plain adapter "+
				"(path_initial_model_for_weight_conversion of peft's save_pretrained)", configFile, initial)
		}
	}
	switch {
	case c.Type != "LORA":
		return refused("peft_type of %s is %q; LORA is supported", configFile, c.Type)
	case c.R < 1:
		return refused("r of %s is %d; it must be at least 1", configFile, c.R)
	}
	for _, p := range c.RankPattern {
		if p.number < 1 || p.number != math.Trunc(p.number) || p.number > math.MaxInt32 {
			return refused("rank_pattern of %s has the rank %v", configFile, p.number)
		}
	}
	c.partial = !empty(c.Layers) || !empty(c.Excluded)
	_ = json.Unmarshal(c.Targets, &c.targets) // else it is a regular expression
	return nil
}

// settings returns the rank and the scale of a module, as PEFT computes them.
func (c *config) settings(module string) (rank int, scale float64) {
	r := c.RankPattern.value(module, float64(c.R))
	alpha := c.AlphaPattern.value(module, c.Alpha)
	if c.RSLoRA {
		return int(r), alpha / math.Sqrt(r)
	}
	return int(r), alpha / r
}

// patterns are the values of modules by regular expressions, in the order of the file. The first one that matches the
// end of a module's name counts (PEFT's get_pattern_key).
type patterns []pattern

type pattern struct {
	modules *regexp.Regexp
	number  float64
}

// UnmarshalJSON reads a JSON object in the order of its fields.
func (p *patterns) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return cmp.Or(err, notNull(data))
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		var value float64
		if err := d.Decode(&value); err != nil {
			return err
		}
		modules, err := regexp.Compile(`^(?:(?:.*\.)?(?:` + key.(string) + `))$`)
		if err != nil {
			return refused("the key %q of rank_pattern or alpha_pattern is not a regular expression that is supported: %w", key, err)
		}
		*p = append(*p, pattern{modules, value})
	}
	return nil
}

func notNull(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	return errors.New("rank_pattern and alpha_pattern are objects")
}

func (p patterns) value(module string, otherwise float64) float64 {
	for _, one := range p {
		if one.modules.MatchString(module) {
			return one.number
		}
	}
	return otherwise
}

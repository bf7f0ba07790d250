package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/lora"
)

// loraOptions are the flags for adapters.
type loraOptions struct {
	modules  []string
	maxLoRAs int
	maxRank  int

	given    *pflag.FlagSet
	named    []openai.Adapter
	adapters []*lora.Adapter // open until the model is loaded
	contents []string        // their fingerprints at the start, if a tier or other processes need them
}

func (o *loraOptions) flags(f *pflag.FlagSet) {
	o.given = f
	f.StringArrayVar(&o.modules, "lora-modules", nil,
		`adapter (LoRA) that requests choose as their model: NAME=PATH, or {"name": NAME, "path": PATH, "base_model_name": PARENT}; `+
			"PATH is a folder of PEFT for a model in a folder, a GGUF file for one in GGUF; may be given several times")
	f.IntVar(&o.maxLoRAs, "max-loras", 0, "adapters whose requests may run at a time (default: all)")
	f.IntVar(&o.maxRank, "max-lora-rank", lora.MaxRank, "largest rank of an adapter")
}

// split returns the modules among the arguments, as vLLM takes several of them after one flag, and the other arguments.
func (o *loraOptions) split(args []string) (others, modules []string) {
	for _, arg := range args {
		_, err := os.Stat(arg)
		if len(o.modules) > 0 && err != nil && (strings.Contains(arg, "=") || strings.HasPrefix(arg, "{")) {
			modules = append(modules, arg)
		} else {
			others = append(others, arg)
		}
	}
	return others, modules
}

// check reads the flags. It does not open the adapters.
func (o *loraOptions) check() error {
	if o.given == nil { // not a server
		return nil
	}
	if len(o.modules) == 0 {
		for _, name := range []string{"max-loras", "max-lora-rank"} {
			if o.given.Changed(name) {
				return fmt.Errorf("--%s needs --lora-modules", name)
			}
		}
		return nil
	}
	switch {
	case o.maxLoRAs < 0 || o.maxLoRAs == 0 && o.given.Changed("max-loras"):
		return fmt.Errorf("--max-loras is %d; it must be at least 1", o.maxLoRAs)
	case o.maxRank < 1 || o.maxRank > lora.MaxRank:
		return fmt.Errorf("--max-lora-rank is %d; it must be from 1 to %d", o.maxRank, lora.MaxRank)
	}
	o.named = nil
	names := map[string]bool{}
	for _, module := range o.modules {
		a, err := parseModule(module)
		switch {
		case err != nil:
			return err
		case names[a.Name]:
			return fmt.Errorf("--lora-modules has two adapters with the name %q", a.Name)
		}
		names[a.Name] = true
		o.named = append(o.named, a)
	}
	return nil
}

// checkNames returns an error if an adapter has one of the model's names.
func (o *loraOptions) checkNames(model []string) error {
	for _, a := range o.named {
		if slices.Contains(model, a.Name) {
			return fmt.Errorf("--lora-modules: %q is the name of the model; give the adapter another one, or the model with "+
				"--served-model-name", a.Name)
		}
	}
	return nil
}

// parseModule reads a value of --lora-modules, in either of vLLM's forms.
func parseModule(text string) (openai.Adapter, error) {
	a := openai.Adapter{}
	if strings.HasPrefix(text, "{") {
		var module struct {
			Name string `json:"name"`
			Path string `json:"path"`
			Base string `json:"base_model_name"`
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&module); err != nil {
			return a, fmt.Errorf("--lora-modules %s: %w", text, err)
		}
		a = openai.Adapter{Name: module.Name, Path: module.Path, Base: module.Base}
	} else {
		a.Name, a.Path, _ = strings.Cut(text, "=")
	}
	if strings.TrimSpace(a.Name) == "" || a.Path == "" {
		return a, fmt.Errorf("--lora-modules is %q; give NAME=PATH", text)
	}
	return a, nil
}

// bytes estimates the memory of the adapters.
func (o *loraOptions) bytes() (n int, err error) {
	if err := o.open(); err != nil {
		return 0, err
	}
	for _, a := range o.adapters {
		n += model.AdapterBytes(a)
	}
	return n, o.close()
}

// open opens the adapters.
func (o *loraOptions) open() error {
	for _, named := range o.named {
		a, err := lora.Open(named.Path, o.maxRank)
		if err != nil {
			return errors.Join(fmt.Errorf("--lora-modules %s: %w", named.Name, err), o.close())
		}
		o.adapters = append(o.adapters, a)
	}
	return nil
}

// fingerprints reads the contents of the open adapters.
func (o *loraOptions) fingerprints() (all []string) {
	for _, a := range o.adapters {
		all = append(all, a.Fingerprint())
	}
	return all
}

// close closes the files of the adapters.
func (o *loraOptions) close() error {
	var err error
	for _, a := range o.adapters {
		err = errors.Join(err, a.Close())
	}
	o.adapters = nil
	return err
}

// option returns the options for a model with the adapters.
func (o *loraOptions) option() []model.Option {
	if len(o.adapters) == 0 {
		return nil
	}
	return []model.Option{model.WithAdapters(o.adapters...)}
}

// adaptersOf adds the adapters to an engine's configuration. In a tier, a name does not identify an adapter: another
// server can have another one with the same name.
func (o *modelOptions) adaptersOf(c *engine.Config) {
	c.MaxLoRAs = o.lora.maxLoRAs
	for i, named := range o.lora.named {
		text := named.Name
		if o.offload.used() {
			text += " " + o.lora.contents[i]
		}
		c.Adapters = append(c.Adapters, text)
	}
}

// describe says which adapters are served, for the start.
func (o *loraOptions) describe() string {
	var all []string
	for _, a := range o.named {
		all = append(all, fmt.Sprintf("%q (%s)", a.Name, a.Path))
	}
	text := "adapters: " + strings.Join(all, ", ")
	if o.maxLoRAs > 0 && o.maxLoRAs < len(all) {
		text += fmt.Sprintf("; at most %d at a time", o.maxLoRAs)
	}
	return text
}

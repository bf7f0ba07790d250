package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"llmmemory/internal/terminal"
)

// foreignFlags says for flags of llama-server and of vLLM what to use here. Of several letters after one dash, the first
// ones may be flags of this program, so the key is what pflag's error names: -f for -hf.
var foreignFlags = func() map[string]string {
	all := map[string]string{}
	for _, row := range []struct{ names, instead string }{
		{"-m --model", "give the folder or file as the first argument"},
		{"-f -fr -fd --hf-repo --hf-file --hf-repo-draft --hf-token --model-url -mu --download-dir --tokenizer --revision",
			"models are not downloaded: hf download NAME --local-dir FOLDER, then give the folder or file as the first argument"},
		{"-c --ctx-size --max-seq-len", "use --max-model-len"},
		{"-n --predict --n-predict", "use max_tokens in requests"},
		{"--temp --temperature --top-k --top-p --min-p --seed -s --repeat-penalty --presence-penalty --frequency-penalty --override-generation-config",
			"give it in requests"},
		{"-ngl --gpu-layers --n-gpu-layers", "use --device cuda, which computes all layers on the GPU"},
		{"-sm --split-mode -ts --tensor-split -mg --main-gpu", "use --device cuda:1 for the second GPU"},
		{"-t", "use --threads"},
		{"-tb --threads-batch", "use --threads, which is for prompts, too"},
		{"-b --batch-size -ub --ubatch-size", "use --max-num-batched-tokens"},
		{"-np --parallel", "use --max-num-seqs"},
		{"-a --alias", "use --served-model-name"},
		{"-ctk --cache-type-k -ctv --cache-type-v", "use --kv-cache-dtype"},
		{"--dtype", "use --activation-dtype"},
		{"--quantization -q --load-format --trust-remote-code --tokenizer-mode --config-format", "leave it out: the model's files say it"},
		{"--lora --lora-scaled --enable-lora", "use --lora-modules NAME=FOLDER"},
		{"-md --model-draft --speculative-config --draft-max --draft", "use --num-speculative-tokens: drafts are looked up in the text"},
		{"--chat-template-file --chat-template-content-format", "use --chat-template"},
		{"--chat-template-kwargs --reasoning-budget", `use --default-chat-template-kwargs, such as '{"enable_thinking": false}'`},
		{"--enable-sleep-mode", "leave it out: /sleep and /wake_up need only --api-key"},
		{"--sleep-idle-seconds", "use --idle-unload"},
		{"--ssl-cert-file --ssl-key-file", "use --ssl-certfile and --ssl-keyfile"},
		{"--threads-http --cpu-offload-gb --jinja --enable-auto-tool-choice --no-webui --webui", "leave it out"},
		{"-fa --flash-attn -cb --cont-batching --mlock --no-mmap --enforce-eager --enable-chunked-prefill --async-scheduling", "leave it out"},
		{"--enable-prefix-caching --cache-prompt --cache-reuse", "leave it out: --no-prefix-caching turns it off"},
		{"--no-enable-prefix-caching --no-cache-prompt", "use --no-prefix-caching"},
		{"--api-key-file", "use LLMSERVE_API_KEY in the environment"},
		{"--reasoning-format --enable-reasoning", "use --reasoning-parser"},
		{"--mmproj -mm --mmproj-url --limit-mm-per-prompt", "leave it out: images are not supported"},
		{"--kv-transfer-config --swap-space --slot-save-path", "use --kv-offload-dir"},
		{"--disable-log-requests --no-enable-log-requests --uvicorn-log-level --log-disable", "leave it out: only errors and new warnings are written"},
		{"--enable-log-requests --verbose --log-verbose", "use --log-requests"},
		{"--pipeline-parallel-size --data-parallel-size", "use --tensor-parallel-size"},
	} {
		for _, name := range strings.Fields(row.names) {
			all[name] = row.instead
		}
	}
	return all
}()

// explainFlag is like terminal.SuggestFlag, but says what to use instead of a flag of another server.
func explainFlag(c *cobra.Command, err error) error {
	text := err.Error()
	name := ""
	if _, flag, unknown := strings.Cut(text, "unknown flag: "); unknown {
		name, _, _ = strings.Cut(flag, "=")
	} else if _, flag, unknown := strings.Cut(text, "unknown shorthand flag: "); unknown {
		_, name, _ = strings.Cut(flag, " in ")
		name, _, _ = strings.Cut(name, "=")
	}
	if instead := foreignFlags[name]; instead != "" {
		return fmt.Errorf("%w; %s", err, instead)
	}
	return terminal.SuggestFlag(c, err)
}

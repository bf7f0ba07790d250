package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/weightfile"
)

// Ensure that a flag of llama-server or vLLM is refused with what to use here, and that this exists.
func TestFlagsOfOtherServersAreExplained(t *testing.T) {
	for args, want := range map[string]string{
		"-hf x/y": "hf download", "-c 4096": "use --max-model-len", "-ngl 99": "use --device cuda", "--ctx-size=4096": "use --max-model-len",
		"--lora x": "use --lora-modules", "--temp 0.5": "give it in requests", "-np 4": "use --max-num-seqs", "--dtype bf16": "use --activation-dtype",
		"--max_num_seqs 4": "did you mean --max-num-seqs?", "--max-num-seq 4": "did you mean --max-num-seqs?", "-m x": "as the first argument",
		"--enable-prefix-caching": "--no-prefix-caching turns it off", "-zz": "unknown shorthand flag: 'z' in -zz", "--alias=x": "use --served-model-name",
	} {
		require.Contains(t, refusedHere(t, append([]string{"demo"}, strings.Fields(args)...)...), want, args)
	}
	flags := command().Flags()
	for name, instead := range foreignFlags {
		if long, ok := strings.CutPrefix(name, "--"); ok {
			require.Nil(t, flags.Lookup(long), name)
		} else {
			require.Nil(t, flags.ShorthandLookup(name[1:2]), name)
		}
		require.Contains(t, refusedHere(t, "demo", name), instead, name)
		for _, flag := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(instead, -1) {
			require.True(t, flags.Lookup(flag[1]) != nil || flag[1] == "local-dir", instead)
		}
	}
}

// Ensure that the start of a model without a chat template says that there are no chats, and how to give a template.
func TestAModelWithoutATemplateSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	tiny := weightfile.Tinies()[0]
	require.NoError(t, os.WriteFile(path, tiny.GGUF(), 0o600))
	s, _ := serveModelFile(t, path)
	for line := ""; !strings.Contains(line, "no chats"); {
		var err error
		line, err = s.lines.ReadString('\n')
		require.NoError(t, err)
		if strings.Contains(line, "no chats") {
			require.Equal(t, "  no chats: the model has no chat template; give one with --chat-template FILE\n", line)
		}
	}
}

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var hubPattern = regexp.MustCompile(`^(?:https?://huggingface\.co/|hf\.co/|hf://)?([\w.-]+/[\w.-]+)(?::([\w.-]+))?/?$`)

// hubName splits the name of a repository at huggingface.co, as vLLM, llama-server (-hf) and Ollama (hf.co/...) write
// it, into the name and the quantization of a GGUF file, such as Q4_K_M, or "". ok is false if it is no such name.
func hubName(path string) (repository, quantization string, ok bool) {
	parts := hubPattern.FindStringSubmatch(path)
	if parts == nil || strings.HasPrefix(parts[1], ".") || strings.HasSuffix(path, ".gguf") {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// howToGet says how to get a model from huggingface.co, or where it already is.
func howToGet(repository, quantization string) string {
	if dir := cached(repository); dir != "" {
		return fmt.Sprintf("the cache of huggingface.co has it: give %s", dir)
	}
	name := filepath.Base(repository)
	if quantization == "" {
		return fmt.Sprintf("models are not downloaded; if this is one of huggingface.co: hf download %s --local-dir %s, then give "+
			"the folder %[2]s, or a .gguf file in it", repository, name)
	}
	return fmt.Sprintf("models are not downloaded; if this is one of huggingface.co: hf download %s --include '*%s*' --local-dir %s, "+
		"then give the .gguf file in %[3]s", repository, quantization, name)
}

// cached returns the folder of a repository's main branch in the cache of huggingface_hub, or "" if it is not there.
func cached(repository string) string {
	home, _ := os.UserHomeDir()
	hub := cmp.Or(os.Getenv("HF_HUB_CACHE"), filepath.Join(cmp.Or(os.Getenv("HF_HOME"), filepath.Join(home, ".cache/huggingface")), "hub"))
	dir := filepath.Join(hub, "models--"+strings.ReplaceAll(repository, "/", "--"))
	revision, err := os.ReadFile(filepath.Join(dir, "refs/main"))
	if err != nil {
		return ""
	}
	snapshot := filepath.Join(dir, "snapshots", strings.TrimSpace(string(revision)))
	if _, err := os.Stat(snapshot); err != nil {
		return ""
	}
	return snapshot
}

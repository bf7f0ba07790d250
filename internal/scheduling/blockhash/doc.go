// Package blockhash names the contents of a block of tokens by a hash that
// covers everything before it as well: the hash of the previous block, the
// token ids, and the extra keys that make equal tokens mean different things
// (LoRA adapter, multimodal items, cache salt, prompt embeddings; vllm/v1/RULES.md §3).
//
// Three functions have one interface. LE is the one that the recorded traces use, CBOR is vLLM's
// sha256_cbor. Both are SHA-256: two different prompts that collide cannot be found, so a prefix
// hit is as good as a comparison of the tokens. Fast is XXH3 with 128 bits under a secret of this
// process: among billions of blocks, the probability that two different prompts have equal hashes is
// about 2^-64. But XXH3 promises nothing against an attacker who chooses the prompts and can observe
// hits by their timing. A collision would hand one user the keys and values of another's prompt: use
// Fast only where all users of a cache may see each other's data, or give each tenant its own salt.
//
// This package knows no pools, requests or tables.
package blockhash

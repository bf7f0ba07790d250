// Package openai is OpenAI's interface over HTTP to an engine: completions, chat
// completions and models, with streaming by server-sent events and errors in its
// form, and beside it /metrics under vLLM's names and /health.
//
// It checks each field of a request before the engine sees it. What is answered is
// the engine's business.
package openai

// Package openai serves an engine over OpenAI's HTTP interface: completions, chat completions and models, with streams of
// server-sent events and OpenAI's errors. It also serves /metrics under vLLM's names, /tokenize, /detokenize, /version
// and /health.
//
// It checks each field of a request before it submits the request to the engine.
//
// # Other interfaces for chats
//
// Packages anthropic and responses are each an [Interface]: their handlers translate a body to a [Chat], and a [Reply]
// translates the events of the answer.
//
// Inside this package, chats of all interfaces have two types that know nothing of JSON:
//
//   - A conversation (conversation.go) is what a client asks for: messages, tools, which of them may be called, the form
//     of the content. The definition of a tool is always in OpenAI's form, because chat templates expect it.
//   - A part (job.go) is a new part of an answer, or a whole answer. Its events are reasoning, content and calls
//     (package toolparser).
//
// Server.talk makes a job of a conversation and an engine.Request, and Server.submit starts it. Server.answers returns
// the whole answers; Server.stream passes the parts to an eventWriter.
package openai

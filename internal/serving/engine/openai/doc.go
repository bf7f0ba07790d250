// Package openai serves an engine over OpenAI's HTTP interface: completions, chat completions and models, with streams of
// server-sent events and OpenAI's errors. It also serves /metrics under vLLM's names, /tokenize, /detokenize, /version
// and /health.
//
// It checks each field of a request before it submits the request to the engine.
//
// # Other interfaces for chats
//
// An interface for chats translates between its JSON and two types that know nothing of JSON:
//
//   - A conversation (conversation.go) is what a client asks for: messages, tools, which of them may be called, the form
//     of the content. readTools and conversation.readChoice read tools in OpenAI's form; the definition of a tool is
//     always in that form, because chat templates expect it.
//   - A part (job.go) is a new part of an answer, or a whole answer. Its events are reasoning, content and calls
//     (package toolparser). part.spoken joins those of a whole answer. part.finish is "tool_calls" after calls.
//
// A handler reads the body with Server.decode, and makes a conversation and an engine.Request. Server.talk makes a job
// of them, and Server.submit starts it; the handler cancels the job when it returns. Then Server.answers returns the
// whole answers, or Server.stream passes the parts of the answers to an eventWriter. Server.chat and chunks are those of
// OpenAI's chats.
package openai

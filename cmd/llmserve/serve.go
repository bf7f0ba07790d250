package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/anthropic"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/engine/openai/responses"
	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/toolparser"
	"llmmemory/internal/terminal"
)

// options of serving.
type options struct {
	model   modelOptions
	listen  listenOptions
	names   []string
	anyName bool
	keys    []string
	drain   time.Duration
	maxBody int64
	limits  openai.Limits
	log     bool
	special bool
	kwargs  string
	images  bool
	compact bool
	parsers parserOptions
	origins []string
	allowed *openai.Origins // origins, read
	given   *pflag.FlagSet
}

func (o *options) flags(f *pflag.FlagSet) {
	o.given = f
	o.listen.flags(f)
	f.StringSliceVar(&o.names, "served-model-name", nil,
		"names of the model in requests, separated by commas; answers have the first one (default: that of its file)")
	f.BoolVar(&o.anyName, "skip-model-name-validation", false,
		"answer requests for a model of any name, as vLLM does with VLLM_SKIP_MODEL_NAME_VALIDATION=1")
	f.StringArrayVar(&o.keys, "api-key", nil, // not a slice: a key may have commas
		"key that requests need; may be given several times, and as LLMSERVE_API_KEY")
	f.DurationVar(&o.model.idle, "idle-unload", 0,
		"free the weights, keys and values after so long without requests, such as 10m; the next request loads them (0: never)")
	f.DurationVar(&o.drain, "drain", 30*time.Second, "time for requests to end after a signal")
	f.Int64Var(&o.maxBody, "max-body", 8<<20, "largest size of a request in bytes")
	f.IntVar(&o.limits.Requests, "requests-per-minute", 0,
		"requests that each key may send in a minute, or all clients together if there are no keys; 0: no limit")
	f.IntVar(&o.limits.Tokens, "tokens-per-minute", 0,
		"tokens that each key may use in a minute, with an answer counted at its maximum length; 0: no limit")
	f.BoolVar(&o.special, "parse-special", false,
		"special tokens in the messages of a chat, such as <|im_end|>, become tokens, so a text can end its message "+
			"and begin another (default: they are text)")
	f.StringVar(&o.kwargs, "default-chat-template-kwargs", "",
		`variables of the chat template, as JSON, which chat_template_kwargs and fields of a request change: '{"enable_thinking": false}'`)
	f.BoolVar(&o.images, "omit-images", false,
		"the model sees "+openai.ImageLeftOut+" instead of an image (default: requests with images are refused)")
	o.parsers.flags(f)
	f.BoolVar(&o.compact, "structured-outputs-config.disable_any_whitespace", false,
		"JSON that must fit a schema has one space after each comma and colon and no other white space, in all requests")
	f.StringSliceVar(&o.origins, "allowed-origins", nil,
		"origins whose web pages may use the server, such as https://app.example, or *: all (default: none)")
	if connect == nil { // else it is one of the model's flags
		f.DurationVar(&o.model.limit, "iteration-timeout", defaultLimit,
			"how long a step may take; while it takes longer, /health is 503")
	}
	f.BoolVar(&o.log, "log-requests", false,
		"write a line for each request to standard error (default: only for requests that get an error or a new warning)")
	o.model.events.flags(f)
	o.model.offload.flags(f)
	o.model.lora.flags(f)
	o.model.pooling.flags(f)
}

func demoCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "demo",
		Short: "Serve a small model that needs no download",
		Long: "demo serves a transformer that was built by hand. It looks for the last place where the last three\n" +
			"bytes of the text occurred before, and writes the byte that followed there. In a chat it repeats\n" +
			"the last message.",
		Args: func(_ *cobra.Command, args []string) error {
			if args, _ := o.model.lora.split(args); len(args) > 0 {
				return fmt.Errorf("demo takes no arguments, got %d: %q", len(args), args)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			_, modules := o.model.lora.split(args)
			o.model.lora.modules = append(o.model.lora.modules, modules...)
			return serveModel(c.Context(), c.OutOrStdout(), &o, "demo")
		},
	}
	o.model.flags(c.Flags())
	o.flags(c.Flags())
	memory := c.Flags().Lookup("kv-cache-gb") // a few hundred blocks are easy to see at /memory
	memory.DefValue = "0.03"
	o.model.kvGB, o.model.kvFixed = 0.03, true
	return c
}

func serveModel(ctx context.Context, out io.Writer, o *options, path string) (err error) {
	if ranks.follow() {
		return follow(path, &o.model)
	}
	if err := o.check(); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // a server continues, and drains, when nobody reads its output
	begin, ready := time.Now(), endAtSignal(ctx, 0)
	defer ready()
	if err := o.model.events.open(o.model.noCaching); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.model.events.close()) }()
	l, err := load(path, &o.model, func(l *loaded) error {
		if err := o.model.lora.checkNames(o.modelNames(l)); err != nil {
			return err
		}
		return l.openOffload(&o.model, os.Stderr)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	l.ready = ready
	if path != "demo" {
		fmt.Fprintf(out, "%s: %s, %d layers, weights of %d MB, loaded in %.1f s\n",
			l.name, l.config.Family, l.config.NumLayers, l.weightBytes()>>20, time.Since(begin).Seconds())
	}
	return serve(ctx, out, o, l)
}

// check checks the flags before a model is loaded. It opens the port to check that it is free. It closes the port
// again, so that no client connects before the server can answer.
func (o *options) check() error {
	if err := o.readKeys(); err != nil {
		return err
	}
	var err error
	if o.allowed, err = openai.ParseOrigins(o.origins); err != nil {
		return fmt.Errorf("--allowed-origins: %w", err)
	}
	switch {
	case o.given.Changed("served-model-name") && (len(o.names) == 0 || slices.Contains(o.names, "")):
		return errors.New("--served-model-name has an empty name; give a name, or leave the flag out")
	case o.maxBody < 1:
		return fmt.Errorf("--max-body is %d; it must be at least 1", o.maxBody)
	case o.model.limit < time.Second:
		return fmt.Errorf("--iteration-timeout is %v; it must be at least 1s", o.model.limit)
	case o.model.idle < 0:
		return fmt.Errorf("--idle-unload is %v; it must be at least 0", o.model.idle)
	case o.model.idle > 0 && (ranks != nil || o.model.device.name != "cpu"):
		return errors.New("--idle-unload is only for models that one process computes on the CPU")
	case o.drain < 0:
		return fmt.Errorf("--drain is %v; it must be at least 0", o.drain)
	case o.limits.Requests < 0 || o.limits.Tokens < 0:
		return errors.New("--requests-per-minute and --tokens-per-minute must be at least 0")
	}
	if _, err := o.parsers.format(nil); err != nil {
		return err
	}
	if err := o.checkKwargs(nil); err != nil {
		return err
	}
	if err := o.model.check(); err != nil {
		return err
	}
	if err := o.model.offload.check(o.model.noCaching); err != nil {
		return err
	}
	if err := o.model.pooling.check(); err != nil {
		return err
	}
	return o.listen.check()
}

// checkKwargs checks --default-chat-template-kwargs, as far as this is possible with the template, or without one if it is
// nil.
func (o *options) checkKwargs(template *chat.Template) error {
	if o.kwargs == "" {
		return nil
	}
	if err := openai.CheckKwargs(json.RawMessage(o.kwargs), template); err != nil {
		return fmt.Errorf("--default-chat-template-kwargs: %w", err)
	}
	return nil
}

// readKeys adds the key in the environment to the keys of the flag. It refuses an empty key, which usually comes from
// an unset shell variable.
func (o *options) readKeys() error {
	blank := func(key string) bool { return strings.TrimSpace(key) == "" }
	if o.given.Changed("api-key") && (len(o.keys) == 0 || slices.ContainsFunc(o.keys, blank)) {
		return errors.New("--api-key is empty; give a key, or leave the flag out to admit every client")
	}
	key, set := os.LookupEnv("LLMSERVE_API_KEY")
	if set && blank(key) {
		return errors.New("LLMSERVE_API_KEY is empty; give a key, or unset it to admit every client")
	}
	if set {
		o.keys = append(o.keys, key)
	}
	return nil
}

// modelNames returns the names of the model in requests.
func (o *options) modelNames(l *loaded) []string {
	if len(o.names) == 0 {
		return []string{l.name}
	}
	return o.names
}

// partingTime is the time for sending errors to the requests that have not ended within the time of --drain.
const partingTime = 5 * time.Second

// serve answers requests until ctx ends. Then it refuses new requests, and waits for the running requests to
// end.
func serve(ctx context.Context, out io.Writer, o *options, l *loaded) error {
	names := o.modelNames(l)
	name := names[0]
	format, err := o.parsers.format(l.template)
	if err != nil {
		return err
	}
	if err := o.checkKwargs(l.template); err != nil {
		return err
	}
	metrics := openai.NewMetrics(name)
	e, err := l.engine(&o.model, metrics)
	if err != nil {
		return err
	}
	metrics.Watch(e)
	requests := newAccessLog(os.Stderr, o.log)
	defer requests.flush()
	pages, stop := memoryPages(e, name)
	listener, err := o.listen.listen()
	if err != nil {
		return errors.Join(err, e.Close())
	}
	certificate, err := o.listen.tls.open()
	if err != nil {
		return errors.Join(err, listener.Close(), e.Close())
	}
	server := &http.Server{
		Handler: openai.New(openai.Config{
			Engine: e,
			ModelConfig: openai.ModelConfig{
				Name:          name,
				Aliases:       names[1:],
				AnyName:       o.anyName,
				Adapters:      o.model.lora.named,
				Template:      l.template,
				TemplateError: l.templateError,
				Pooling:       l.pooling,
				Format:        format,
				ParseSpecial:  o.special,
				DefaultKwargs: json.RawMessage(o.kwargs),
				OmitImages:    o.images,
				CompactJSON:   o.compact,
			},
			Version:    terminal.Version(),
			Metrics:    metrics,
			Access:     openai.Access{APIKeys: o.keys, Limits: o.limits, Local: loopback(listener.Addr()), Origins: o.allowed},
			Bounds:     openai.Bounds{MaxBody: o.maxBody, IterationTimeout: o.model.limit},
			Pages:      pages,
			Record:     requests.note,
			Interfaces: []openai.Interface{responses.Interface(), anthropic.Interface()},
		}),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: openai.WriteTimeout,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	server.RegisterOnShutdown(stop)
	l.notes(out, &o.model, e)
	announce(out, o, l, e, name, format, address{listener.Addr(), certificate != nil})
	if err := notify("READY=1"); err != nil {
		fmt.Fprintln(os.Stderr, "llmserve:", err) // the server can be used all the same
	}
	return answer(ctx, out, o, l, e, server, func() error { return certificate.serve(server, listener) })
}

// answer calls begin, which lets the server answer requests, and waits until ctx is done, or the server or the device has
// failed. Then it lets the running requests end, unless the device has failed.
func answer(ctx context.Context, out io.Writer, o *options, l *loaded, e *engine.Engine, server *http.Server, begin func() error) (err error) {
	failed := make(chan error, 1)
	go func() { failed <- begin() }()
	drain, broken := o.drain, false
	deviceFailed := l.deviceFailure(e, o.model.limit)
	select {
	case err = <-failed:
	case err = <-deviceFailed:
		time.Sleep(failureShown)
		drain, broken = 0, true
	case <-ctx.Done():
		fmt.Fprintf(out, "stopping: requests have %v to end\n", drain)
	}
	_ = notify("STOPPING=1") // systemd sees the end of the process in any case
	limit, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- e.Drain(limit.Done()) }()
	end, cancelEnd := context.WithTimeout(context.Background(), drain+partingTime)
	defer cancelEnd()
	shutdown := server.Shutdown(end)
	if errors.Is(shutdown, context.DeadlineExceeded) {
		shutdown = server.Close()
	}
	if !broken {
		select {
		case end := <-stopped:
			return errors.Join(err, end, shutdown)
		case err = <-deviceFailed:
		}
	}
	l.abandonDevice(err, stopped)
	return err
}

func announce(out io.Writer, o *options, l *loaded, e *engine.Engine, name string, format toolparser.Format, addr address) {
	load := e.Load()
	longest := fmt.Sprint(e.Config().MaxModelLen)
	if o.model.maxModelLen == 0 && e.Config().MaxModelLen < l.config.MaxModelLen {
		longest += fmt.Sprintf(" of the model's %d, because the blocks hold no longer ones", l.config.MaxModelLen)
	}
	base, curl := addr.base(), "curl"
	if path := addr.socket(); path != "" {
		fmt.Fprintf(out, "listening on the Unix socket %s\n", path)
		curl += " --unix-socket " + path
	}
	fmt.Fprintf(out, "serving %q at %s/v1, %d blocks of %d tokens, sequences of up to %s\n",
		name, base, load.Blocks, e.Config().BlockSize, longest)
	if tcp, ok := addr.Addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		fmt.Fprintln(out, "  and at every other address of this machine")
	}
	if len(o.model.lora.named) > 0 {
		fmt.Fprintln(out, "  "+o.model.lora.describe())
	}
	fmt.Fprintln(out, "  "+l.ends(e.Config().End))
	if l.pooling != nil {
		fmt.Fprintln(out, "  "+l.poolingText())
	}
	switch {
	case l.templateError != nil:
		fmt.Fprintf(out, "  no chats: the model's chat template cannot be used: %v\n", l.templateError)
	case l.template == nil:
		fmt.Fprintln(out, "  no chats: the model has no chat template; give one with --chat-template FILE")
	default:
		fmt.Fprintln(out, "  "+o.parsers.describe(format, l.template))
	}
	fmt.Fprintf(out, "  memory map: %s/memory\n", base)
	fmt.Fprintf(out, "  %s %s/v1/completions -H 'Content-Type: application/json'%s -d '%s'\n", curl, base,
		bearer(o.keys), example(name))
}

// bearer returns the header that curl needs if there are keys. It contains no key, because logs keep the output.
func bearer(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return " -H 'Authorization: Bearer KEY'"
}

func example(name string) string {
	return strings.ReplaceAll(`{"model": "NAME", "prompt": "one two three, one two", "max_tokens": 6, "temperature": 0}`,
		"NAME", name)
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/kvoffload"
	"llmmemory/internal/terminal"
)

// offloadOptions are the flags for keeping blocks outside the process.
type offloadOptions struct {
	dir, url, role       string
	gb                   float64
	caFile, passwordFile string
	ttl                  time.Duration

	given *pflag.FlagSet
	tier  kvoffload.Tier // nil without tiers
	log   *log.Logger
}

func (o *offloadOptions) flags(f *pflag.FlagSet) {
	o.given = f
	f.StringVar(&o.dir, "kv-offload-dir", "", "folder in which keys and values of prompts and answers are kept: they outlive the server, and other servers on this host can share the folder")
	f.Float64Var(&o.gb, "kv-offload-gb", 10, "largest size of this folder, in GiB; what was not used for the longest time is removed")
	f.StringVar(&o.url, "kv-offload-url", "", "Redis or Valkey server that keeps them for servers on several hosts: redis://HOST:PORT, or rediss:// with TLS; the password is read from LLMSERVE_REDIS_PASSWORD")
	f.StringVar(&o.passwordFile, "kv-offload-password-file", "", "file with the Redis password")
	f.StringVar(&o.caFile, "kv-offload-ca", "", "file with the certificates that a rediss:// server is checked against (default: the system's)")
	f.DurationVar(&o.ttl, "kv-offload-ttl", 0, "how long Redis keeps what is not used; 0: until its own limit of memory")
	f.StringVar(&o.role, "kv-role", "both", "what this server does there: producer stores, consumer loads, both does both")
}

func (o *offloadOptions) used() bool { return o.dir != "" || o.url != "" }

// check checks the flags before a model is loaded.
func (o *offloadOptions) check(noCaching bool) error {
	if !o.used() {
		for _, name := range []string{"kv-offload-gb", "kv-offload-password-file", "kv-offload-ca", "kv-offload-ttl", "kv-role"} {
			if o.given.Changed(name) {
				return fmt.Errorf("--%s needs --kv-offload-dir or --kv-offload-url", name)
			}
		}
		if o.given.Changed("kv-offload-dir") || o.given.Changed("kv-offload-url") {
			return errors.New("--kv-offload-dir and --kv-offload-url need a value")
		}
		return nil
	}
	switch {
	case noCaching:
		return errors.New("--kv-offload-dir and --kv-offload-url keep what is in the prefix cache; leave --no-prefix-caching out")
	case o.role != "both" && o.role != "producer" && o.role != "consumer":
		return fmt.Errorf("--kv-role is %q; producer, consumer and both are possible", o.role)
	case o.dir == "" && o.given.Changed("kv-offload-gb"):
		return errors.New("--kv-offload-gb is the size of --kv-offload-dir; Redis has a limit of its own, maxmemory")
	case !(o.gb > 0) || o.gb >= 1<<30:
		return fmt.Errorf("--kv-offload-gb is %v; it must be above 0, and below %d", o.gb, 1<<30)
	case o.url == "" && (o.passwordFile != "" || o.caFile != "" || o.ttl != 0):
		return errors.New("--kv-offload-password-file, --kv-offload-ca and --kv-offload-ttl need --kv-offload-url")
	}
	if o.dir != "" {
		if info, err := os.Stat(o.dir); err == nil && !info.IsDir() {
			return fmt.Errorf("--kv-offload-dir: %s is not a folder", o.dir)
		}
	}
	if o.url == "" {
		return nil
	}
	c, err := o.redis()
	if err == nil {
		err = c.Check()
	}
	if err != nil {
		return fmt.Errorf("--kv-offload-url: %w", err)
	}
	return nil
}

func (o *offloadOptions) redis() (kvoffload.RedisConfig, error) {
	c := kvoffload.RedisConfig{URL: o.url, Password: os.Getenv("LLMSERVE_REDIS_PASSWORD"), CAFile: o.caFile, TTL: o.ttl}
	if o.passwordFile != "" {
		text, err := os.ReadFile(o.passwordFile)
		if err != nil {
			return c, err
		}
		c.Password = strings.TrimRight(string(text), "\r\n")
	}
	return c, nil
}

// openTimeout is the longest time that a Redis server may take to answer when llmserve starts.
const openTimeout = 5 * time.Second

func (o *offloadOptions) open(space kvoffload.Space) error {
	var all kvoffload.Chain
	if o.dir != "" {
		folder, err := kvoffload.NewFolder(o.dir, space, int64(o.gb*(1<<30)))
		if err != nil {
			return fmt.Errorf("--kv-offload-dir: %w", err)
		}
		all = append(all, folder)
	}
	if o.url != "" {
		c, err := o.redis()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
		defer cancel()
		server, err := kvoffload.NewRedis(ctx, c, space)
		if err != nil {
			return errors.Join(fmt.Errorf("--kv-offload-url: %w", err), all.Close())
		}
		all = append(all, server)
	}
	o.tier = all
	return nil
}

// openOffload opens the tiers that the flags name. If the flags name a tier, openOffload reads all weights of the model
// to compute their hash, unless the model is the demo. The key of a stored block depends on this hash, so that a model
// with other weights cannot load the block.
func (l *loaded) openOffload(o *modelOptions, out io.Writer) error {
	if !o.offload.used() {
		return nil
	}
	space, err := l.space(o)
	if err != nil {
		return err
	}
	o.offload.log = log.New(out, "llmserve: ", log.LstdFlags)
	return o.offload.open(space)
}

func (l *loaded) space(o *modelOptions) (kvoffload.Space, error) {
	content, shape, err := l.identity()
	if err != nil {
		return kvoffload.Space{}, err
	}
	l.content = content
	c := l.plan
	c.Offload = &kvoffload.Config{}
	if _, err := c.Check(l.config, o.workers); err != nil {
		return kvoffload.Space{}, err
	}
	asked := cmp.Or(o.maxModelLen, l.config.MaxModelLen)
	return kvoffload.NewSpace(terminal.Version(), content, shape, l.config.RopeFor(asked),
		c.KVCacheDType.String(), l.activationType(o), runtime.GOARCH, l.kernels(o),
		fmt.Sprintf("blocks of %d tokens, %d workers", o.blockSize, o.workers)), nil
}

// identity returns texts that identify the weights and the shape of the model. It reads all weights.
func (l *loaded) identity() (content, shape string, err error) {
	content = "demo"
	if l.fingerprint != nil {
		if content, err = l.fingerprint(); err != nil {
			return "", "", err
		}
	}
	text, err := json.Marshal(l.config)
	return content, string(text), err
}

// close closes the tier of a model that is not served.
func (o *offloadOptions) close() error {
	if o.tier == nil {
		return nil
	}
	tier := o.tier
	o.tier = nil
	return tier.Close()
}

func (o *offloadOptions) offloadTo(c *engine.Config) {
	if o.tier == nil {
		return
	}
	c.Hash = blockhash.CBOR(seedOfHashes)
	c.Offload = &kvoffload.Config{
		Tier: o.tier, Stores: o.role != "consumer", Loads: o.role != "producer",
		KnownFor: o.ttl / 4, // so that used blocks do not expire
		Log:      o.log,
	}
}

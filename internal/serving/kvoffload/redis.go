package kvoffload

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"llmmemory/internal/scheduling/blockhash"
)

// ErrRedis is wrapped by errors of NewRedis and RedisConfig.Check.
var ErrRedis = errors.New("the Redis server for keys and values cannot be used")

// RedisConfig describes how to reach a Redis server.
type RedisConfig struct {
	URL      string // redis://HOST:PORT/NUMBER or rediss://, without a password: other users see the command line
	Password string
	CAFile   string        // certificates to verify a rediss:// server with; "" means the system's
	TTL      time.Duration // how long a block is kept after its last Store; 0 means until the server evicts it
}

// Redis is a Tier in a Redis or Valkey server. The server evicts blocks by its own maxmemory-policy.
type Redis struct {
	client *redis.Client
	space  Space
	ttl    time.Duration
}

// bytesPerMGet limits the bytes of one request, so that a load ends soon after its deadline.
const bytesPerMGet = 8 << 20

// NewRedis connects to a server. The error wraps ErrRedis.
func NewRedis(ctx context.Context, c RedisConfig, space Space) (*Redis, error) {
	options, err := c.options()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRedis, err)
	}
	redis.SetLogger(silent{})
	r := &Redis{client: redis.NewClient(options), space: space, ttl: c.TTL}
	if err := r.client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", ErrRedis, options.Addr, err), r.client.Close())
	}
	return r, nil
}

// silent discards the client's log, which repeats the errors it returns.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// Check returns an error if the configuration is wrong. It does not connect to the server.
func (c *RedisConfig) Check() error {
	_, err := c.options()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRedis, err)
	}
	return nil
}

func (c *RedisConfig) options() (*redis.Options, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, errors.New("its URL cannot be read; it has the form redis://HOST:PORT") // err could contain a password
	}
	switch {
	case u.Scheme != "redis" && u.Scheme != "rediss":
		return nil, fmt.Errorf("its URL begins with %q; redis:// and, with TLS, rediss:// are possible", u.Scheme+":")
	case u.User != nil:
		return nil, errors.New("its URL contains a user or password, which every user who lists processes can see")
	case u.Hostname() == "":
		return nil, errors.New("its URL has no host; it has the form redis://HOST:PORT")
	case c.TTL < 0:
		return nil, fmt.Errorf("the time to keep blocks is %v; it must not be negative", c.TTL)
	}
	options, err := redis.ParseURL(c.URL)
	if err != nil {
		return nil, err
	}
	options.Password = c.Password
	options.MaxRetries = -1 // a block that cannot be loaded is computed
	options.DialerRetries = 1
	options.DisableIdentity = true
	options.ContextTimeoutEnabled = true
	options.Dialer = dialer(options)
	if c.CAFile == "" {
		return options, nil
	}
	if options.TLSConfig == nil {
		return nil, errors.New("a CA file is given, but its URL does not begin with rediss://")
	}
	options.TLSConfig.RootCAs, err = certificates(c.CAFile)
	options.TLSConfig.MinVersion = tls.VersionTLS12
	return options, err
}

func certificates(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s contains no certificate in PEM format", file)
	}
	return pool, nil
}

// Close ends the connections.
func (r *Redis) Close() error { return r.client.Close() }

func (r *Redis) key(block *blockhash.Hash) string {
	return fmt.Sprintf("llmkv:1:%s:%x", r.space, block[:])
}

// Count implements Tier.
func (r *Redis) Count(ctx context.Context, blocks []blockhash.Hash) (int, error) {
	found := make([]*redis.IntCmd, len(blocks))
	_, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range blocks {
			found[i] = p.Exists(ctx, r.key(&blocks[i]))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for i, f := range found {
		if f.Val() == 0 {
			return i, nil
		}
	}
	return len(blocks), nil
}

// Load implements Tier.
func (r *Redis) Load(ctx context.Context, blocks []blockhash.Hash, dst [][]byte) (done int, err error) {
	for done < len(blocks) {
		n := min(len(blocks)-done, 1+bytesPerMGet/max(1, len(dst[done])))
		keys := make([]string, n)
		for i := range keys {
			keys[i] = r.key(&blocks[done+i])
		}
		values, err := r.client.MGet(ctx, keys...).Result()
		if err != nil {
			return done, err
		}
		for i, v := range values {
			text, found := v.(string)
			if !found {
				return done, nil
			}
			if !r.decode(text, &blocks[done], dst[done]) {
				return done, errors.Join(fmt.Errorf("%s: %w; it was removed", keys[i], ErrDamaged), r.client.Del(ctx, keys[i]).Err())
			}
			done++
		}
	}
	return done, nil
}

func (r *Redis) decode(text string, block *blockhash.Hash, dst []byte) bool {
	if len(text) != headerSize+len(dst) {
		return false
	}
	copy(dst, text[headerSize:])
	return r.space.intact([]byte(text[:headerSize]), block, dst)
}

// Store implements Tier.
func (r *Redis) Store(ctx context.Context, block blockhash.Hash, m Memory) error {
	key := r.key(&block)
	if stored, err := r.noteUse(ctx, key); err != nil || stored {
		return err
	}
	return r.client.Set(ctx, key, m.stored(&r.space, &block), r.ttl).Err()
}

// noteUse records that a block is used now. It reports whether the server has the block.
func (r *Redis) noteUse(ctx context.Context, key string) (bool, error) {
	if r.ttl > 0 {
		return r.client.Expire(ctx, key, r.ttl).Result()
	}
	n, err := r.client.Touch(ctx, key).Result()
	return n > 0, err
}

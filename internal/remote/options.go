package remote

import (
	"log/slog"
	"time"
)

// Options are for connecting to hosts. The zero value works.
type Options struct {
	// Blobs is content that hosts may ask for.
	Blobs Blobs
	// KnownHosts is the file that host keys seen first are kept in;
	// without it an unknown host key is refused.
	KnownHosts string
	// Home is the user's home, for ~/.ssh and "~" in paths; "" is that of
	// the process's user.
	Home string
	// Timeout is for each step of connecting: the dialling, the login, an
	// answer of the host. 0 is 30 s.
	Timeout time.Duration
	// Reconnect is how long a broken connection is dialled again. 0 is two
	// minutes, negative never.
	Reconnect time.Duration
	// Log takes what helps to find out why a connection fails.
	Log *slog.Logger
}

// WithDefaults fills in what was left out.
func (o Options) WithDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Reconnect == 0 {
		o.Reconnect = 2 * time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

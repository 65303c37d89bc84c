package remote

import (
	"log/slog"
	"time"
)

// Options configure the connections to hosts. The zero value works.
type Options struct {
	// Blobs has the content that hosts can request.
	Blobs Blobs
	// KnownHosts is the file in which new host keys are saved; without it, an unknown
	// host key is an error.
	KnownHosts string
	// Home is the home directory of the user, for ~/.ssh and "~" in paths; "" is the home
	// of the process's user.
	Home string
	// Timeout limits each step of a connection: the dial, the login, an answer of the
	// host. 0 means 30 s.
	Timeout time.Duration
	// Reconnect limits how long a lost connection is dialled again. 0 means two minutes,
	// a negative value never.
	Reconnect time.Duration
	// Notify, if not nil, receives messages for users about a host whose connection is lost
	// or restored. Several hosts can call it at the same time.
	Notify func(host, message string)
	// Log receives details that help to find out why a connection fails.
	Log *slog.Logger
}

// WithDefaults fills in defaults for missing options.
func (o Options) WithDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Reconnect == 0 {
		o.Reconnect = 2 * time.Minute
	}
	if o.Notify == nil {
		o.Notify = func(string, string) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

package hostconn

import (
	"sync"

	"slipway.dev/slipway/internal/event"
)

// Notes sends notes about the connections of hosts to a sink, which can change while the
// hosts are connected. The zero value discards them. It is safe for concurrent use.
type Notes struct {
	mu sync.Mutex
	to event.Sink
}

// SetSink selects the sink of the next notes; nil discards them. The previous sink receives
// no note after SetSink has returned.
func (n *Notes) SetSink(to event.Sink) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.to = to
}

// Send sends a note about a host.
func (n *Notes) Send(host, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	event.SendNote(n.to, host, message)
}

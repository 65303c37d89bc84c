package lifecycle

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/remote"
)

// lingering is a connection whose end takes a second.
type lingering struct {
	remote.Host // nil: any other method ends the test
	err         error
}

func (l lingering) Close() error {
	<-time.After(time.Second)
	return l.err
}

// TestCloseAll: what one host takes to end is not taken as often as there are
// hosts.
func TestCloseAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		hosts := []*engine.Host{{}, {Conn: lingering{err: broken}}} // the first was never reached
		for len(hosts) <= 3*dialAtOnce {
			hosts = append(hosts, &engine.Host{Conn: lingering{}})
		}
		start := time.Now()
		if err := closeAll(hosts); !errors.Is(err, broken) {
			t.Errorf("got %v, want what closing one came to", err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("%d hosts took %s to close, %d at a time", len(hosts)-1, took, dialAtOnce)
		}
	})
}

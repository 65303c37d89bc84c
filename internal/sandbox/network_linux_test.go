package sandbox

import (
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/testutil/requireroot"
)

// TestRoutes_KeepPacketsOnTheHost: a machine is reached through its bridge, also when its sandbox
// has all of the pool and when the pool's route is made again; without the
// bridge, nothing for the pool leaves the host.
func TestRoutes_KeepPacketsOnTheHost(t *testing.T) {
	requireroot.Need(t, "a network of its own")
	for _, pool := range []string{"198.18.0.0/16", "198.18.7.0/24"} {
		done := make(chan struct{})
		go func() { // its thread ends with it, and takes the network along
			defer close(done)
			runtime.LockOSThread()
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				t.Error(err)
				return
			}
			testRoutes(t, lan{pool: netip.MustParsePrefix(pool), prefix: netip.MustParsePrefix("198.18.7.0/24")})
		}()
		<-done
	}
}

func testRoutes(t *testing.T, l lan) {
	ctx := t.Context()
	leads := func(when, want string) {
		got, err := runProgram(ctx, "", "ip", "route", "get", "198.18.7.2")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("pool %s, %s: want %q in %q", l.pool, when, want, got)
		}
	}
	for _, step := range []func() error{
		func() error { return l.keepPackets(ctx) },
		func() error { return l.addBridge(ctx) },
	} {
		if err := step(); err != nil {
			t.Error(err)
		}
	}
	leads("with its bridge", "dev slw-c61207")
	if err := l.keepPackets(ctx); err != nil {
		t.Error(err)
	}
	leads("at the next start", "dev slw-c61207")
	if err := l.removeBridge(ctx); err != nil {
		t.Error(err)
	}
	leads("without its bridge", "No route to host")
}

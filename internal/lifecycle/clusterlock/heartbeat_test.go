package clusterlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"slipway.dev/slipway/internal/remote"
)

// A testHost keeps the lock, unless a test says otherwise.
type testHost struct {
	remote.Locker
	beats  int
	lost   bool
	silent int // the number of heartbeats without a response
	hangs  bool
}

func (k *testHost) Beat(ctx context.Context, _ remote.Lock) (bool, error) {
	k.beats++
	if k.hangs {
		<-ctx.Done()
	}
	if k.hangs || k.beats <= k.silent {
		return false, errors.New("no response")
	}
	return !k.lost, nil
}

func TestKeepAlive_StopsOperationWithoutMajority(t *testing.T) {
	beating := func(t *testing.T, duration, restart time.Duration, keepers ...*testHost) error {
		t.Helper()
		l := &Lock{need: len(keepers)/2 + 1, silence: restart}
		for _, k := range keepers {
			l.holders = append(l.holders, Keeper{Name: "cp", Conn: k})
		}
		ctx, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		end := l.KeepAlive(ctx, stop)
		time.Sleep(duration)
		end()
		return context.Cause(ctx)
	}
	for _, tc := range []struct {
		name, reason string
		keepers      []*testHost
		restart      time.Duration
		want         error
	}{
		{"all keep it", "the operation continues", []*testHost{{}, {}, {}}, 0, nil},
		{"one of three lost it", "a majority keeps it", []*testHost{{}, {lost: true}, {}}, 0, nil},
		{"two of three lost it", "another manager works on the cluster now", []*testHost{{lost: true}, {lost: true}, {}}, 0, ErrLost},
		{"one of three does not respond", "the others are not delayed", []*testHost{{}, {hangs: true}, {}}, 0, nil},
		{"none responds for a while", "no other manager may take the lock yet", []*testHost{{silent: 3}}, 0, nil},
		{"none responds", "another manager may take the lock soon", []*testHost{{silent: 10}}, 0, ErrLost},
		{"two of three do not respond", "another manager may take these soon", []*testHost{{}, {hangs: true}, {silent: 10}}, 0, ErrLost},
		{"the only one restarts", "it can give the lock to no other manager", []*testHost{{silent: 5}}, 2 * time.Minute, nil},
		{"the only one does not come back", "the operation does not wait for ever", []*testHost{{silent: 10}}, 50 * time.Second, ErrLost},
		{
			"the only one restarts and has the lock of another manager", "that manager works on the cluster now",
			[]*testHost{{silent: 5, lost: true}},
			time.Minute, ErrLost,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if err := beating(t, 65*time.Second, tc.restart, tc.keepers...); !errors.Is(err, tc.want) {
					t.Errorf("the operation was stopped by %v, want %v: %s", err, tc.want, tc.reason)
				}
				if n := tc.keepers[0].beats; tc.want == nil && n < 6 {
					t.Errorf("%d heartbeats in 65 s: a lock is stale after 60", n)
				}
			})
		})
	}
}

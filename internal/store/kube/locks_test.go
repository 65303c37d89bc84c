package kube_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/testutil/faultproxy"
)

// shiftLease changes the time of a Lease, as if the clock of its holder differed.
func shiftLease(t *testing.T, namespace string, by time.Duration) {
	t.Helper()
	leases := server.Client(t).CoordinationV1().Leases(namespace)
	is, err := leases.Get(t.Context(), "slipway.prod", metav1.GetOptions{})
	requireNoError(t, err)
	at := metav1.NewMicroTime(is.Spec.RenewTime.Add(by))
	is.Spec.RenewTime = &at
	_, err = leases.Update(t.Context(), is, metav1.UpdateOptions{})
	requireNoError(t, err)
}

func wantHeld(t *testing.T, when string, err error) {
	t.Helper()
	var held *records.HeldError
	if !errors.As(err, &held) {
		t.Errorf("a second process takes the lock %s: error %v, want a HeldError", when, err)
	}
}

// TestAcquire_RefusesLockOfRunningHolder gives the holder a clock that is behind or ahead, and a longer
// time than the second process uses.
func TestAcquire_RefusesLockOfRunningHolder(t *testing.T) {
	for _, tc := range []struct {
		name  string
		shift time.Duration
	}{
		{"with the same clock", 0},
		{"with a clock behind", -time.Hour},
		{"with a clock ahead", time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newConfig(t, faultproxy.New(t, server.Admin))
			c.LeaseTime = 6 * time.Second
			lock, err := openStore(t, c).Locks().Acquire(t.Context(), "prod", records.Holder{Operation: "op-1"})
			requireNoError(t, err)
			if tc.shift != 0 {
				shiftLease(t, c.Namespace, tc.shift)
			}
			c.LeaseTime = time.Second
			_, err = openStore(t, c).Locks().Acquire(t.Context(), "prod", records.Holder{})
			wantHeld(t, tc.name, err)
			requireNoError(t, lock.Check(t.Context()))
			requireNoError(t, lock.Release())
		})
	}
}

// TestAcquire_TakesLockOfEndedHolder cuts the connection of the holder. It notices the loss before
// another process gets the lock, which has watched the lock since the cut.
func TestAcquire_TakesLockOfEndedHolder(t *testing.T) {
	t.Parallel()
	p := faultproxy.New(t, server.Admin)
	c := newConfig(t, p)
	c.LeaseTime = 9 * time.Second // other tests use the machine
	lock, err := openStore(t, c).Locks().Acquire(t.Context(), "prod", records.Holder{Operation: "op-1"})
	requireNoError(t, err)
	p.Inject(func(*http.Request) faultproxy.Fault { return faultproxy.Lost })

	c.Client = server.Admin
	other := openStore(t, c)
	_, err = other.Locks().Acquire(t.Context(), "prod", records.Holder{})
	wantHeld(t, "before its time is over", err)
	<-time.After(c.LeaseTime)
	ctx, cancel := context.WithTimeout(t.Context(), c.LeaseTime*2/3) // it does not wait for the whole time again
	defer cancel()
	next, err := other.Locks().Acquire(ctx, "prod", records.Holder{Operation: "op-2"})
	requireNoError(t, err)
	select {
	case <-lock.NotifyLost():
	default:
		t.Error("the former holder has not noticed that the lock is lost")
	}
	p.Inject(nil)
	if err := lock.Check(t.Context()); !errors.Is(err, records.ErrLost) {
		t.Errorf("Check of the former holder: %v", err)
	}
	if err := lock.SetHolder(t.Context(), records.Holder{}); !errors.Is(err, records.ErrLost) {
		t.Errorf("SetHolder of the former holder: %v", err)
	}
	requireNoError(t, lock.Release())
	if h, err := other.Locks().Holder(t.Context(), "prod"); err != nil || h == nil || h.Operation != "op-2" {
		t.Errorf("after a release by the former holder the holder is %v, %v", h, err)
	}
	requireNoError(t, next.Release())
}

// TestAcquire_LeavesNoLockIfCancelled ends the context while the request is executed.
func TestAcquire_LeavesNoLockIfCancelled(t *testing.T) {
	t.Parallel()
	p := faultproxy.New(t, server.Admin)
	s := openStore(t, newConfig(t, p))
	ctx, cancel := context.WithCancel(t.Context())
	p.Inject(func(r *http.Request) faultproxy.Fault {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/leases") {
			cancel()
		}
		return faultproxy.Pass
	})
	if lock, err := s.Locks().Acquire(ctx, "prod", records.Holder{}); err == nil { // the answer was faster
		requireNoError(t, lock.Release())
	}
	lock, err := s.Locks().Acquire(t.Context(), "prod", records.Holder{})
	requireNoError(t, err)
	requireNoError(t, lock.Release())
}

// TestRenewal_OutlastsLostRequests loses every third request.
func TestRenewal_OutlastsLostRequests(t *testing.T) {
	t.Parallel()
	p := faultproxy.New(t, server.Admin)
	c := newConfig(t, p)
	c.LeaseTime = 8 * time.Second // other tests use the machine
	lock, err := openStore(t, c).Locks().Acquire(t.Context(), "prod", records.Holder{})
	requireNoError(t, err)
	n := 0
	p.Inject(func(*http.Request) faultproxy.Fault {
		if n++; n%3 == 0 {
			return faultproxy.Lost
		}
		return faultproxy.Pass
	})
	select {
	case <-lock.NotifyLost():
		t.Error("the lock is lost")
	case <-time.After(2 * c.LeaseTime):
	}
	requireNoError(t, lock.Release())
}

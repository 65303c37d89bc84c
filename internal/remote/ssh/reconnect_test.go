package ssh_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gossh "golang.org/x/crypto/ssh"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/wire"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/remotetest"
	"slipway.dev/slipway/internal/remote/ssh"
)

func TestReconnect_ContinuesTheWork(t *testing.T) {
	path, pub := keyFile(t, t.TempDir(), "")
	users := []remotetest.User{{Name: "root", Keys: []gossh.PublicKey{pub}}}
	var mu sync.Mutex
	runs := 0
	var s *remotetest.Server
	kept := &remotetest.Kept{KeepHelper: true}
	handler := func(wire.Fetcher) wire.Handler {
		return remotetest.Handler{
			OnApply: func(ctx context.Context, b remote.Batch, emit func(remote.Progress)) []op.Result {
				mu.Lock()
				runs++
				first := runs == 1
				mu.Unlock()
				emit(remote.Progress{Op: 0, Output: []byte("at work")})
				if first {
					s.CutConnections()
					<-ctx.Done()
				}
				return []op.Result{{Status: op.Changed}}
			},
			OnLock: func(call string, l remote.Lock, _ bool) (remote.LockState, bool, error) {
				mu.Lock()
				defer mu.Unlock()
				if runs++; runs == 3 { // taken, but the answer is lost
					s.CutConnections()
					return remote.LockState{}, true, nil
				}
				return remote.LockState{Held: true, Holder: remote.Lock{Operation: "o", Manager: "m", Fence: 2}}, false, nil
			},
		}
	}
	s = remotetest.StartServer(t, remotetest.Config{Machine: remotetest.Machine{Handler: handler, Kept: kept}, Users: users})
	d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
	opts := testOptions(t)
	var notes []string
	opts.Notify = func(host, message string) { notes = append(notes, host+": "+message) }
	h, err := d.Connect(t.Context(), s.HostWith("h1", v1alpha1.SSH{PrivateKeyFile: path}), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	told := 0
	got, err := h.Apply(t.Context(), remote.Batch{Ops: op.List{op.SwapOff{}}}, func(remote.Progress) { told++ })
	if err != nil || len(got) != 1 || got[0].Status != op.Changed {
		t.Errorf("a batch that was cut: %v, %v", got, err)
	}
	want := []string{"h1: the connection was lost; Slipway connects again", "h1: connected again"}
	if diff := cmp.Diff(want, notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	if runs != 2 || told < 1 || s.LoginCount() != 2 || kept.UploadCount() != 1 {
		t.Errorf("%d runs, %d times told, %d logins, %d uploads", runs, told, s.LoginCount(), kept.UploadCount())
	}
	_, ok, err := h.(remote.Locker).TakeLock(t.Context(), remote.Lock{Operation: "o", Manager: "m", Fence: 2}, false)
	if err != nil || !ok {
		t.Errorf("a lock whose answer was cut: %v, %v", ok, err)
	}
}

func TestReconnect_GivesUp(t *testing.T) {
	path, pub := keyFile(t, t.TempDir(), "")
	s := remotetest.StartServer(t,
		remotetest.Config{
			Machine: remotetest.Machine{Handler: checkHandler},
			Users:   []remotetest.User{{Name: "root", Keys: []gossh.PublicKey{pub}}},
		})
	d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
	opts := testOptions(t)
	opts.Reconnect = 2 * time.Second
	h, err := d.Connect(t.Context(), s.HostWith("h1", v1alpha1.SSH{PrivateKeyFile: path}), opts)
	if err != nil {
		t.Fatal(err)
	}
	s.SetDown(true)
	s.CutConnections()
	_, err = h.Check(t.Context(), op.List{op.SwapOff{}})
	checkRefusal(t, err, remote.ConnectionLost, "the connection was lost")
	s.SetDown(false)
	checkHost(t, h)
	s.CutConnections()
	s.SetHostKey(remotetest.NewKey(t))
	_, err = h.Check(t.Context(), op.List{op.SwapOff{}})
	checkRefusal(t, err, remote.HostKeyChanged, "has changed")
	_ = h.Close()
	_, err = h.Check(t.Context(), op.List{op.SwapOff{}})
	var e *remote.Error
	if !errors.As(err, &e) || e.Reason != remote.ConnectionLost {
		t.Errorf("after Close: %v", err)
	}
}

func TestConnect_NeverHangsWhenCut(t *testing.T) {
	// A connection that breaks at any point causes an error or a new connection,
	// and never a hang.
	path, pub := keyFile(t, t.TempDir(), "")
	for _, after := range []int64{1, 50, 1000, 2500, 3500, 5000, 6000} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			s := remotetest.StartServer(t, remotetest.Config{
				CutAfter: after, Machine: remotetest.Machine{Handler: checkHandler},
				Users: []remotetest.User{{Name: "root", Keys: []gossh.PublicKey{pub}}},
			})
			d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
			h, err := d.Connect(t.Context(), s.HostWith("h1", v1alpha1.SSH{PrivateKeyFile: path}), testOptions(t))
			if err != nil {
				var e *remote.Error
				if !errors.As(err, &e) {
					t.Errorf("the error is %T: %v", err, err)
				}
				return
			}
			checkHost(t, h)
			_ = h.Close()
		})
	}
}

func TestConnect_WorksOnASlowLink(t *testing.T) {
	// Sending the helper takes longer than any one step may: what moves is
	// not stuck.
	path, pub := keyFile(t, t.TempDir(), "")
	program := make([]byte, 300<<10)
	_, _ = rand.Read(program)
	s := remotetest.StartServer(t, remotetest.Config{
		Slow: 70 << 10, Machine: remotetest.Machine{Handler: checkHandler},
		Users: []remotetest.User{{Name: "root", Keys: []gossh.PublicKey{pub}}},
	})
	d := ssh.Dialer{Helper: remotetest.PackedHelper(t, program)}
	opts := testOptions(t)
	opts.Timeout = 3 * time.Second
	h, err := d.Connect(t.Context(), s.HostWith("h1", v1alpha1.SSH{PrivateKeyFile: path}), opts)
	if err != nil {
		t.Fatal(err)
	}
	checkHost(t, h)
	_ = h.Close()
}

package store_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/conformance"
	"slipway.dev/slipway/internal/store"
)

func TestStore_Conforms(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		return newSubject(t, filepath.Join(t.TempDir(), "home"))
	})
}

// TestLock_ReleasedWhenHolderIsKilled kills a process that holds the lock: the kernel releases the
// lock.
func TestLock_ReleasedWhenHolderIsKilled(t *testing.T) {
	if home := os.Getenv("STORE_TEST_HOLD"); home != "" {
		l, err := openStore(t, home).Locks().Acquire(t.Context(), "prod", records.Holder{Operation: "op-1"})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("held")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed; a select alone would be a deadlock, which ends it
		runtime.KeepAlive(l)
		return
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLock_ReleasedWhenHolderIsKilled$")
	cmd.Env = append(os.Environ(), "STORE_TEST_HOLD="+home)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the holder says %q, %v", line, err)
	}
	s := openStore(t, home)
	h, err := s.Locks().Holder(t.Context(), "prod")
	if err != nil || h == nil || h.PID != cmd.Process.Pid {
		t.Errorf("holder %+v, %v: want process %d", h, err, cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the expected error is "signal: killed"
	l, err := s.Locks().Acquire(t.Context(), "prod", records.Holder{})
	if err != nil {
		t.Fatalf("after the kill: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
}

func newSubject(t *testing.T, home string) conformance.Subject {
	s := openStore(t, home)
	return conformance.Subject{
		Backend: s,
		Again:   func() conformance.Subject { return newSubject(t, home) },
		Damage: func(id string) {
			if err := os.WriteFile(filepath.Join(home, "operations", id, "operation.json"), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		Tear: func(id, bytes string) {
			f, err := os.OpenFile(filepath.Join(home, "operations", id, "journal.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(bytes); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func openStore(t *testing.T, home string, opts ...store.Option) *store.Store {
	t.Helper()
	s, err := store.Open(home, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

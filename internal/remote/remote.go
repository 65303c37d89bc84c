// Package remote is how the manager reaches hosts: connect to one, have its
// node helper check and apply operations, move blobs, and open connections
// from there. Package sshx does it over SSH, package local on this machine.
package remote

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"

	"slipway.dev/slipway/internal/node/op"
)

// A Host is a machine with its node helper running. All methods may be called
// concurrently; batches run one after another. Errors that concern the
// connection are *Error; a broken connection is dialled again within a
// bounded time before that, and a batch is checked again before it goes on.
type Host interface {
	// Name is the host's name in the cluster.
	Name() string
	// Check reports what applying would change. It changes nothing. There
	// is one result for each operation, in order.
	Check(ctx context.Context, ops op.List) ([]op.Result, error)
	// Apply makes the operations true, in order, and stops at the first
	// that fails: results then end with that one, its Status Failed. Each
	// operation is checked again on the host just before. Output and
	// progress go to sink while it runs, if sink is not nil.
	Apply(ctx context.Context, batch Batch, sink func(Progress)) ([]op.Result, error)
	// DialContext opens a connection from the host, so that the manager
	// reaches an API server that only the hosts can.
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
	// Close ends the helper and the connection. Uninterruptible programs
	// go on.
	Close() error
}

// A Batch is operations to apply, and for whom.
type Batch struct {
	// Operation and Step name the run and its task; they name transient
	// units and ledger entries. [a-z0-9.-] only.
	Operation string
	Step      string
	// Cluster owns the changes.
	Cluster string
	// Fence is the fencing number of the cluster lock: the helper refuses
	// one below the highest it has seen. 0 is never fenced.
	Fence uint64
	Ops   op.List
}

// Progress is what comes from the host while a batch runs.
type Progress struct {
	Op     int    // index into the batch
	Output []byte // a program's output, as it comes
	// Done and Total are bytes of a transfer, if Total is not 0.
	Done, Total int64
}

// A Blobs opens content by digest, for hosts that lack it.
type Blobs interface {
	// OpenBlob opens the content at offset.
	OpenBlob(digest string, offset int64) (io.ReadCloser, error)
}

// A Lock is the part of the cluster lock that one host keeps.
type Lock struct {
	Operation string `json:"operation"`
	Manager   string `json:"manager"` // which installation of Slipway holds it
	Fence     uint64 `json:"fence"`
	// By says who that is, and since when, for people.
	By string `json:"by,omitempty"`
	// Process tells the holder from others with the same manager id, as copies of its
	// records have.
	Process string `json:"process,omitempty"`
	// Over, when the lock is taken, is a process of the same manager that has ended:
	// its lock is free at once. The lock that is kept has none.
	Over string `json:"over,omitempty"`
}

// LockState is what a host answers about the lock.
type LockState struct {
	Held    bool   `json:"held"`
	Holder  Lock   `json:"holder"`
	Highest uint64 `json:"highest"` // highest fencing number seen
	// AgeSeconds is the time since the last heartbeat by the host's
	// monotonic clock; a reboot makes it stale.
	AgeSeconds float64 `json:"ageSeconds"`
	// Stale: no heartbeat for 60 s or a new boot, and no unit of the
	// holder's operation running.
	Stale bool `json:"stale"`
	// Units are the holder's transient units that still run.
	Units []string `json:"units,omitempty"`
}

// A Locker is a host that can keep a part of the cluster lock.
type Locker interface {
	// ReadLock answers who holds it.
	ReadLock(ctx context.Context) (LockState, error)
	// TakeLock writes the lock if its fencing number is above the highest
	// seen and the present one is free, stale, of the process l.Over of the
	// same manager, or breaking is asked for; else it answers with the present
	// state and false.
	TakeLock(ctx context.Context, l Lock, breaking bool) (LockState, bool, error)
	// Beat renews the heartbeat; false if the lock is no longer l.
	Beat(ctx context.Context, l Lock) (bool, error)
	// ReleaseLock frees it if it is still l.
	ReleaseLock(ctx context.Context, l Lock) error
}

// A Command is a program of the user's.
type Command struct {
	// Argv is looked for in the usual directories; no shell sees it.
	Argv []string `json:"argv,omitempty"`
	// User is whose program it is, by name: it has that user's groups and
	// home. "" is root.
	User string `json:"user,omitempty"`
}

// A Copy is a conversation in the words of package node/transfer.
type Copy struct {
	// Path is on the host; a relative one begins in the user's home.
	Path string `json:"path,omitempty"`
	// User is with whose rights files are read and written; "" is root.
	User string `json:"user,omitempty"`
	// Send has the host send Path; else it receives what comes to there.
	Send bool `json:"send,omitempty"`
	// Exact has what comes at Path though a directory is there, which an
	// attempt before has made.
	Exact bool `json:"exact,omitempty"`
}

// A Worker is a host that works for its user beside the cluster's business:
// nothing of it enters the ledger.
type Worker interface {
	// Run runs a program to its end and answers its exit code, as a shell
	// does: 127 is no such program, 128+n a signal. It is run once: a
	// connection that breaks is an error. in may be nil; out and errw are not
	// written to concurrently. When ctx ends, the program is stopped.
	Run(ctx context.Context, c Command, in io.Reader, out, errw io.Writer) (int, error)
	// OpenCopy begins a conversation, which ends with ctx at the latest.
	OpenCopy(ctx context.Context, c Copy) (net.Conn, error)
}

// A Shell is a login shell on a host, or one command that it runs, without the
// helper: it also works on a host where nothing else does.
type Shell struct {
	// Argv is the command; none is the login shell.
	Argv     []string
	In       io.Reader
	Out, Err io.Writer
	// Terminal has the host make one; nil is none.
	Terminal *Terminal
}

// A Terminal is what the person looks at.
type Terminal struct {
	Name          string // TERM
	Columns, Rows int
	// Resized hears of new sizes: columns, rows.
	Resized <-chan [2]int
}

// A Login is how a host is logged in to.
type Login struct {
	User    string
	Address string
	Port    int
	Via     []string   // the hosts before it, in order
	From    []Decision // what decided
	Local   bool       // this machine, without SSH
}

// A Decision is what decided a setting: the cluster file, a line of the SSH
// configuration, or the default.
type Decision struct{ Setting, By string }

// String is for people: "root@10.0.0.1 port 22 (user: default)".
func (l Login) String() string {
	if l.Local {
		return "this machine"
	}
	text := fmt.Sprintf("%s@%s port %d", l.User, l.Address, l.Port)
	if len(l.Via) > 0 {
		text += " through " + strings.Join(l.Via, ", ")
	}
	var from []string
	for _, s := range l.From {
		from = append(from, s.Setting+": "+s.By)
	}
	if len(from) > 0 {
		text += " (" + strings.Join(from, ", ") + ")"
	}
	return text
}

// An Error is a host that cannot be reached or used, in words for people.
type Error struct {
	Host   string
	Reason Reason
	Cause  string // "wrong password for root"
	Remedy string // what to do, one line
	Err    error
}

func (e *Error) Error() string {
	if e.Remedy == "" {
		return e.Cause
	}
	return e.Cause + "; " + e.Remedy
}

func (e *Error) Unwrap() error { return e.Err }

// A Reason is a stable word for why a host cannot be used; it is also the
// diagnostic's id in docs/guide/errors.md.
type Reason string

// The reasons.
const (
	Unreachable      Reason = "host-unreachable"
	AuthFailed       Reason = "ssh-auth-failed"
	ConfigUnusable   Reason = "ssh-config-unusable"
	HostKeyUnknown   Reason = "host-key-unknown"
	HostKeyChanged   Reason = "host-key-changed"
	KeyUnreadable    Reason = "ssh-key-unreadable"
	SecretUnreadable Reason = "secret-unreadable"
	SudoFailed       Reason = "sudo-failed"
	WrongArch        Reason = "wrong-architecture"
	NoExec           Reason = "no-exec-directory"
	HelperFailed     Reason = "helper-failed"
	ConnectionLost   Reason = "connection-lost"
	NoShell          Reason = "host-is-local"
)
